"""The part of a tuner's page that says which situations came back, and whether they recovered sooner than at first."""

from collections.abc import Callable, Sequence
from html import escape
from typing import Any

from rasp_tuner.base.numerics import Array
from rasp_tuner.history.revisits import steps_saved
from rasp_tuner.history.visits import VisitedSituation, return_of
from rasp_tuner.page import html_page
from rasp_tuner.report.situations import context_words
from rasp_tuner.report.visits_on_record import SeenBefore

MOST_NAMES = 4  # of contexts in the words for a situation
HEAD = ["situation", "visits", "steps", "last seen", "steps to settle at first", "on return (median)", "saved"]
NOTE = (
    "Of the steps on record. A visit is three or more steps in a row; it has recovered once it is as good as the"
    " situation had settled at first. Nothing is said where that was not measured; docs/RETURNS.md has the rules."
)


def return_section(seen: SeenBefore, contexts: Sequence[Array], named: Callable[[Array], dict[str, Any]]) -> list[str]:
    """A table of situations, most steps first; none while nothing has come back."""
    situations = seen.visits.situations
    if all(one.visits < 2 for one in situations.values()):
        return []
    met: dict[int, list[dict[str, Any]]] = {}
    for context in contexts:
        label = seen.regimes.known_situation(context)
        if label is not None:
            met.setdefault(label, []).append(named(context))
    everywhere = [values for own in met.values() for values in own]
    varying = [n for n in (everywhere or [{}])[0] if len({str(values[n]) for values in everywhere}) > 1][:MOST_NAMES]
    others = {label: [one for other in met if other != label for one in met[other]] for label in met}
    rows = [
        _row(
            context_words(met[label], varying, others[label]) if label in met else "earlier",
            one,
            label == seen.visits.now,
            seen.steps,
            seen.visits.from_the_start,
        )
        for label, one in sorted(situations.items(), key=lambda item: -item[1].steps)
    ]
    now = seen.visits.current()
    back = "" if now is None else str(return_of(now, at_least=not seen.visits.from_the_start))
    words = [f"<p>The latest situation has come back. {escape(back)}</p>"] if back else []
    return ["<h2>Situations that came back</h2>", *words, html_page.table((HEAD, rows)), f'<p class="note">{NOTE}</p>']


def _row(words: str, one: VisitedSituation, current: bool, steps: int, whole: bool) -> list[str]:
    first, back = one.settled, one.took_on_return
    all_returns = len(one.took) + one.missed
    got = f" ({len(one.took)} of {all_returns} returns)" if all_returns else ""
    fewer = steps_saved(None if first is None else first.took, back)
    return [
        words,
        f"{'' if whole else 'at least '}{one.visits:,}",
        f"{one.steps:,}",
        "now" if current else f"{steps - one.last_step:,} steps ago",
        "-" if first is None else f"{first.took:,}",
        "-" if back is None else f"{back:g}{got}",
        "-" if fewer is None else f"about {fewer:.0f} steps",
    ]
