"""The `rasp` commands: thin; parse, call, print."""

import json
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from rasp_tuner import __version__, demo
from rasp_tuner.errors import RaspError

app = typer.Typer(
    help="RASP-Tuner: the online, context-aware optimizer that remembers.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


@app.callback()
def common() -> None:
    """Commands share no options; each has its own --help with an example."""


@app.command("version")
def show_version() -> None:
    """Print the version.

    Example: rasp version
    """
    typer.echo(__version__)


@app.command("demo")
def run_demo(
    steps: Annotated[int, typer.Option(min=2 * demo.BLOCK, max=100_000, help="Steps of each run.")] = 200,
    seeds: Annotated[int, typer.Option(min=1, max=1_000, help="Runs of each agent.")] = 5,
    out: Annotated[Path, typer.Option(help="Folder for the plot.")] = Path("out"),
    as_json: Annotated[bool, typer.Option("--json", help="Print the table as JSON and nothing else.")] = False,
) -> None:
    """Tune a small service with two recurring regimes; print the regret of each agent and plot it.

    Example: rasp demo --steps 400 --seeds 3 --out out
    """
    picture = out / "demo_regret.png"
    try:
        out.mkdir(parents=True, exist_ok=True)
        demo.check_can_plot()
    except (OSError, RaspError) as error:
        raise typer.Exit(_complain(error)) from error
    console = Console(stderr=True)
    runs = []
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, disable=as_json) as progress:
        task = progress.add_task("runs", total=len(demo.AGENTS) * seeds)
        try:
            for run in demo.play_all(steps, seeds):
                runs.append(run)
                progress.update(task, advance=1, description=run.agent)
        except RaspError as error:
            raise typer.Exit(_complain(error)) from error
    rows = demo.summarise(runs)
    demo.plot(runs, picture)
    if as_json:
        typer.echo(json.dumps({"rows": rows, "verdict": demo.verdict(rows), "plot": str(picture)}))
        return
    table = Table(title=f"Cumulative regret over {steps} steps, mean over seeds: {seeds} (lower is better)")
    for heading in ("agent", "regret", "x never changing", "ms a step"):
        table.add_column(heading, justify="left" if heading == "agent" else "right")
    for row in rows:
        table.add_row(str(row["agent"]), f"{row['regret']:.1f}", f"{row['ratio']:.2f}", f"{row['ms_per_step']:.2f}")
    Console().print(table)
    typer.echo(demo.verdict(rows))
    typer.echo(f"Plot: {picture}")


def _complain(error: Exception) -> int:
    """Say what went wrong in one line and give the exit status."""
    typer.echo(f"rasp: {error}", err=True)
    return 1
