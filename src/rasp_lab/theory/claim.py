"""What a claim of the paper is here: a statement, and trials that measure its two sides on instances."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal
from zlib import crc32

import numpy as np

from rasp_tuner.errors import RaspError

ROUNDING = 1e-9  # a ratio this little above one is equality, computed in floats
NOTHING = 1e-14  # what is measured below this is zero, computed in floats


class BrokenAssumption(RaspError, ValueError):
    """A theorem was asked for a bound outside its assumptions: there is none."""


@dataclass(frozen=True, slots=True)
class Trial:
    """One instance: what was measured, what the claim allows, and its name if it has one."""

    measured: float
    bound: float
    name: str = ""

    @property
    def ratio(self) -> float:
        """measured / bound: at most one where the bound holds."""
        if self.measured <= NOTHING:
            return 0.0
        ratio = self.measured / self.bound if self.bound > 0.0 else float("inf")
        return 1.0 if 1.0 < ratio <= 1.0 + ROUNDING else ratio


@dataclass(frozen=True, slots=True)
class Claim:
    """A statement as the paper prints it, as the paper uses it without saying so, or as docs/THEORY.md proves it."""

    name: str
    version: Literal["paper", "paper's use", "mended"]
    statement: str
    assumptions: str
    trials: Callable[[np.random.Generator], Iterator[Trial]]
    named: Sequence[Callable[[], Trial]] = ()  # instances made by hand: counterexamples, or where the bound is tight
    instances: int = 200


@dataclass(frozen=True, slots=True)
class Outcome:
    """A claim and all that was measured of it."""

    claim: Claim
    trials: tuple[Trial, ...]

    @property
    def worst(self) -> Trial:
        return max(self.trials, key=lambda trial: trial.ratio)

    @property
    def worst_ratio(self) -> float:
        return self.worst.ratio

    @property
    def counterexamples(self) -> list[Trial]:
        """The instances made by hand that break the claim."""
        return [trial for trial in self.trials if trial.name and trial.ratio > 1.0]

    @property
    def violations(self) -> int:
        return sum(trial.ratio > 1.0 for trial in self.trials)

    @property
    def holds(self) -> bool:
        return self.violations == 0

    def as_json(self) -> dict[str, str | int | float | bool | dict[str, float]]:
        claim = self.claim
        return {
            "claim": claim.name,
            "version": claim.version,
            "statement": claim.statement,
            "assumptions": claim.assumptions,
            "instances": len(self.trials),
            "violations": self.violations,
            "worst_ratio": self.worst_ratio,
            "holds": self.holds,
            "counterexamples": {trial.name: trial.ratio for trial in self.counterexamples},
        }


def examine(claim: Claim, seed: int) -> Outcome:
    """Measure the named instances, then random ones. Both versions of a claim draw the same ones from a seed."""
    rng = np.random.default_rng([seed, crc32(claim.name.encode())])
    drawn = claim.trials(rng)
    return Outcome(claim, (*(make() for make in claim.named), *(next(drawn) for _ in range(claim.instances))))


def require(holds: bool, rule: str, **values: object) -> None:
    """Raise unless an assumption holds; the message has the rule and the values."""
    if not holds:
        given = ", ".join(f"{name} = {value!r}" for name, value in values.items())
        raise BrokenAssumption(f"{rule}, got {given}")


def ratio(value: float) -> str:
    """Three digits."""
    return f"{value:,.0f}" if value >= 1000.0 else f"{value:#.3g}"
