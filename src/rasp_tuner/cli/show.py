"""`rasp show`: what a saved tuner remembers, in the terminal, as a table or as a page."""

import json
from pathlib import Path
from typing import Annotated

import typer

from rasp_tuner.cli.common import Json, app, echo, one_line_errors, words
from rasp_tuner.contexts import Category, ContextKind, Name, kind_of
from rasp_tuner.errors import InvalidValue
from rasp_tuner.tuner import Tuner

Texts = Annotated[
    list[str] | None,
    typer.Option(help="Texts of a context, which a tuner keeps as hashes, as in region=eu,us; repeat for several."),
]

SAVED, JOURNAL = "tuner.rasp", "journal.jsonl"  # in the folder of a study of `rasp tune` or `rasp watch`
SavedTuner = Annotated[
    Path,
    typer.Argument(help="A file of Tuner.save; of `rasp tune` and `rasp watch` also a study's folder or journal."),
]


@app.command("show")
def show_tuner(
    file: SavedTuner,
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
        saved = saved_tuner(file)
        tuner = Tuner.load(saved)
        known = known_texts(tuner, saved, texts)
        history = tuner.history(texts=known)
        if html is not None:
            tuner.report(html, title=file.resolve().name if file.is_dir() else file.stem, texts=known)
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


def saved_tuner(file: Path) -> Path:
    """The file of the tuner itself: of a study's folder or journal the one that is kept there."""
    if not file.is_dir() and file.suffix != ".jsonl":
        return file
    folder = file if file.is_dir() else file.parent
    if not (folder / SAVED).is_file():
        raise InvalidValue(f"{folder} has no {SAVED} yet: it is written when the study ends; the same command goes on")
    return folder / SAVED


def known_texts(tuner: Tuner, saved: Path, given: list[str] | None) -> dict[str, tuple[str, ...]]:
    """Texts of contexts, which a tuner keeps as hashes: those given, and those in the journal of its study."""
    known = dict(named_texts(text) for text in given or ())
    columns = tuner.history(latest=1).columns
    for name, texts in _journal_texts(saved.parent / JOURNAL).items() if saved.name == SAVED else ():
        if name in columns:
            known[name] = (*known.get(name, ()), *texts)
    return known


def _journal_texts(journal: Path) -> dict[str, tuple[str, ...]]:
    """The texts that a study met in each context; none where there is no journal that can be read."""
    kinds: dict[str, ContextKind] = {}
    found: dict[str, dict[str, None]] = {}
    try:
        for line in journal.read_text().splitlines():
            entry = json.loads(line)
            if entry["kind"] == "contexts":
                kinds = {name: kind_of(name, kind) for name, kind in entry["kinds"].items()}
            for name, value in (entry.get("context") or {}).items():
                if isinstance(kinds.get(name), (Category, Name)) and isinstance(value, str):
                    found.setdefault(name, {})[value] = None
    except (OSError, ValueError, KeyError, AttributeError):
        return {}
    return {name: tuple(texts) for name, texts in found.items()}
