"""`rasp report`: what a saved tuner has found, in the terminal or as a page."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from rasp_tuner.cli.common import Json, app, echo, one_line_errors
from rasp_tuner.cli.show import Texts, named_texts
from rasp_tuner.errors import InvalidValue
from rasp_tuner.tuner import Tuner
from rasp_tuner.types.knob_shares import NO_EFFECT_WORDS

SAVED = "tuner.rasp"  # in the folder of a study of `rasp tune` or `rasp watch`


@app.command("report")
def report_tuner(
    file: Annotated[
        Path,
        typer.Argument(help="A file of Tuner.save; of `rasp tune` and `rasp watch` also a study's folder or journal."),
    ],
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
        tuner, known = Tuner.load(saved), dict(named_texts(text) for text in texts or ())
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
        if any(one.unproven for one in situations):
            echo(f"  ({NO_EFFECT_WORDS})")
        echo(f"Page: {html}" if html is not None else f"Every step: rasp show {saved}")


def saved_tuner(file: Path) -> Path:
    """The file of the tuner itself: of a study's folder or journal the one that is kept there."""
    if not file.is_dir() and file.suffix != ".jsonl":
        return file
    folder = file if file.is_dir() else file.parent
    if not (folder / SAVED).is_file():
        raise InvalidValue(f"{folder} has no {SAVED} yet: it is written when the study ends; the same command goes on")
    return folder / SAVED
