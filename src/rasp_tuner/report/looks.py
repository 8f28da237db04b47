"""Looks: how many of the latest steps looked at something less known, and whether looking has ended.

Told by the reasons of those steps. The engine looks where knowing is worth more, over the visits to come, than a look
costs; where no look is, it uses the best it knows. What is known becomes less sure as things drift: then a look may be
worth its price again. A search (goal "find") uses nothing on the way, so it looks on until its runs are spent.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from rasp_tuner.engine.gp.belief import BASELINE, GOOD_NEWS
from rasp_tuner.engine.gp.find import AGAIN, FIRST_RUN, LIKELIEST, NEW, NEWS, UNTRIED
from rasp_tuner.engine.gp.search import SOURCES
from rasp_tuner.engine.kernel.choose import FIRST, PROBE
from rasp_tuner.engine.quadratic.draws import SOURCES as SMOOTH_SOURCES

LOOKED_AT_STEPS = 50  # that count
ENDED_STEPS = 20  # without a look, after which it is said that no look is worth its price
NEWLY_APPROVED, BEST_APPROVED = "approved by a person", "best of what was approved"  # where suggestions wait for one
LOOKED = (*SOURCES[3:], SOURCES[1], SMOOTH_SOURCES[PROBE], SMOOTH_SOURCES[FIRST], BASELINE, GOOD_NEWS, NEWLY_APPROVED)
SEARCHED = (FIRST_RUN, UNTRIED, NEW, NEWS, LIKELIEST)  # settings that did not run before
REFUSED = ("budget is spent", "guard", "latest runs were stopped", BEST_APPROVED)


@dataclass(frozen=True, slots=True)
class Looks:
    """What the latest answered suggestions were for."""

    steps: int  # that were looked at: the latest 50
    looks: int  # of them, those that tried something less known
    refused: int  # of them, those at which budget, guard, stops or a missing approval forbade one
    quiet: int  # latest steps in a row without a look and without a refusal
    search: bool = False  # the goal is "find": nothing is used before the search ends
    again: int = 0  # of a search, the steps that ran a good setting once more

    @property
    def ended(self) -> bool:
        """Whether no look is worth its price now."""
        return not self.search and self.quiet >= ENDED_STEPS

    def __str__(self) -> str:
        if self.search:
            return (
                f"{self.looks} of the latest {self.steps} steps tried settings that had not run, {self.again} ran a"
                " good one once more to be sure; a search goes on until its runs are spent"
            )
        if self.ended:
            return (
                f"no look is worth its price now: the latest {self.quiet} steps used what is known; it looks again if"
                " things drift"
            )
        refused = f"; {self.refused} were not allowed to" if self.refused else ""
        return f"{self.looks} of the latest {self.steps} steps tried something less known{refused}"


def looks_of(sources: Iterable[str], search: bool = False) -> Looks:
    """From the sources of explanations, oldest first; `search`: of a tuner whose goal is "find".

    >>> print(looks_of(["default", "one knob moved", "best known"]))
    1 of the latest 3 steps tried something less known
    >>> looks_of(["best known"] * 30).ended
    True
    """
    latest = list(sources)[-LOOKED_AT_STEPS:]
    looked = [any(word in source for word in (SEARCHED if search else LOOKED)) for source in latest]
    refused = [any(word in source for word in REFUSED) for source in latest]
    quiet = 0
    for one, other in zip(reversed(looked), reversed(refused), strict=True):
        if one or other:
            break
        quiet += 1
    again = sum(AGAIN in source for source in latest) if search else 0
    return Looks(len(latest), sum(looked), sum(refused), quiet, search, again)
