"""`rasp report`: what a saved tuner has found, in the terminal or as a page."""

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from rasp_tuner.cli.common import Json, app, echo, one_line_errors
from rasp_tuner.cli.show import SAVED, SavedTuner, Texts, known_texts, saved_tuner
from rasp_tuner.report.decided import FinalDecision, decided_in
from rasp_tuner.report.situation_gains import SituationGain
from rasp_tuner.tuner import Tuner
from rasp_tuner.types.knob_shares import NO_EFFECT_WORDS


@app.command("report")
def report_tuner(
    file: SavedTuner,
    html: Annotated[Path | None, typer.Option(help="Page to write: the same with pictures, in one file.")] = None,
    texts: Texts = None,
    as_json: Json = False,
) -> None:
    """Say what a saved tuner has gained, what it recommends where, and what it may still lose; nothing in it changes.

    Of a study of `rasp tune` that has ended, what to use is what its final pairs decided.

    Example: rasp report run.rasp
    Example: rasp report rasp-tune/xz --html xz.html
    """
    with one_line_errors("rasp-tuner[cli]"):
        saved = saved_tuner(file)
        tuner = Tuner.load(saved)
        known = known_texts(tuner, saved, texts)
        decided = decided_in(saved.parent) if saved.name == SAVED else None
        if html is not None:
            title = file.resolve().name if file.is_dir() else file.stem
            tuner.report(html, title=title, texts=known, decided=decided)
        situations = tuner.situations(known) if decided is None else []
        if as_json:
            echo(json.dumps(_as_json(tuner, situations, decided), indent=1))
            return
        echo(repr(tuner))
        for line in [*_gained(tuner, decided), *_recommended(situations, decided)]:
            echo(line)
        echo(f"Page: {html}" if html is not None else f"Every step: rasp show {saved}")


def _as_json(tuner: Tuner, situations: Sequence[SituationGain], decided: FinalDecision | None) -> dict[str, Any]:
    versus, looks, budget = tuner.versus_default(), tuner.looks(), tuner.budget()
    final = {} if decided is None else {"decided": {**asdict(decided), "words": str(decided)}}
    return {
        "learned": tuner.learned,
        "pending": len(tuner.pending),
        "versus_default": None if versus is None else versus.to_json(),
        "looks": None if looks is None else {**asdict(looks), "words": str(looks)},
        "budget": None if budget is None else {**asdict(budget), "words": str(budget)},
        "situations": [one.to_json() for one in situations],
        **final,
    }


def _gained(tuner: Tuner, decided: FinalDecision | None) -> list[str]:
    """What ran, what that has gained, and what it still tries."""
    versus, looks, budget = tuner.versus_default(), tuner.looks(), tuner.budget()
    gained = "no comparison yet, too little is known of it" if versus is None else str(versus)
    lines = [f"{'Against the default' if decided is None else 'While tuning, against the default'}: {gained}."]
    rest = "" if versus is None else versus.rest_words(tuner.learned)
    lines += [rest] if rest else []
    lines += [] if looks is None or decided is not None else [f"Exploring: {looks}."]
    return lines if budget is None else [*lines, f"Budget: {budget}"]


def _recommended(situations: Sequence[SituationGain], decided: FinalDecision | None) -> list[str]:
    if decided is not None:
        return [f"Recommended: {decided}", f"  ({decided.basis()})"]
    lines = ["Recommended:" if situations else "Recommended: nothing yet."]
    for one in situations:
        lines.append(f"  {one}")
        lines += [f"    limit of {name}: {margin}" for name, margin in one.margins.items()]
    return [*lines, *([f"  ({NO_EFFECT_WORDS})"] if any(one.unproven for one in situations) else [])]
