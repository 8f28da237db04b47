"""`rasp theory`: the paper's theorems against their bounds."""

import json
import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from rasp_lab.cli.common import PANEL, lab_errors
from rasp_lab.progress import progress_bar
from rasp_tuner.cli.common import Json, app, busy, echo, say


@app.command("theory", rich_help_panel=PANEL)
def run_theory(
    seed: Annotated[int, typer.Option(min=0, max=2**32 - 1, help="Seed of the random instances.")] = 0,
    out: Annotated[Path, typer.Option(help="Folder for theory.png and theory.html.")] = Path("out/theory"),
    as_json: Json = False,
) -> None:
    """Measure each theorem of the paper against its bound, as printed and as corrected (see docs/THEORY.md).

    The exit status is 1 if a corrected bound is broken.

    Example: rasp theory --out out/theory
    """
    with lab_errors():
        with busy("loading"):
            from rasp_lab.theory import page, suite

        out.mkdir(parents=True, exist_ok=True)
        outcomes = []
        say(f"measuring {len(suite.CLAIMS)} claims", as_json)
        with progress_bar(as_json) as progress:
            task = progress.add_task("claims", total=len(suite.CLAIMS))
            for outcome in suite.run(seed):
                outcomes.append(outcome)
                progress.update(task, advance=1, description=outcome.claim.name)
        with busy("drawing"):
            picture, html = page.write(outcomes, out)
        if as_json:
            echo(json.dumps([outcome.as_json() for outcome in outcomes], indent=1))
        else:
            head, rows = page.as_table(outcomes)
            table = Table(*head)
            for row in rows:
                table.add_row(*map(escape, row))
            Console(width=None if sys.stdout.isatty() else 160).print(table)
            echo(page.verdict(outcomes))
            echo(f"Figure: {picture}   Page: {html}")
    if not all(outcome.holds for outcome in outcomes if outcome.claim.version == "mended"):
        raise typer.Exit(1)
