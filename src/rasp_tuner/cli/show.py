"""`rasp show`: what a saved tuner remembers, in the terminal, as a table or as a page."""

import json
from pathlib import Path
from typing import Annotated

import typer

from rasp_tuner.cli.common import Json, app, echo, one_line_errors
from rasp_tuner.cli.lists import words
from rasp_tuner.errors import InvalidValue
from rasp_tuner.tuner import Tuner

Texts = Annotated[
    list[str] | None,
    typer.Option(help="Texts of a context, which a tuner keeps as hashes, as in region=eu,us; repeat for several."),
]


@app.command("show")
def show_tuner(
    file: Annotated[Path, typer.Argument(help="A file of Tuner.save, such as tuner.rasp of `rasp tune`.")],
    html: Annotated[Path | None, typer.Option(help="Page to write: gain, metrics, knobs, situations, budget.")] = None,
    csv: Annotated[Path | None, typer.Option(help="Table of steps to write.")] = None,
    texts: Texts = None,
    as_json: Json = False,
) -> None:
    """Show the steps that a saved tuner remembers; nothing in it changes.

    Example: rasp show run.rasp
    Example: rasp show run.rasp --html run.html
    """
    with one_line_errors("rasp-tuner[cli]"):
        tuner = Tuner.load(file)
        known = dict(named_texts(text) for text in texts or ())
        history = tuner.history(texts=known)
        if html is not None:
            tuner.report(html, title=file.stem, texts=known)
        if csv is not None:
            history.to_csv(csv)
        if as_json:
            echo(json.dumps({"learned": tuner.learned, "note": history.note, "steps": list(history)}, indent=1))
            return
        echo(repr(tuner))
        echo(str(history))
        for what, written in (("Page", html), ("Table", csv)):
            if written is not None:
                echo(f"{what}: {written}")


def named_texts(text: str) -> tuple[str, tuple[str, ...]]:
    """The name of a context and its texts, from a word as in `region=eu,us`."""
    name, found, given = text.partition("=")
    if not found:
        raise InvalidValue(f"texts must be a name and its texts, as in region=eu,us; got {text!r}")
    return name, words(given)
