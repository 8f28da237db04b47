"""`rasp report`: what a saved tuner has found, in the terminal or as a page."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from rasp_tuner.cli.common import Json, app, echo, one_line_errors
from rasp_tuner.cli.show import SavedTuner, Texts, known_texts, saved_tuner
from rasp_tuner.tuner import Tuner


@app.command("report")
def report_tuner(
    file: SavedTuner,
    html: Annotated[Path | None, typer.Option(help="Page to write: the same with pictures, in one file.")] = None,
    texts: Texts = None,
    as_json: Json = False,
) -> None:
    """Say what a saved tuner has gained, what it recommends where, and what it may still lose; nothing in it changes.

    Example: rasp report run.rasp
    Example: rasp report rasp-tune/xz --html xz.html
    """
    with one_line_errors("rasp-tuner[cli]"):
        saved = saved_tuner(file)
        tuner = Tuner.load(saved)
        known = known_texts(tuner, saved, texts)
        if html is not None:
            title = file.resolve().name if file.is_dir() else file.stem
            tuner.report(html, title=title, texts=known)
        versus, looks, budget = tuner.versus_default(), tuner.looks(), tuner.budget()
        situations = tuner.situations(known)
        if as_json:
            found = {
                "learned": tuner.learned,
                "pending": len(tuner.pending),
                "versus_default": None if versus is None else versus.to_json(),
                "looks": None if looks is None else {**asdict(looks), "words": str(looks)},
                "budget": None if budget is None else {**asdict(budget), "words": str(budget)},
                "situations": [one.to_json() for one in situations],
            }
            echo(json.dumps(found, indent=1))
            return
        echo(repr(tuner))
        gained = "no comparison yet, too little is known of it" if versus is None else str(versus)
        echo(f"Against the default: {gained}.")
        if looks is not None:
            echo(f"Exploring: {looks}.")
        if budget is not None:
            echo(f"Budget: {budget}")
        echo("Recommended:" if situations else "Recommended: nothing yet.")
        for one in situations:
            echo(f"  {one}")
            for name, margin in one.margins.items():
                echo(f"    limit of {name}: {margin}")
        echo(f"Page: {html}" if html is not None else f"Every step: rasp show {saved}")
