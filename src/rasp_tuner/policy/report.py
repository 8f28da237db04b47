"""PolicyReport: what an export wrote, and what the policy loses against the tuner that it came from."""

from dataclasses import dataclass, field
from typing import Any

from rasp_tuner.page.words import counted


@dataclass(frozen=True, slots=True)
class PolicyLoss:
    """What the policy loses against the tuner's own recommendation, by the tuner's forecasts on held-out contexts.

    In units of the metric; of several metrics, of their weighted mean, each in deviations. A context in which the
    policy's parameters are expected to be better counts as no loss.
    """

    mean: float
    bound: float  # of the mean: the upper end of a one-sided 95% bootstrap interval
    most: float  # that 19 contexts of 20 lose at the most
    mean_share: float | None  # of what the tuner's recommendation comes to; None where a share says nothing
    bound_share: float | None
    limits_broken: float  # share of contexts where a limit is expected to break that the recommendation keeps


@dataclass(frozen=True, slots=True)
class Explored:
    """What exploring by a policy comes to, on average over its contexts."""

    share: float  # of the keys that run something else than what is recommended
    stake: float  # by what share of the default's loss that may make things worse than the default

    def __str__(self) -> str:
        return (
            f"{self.share:.1%} of the keys run something else than what is recommended; that may cost"
            f" {self.stake:.2%} of what the default comes to."
        )


@dataclass(frozen=True, slots=True)
class PolicyReport:
    """`str()` of it is a short paragraph in plain words."""

    leaves: int
    grown_from: int  # contexts
    held_out: int  # contexts, on which the loss was measured
    metric: str | None  # in whose units the loss is; None: a sum of several
    loss: PolicyLoss | None  # None where the tuner forecasts nothing
    notes: tuple[str, ...] = ()
    explored: Explored | None = None  # None: the policy does not explore
    policy: dict[str, Any] = field(default_factory=dict, repr=False)  # what was written

    def __str__(self) -> str:
        settings = "1 leaf" if self.leaves == 1 else f"{self.leaves} leaves"
        grown = f"A tree with {settings}, grown from {counted(self.grown_from, 'context')}."
        explored = () if self.explored is None else (str(self.explored),)
        return " ".join([grown, *self.notes, self._loss(), *explored])

    def _loss(self) -> str:
        if self.loss is None:
            return "Its loss against the tuner is not known: the tuner has no forecasts."
        loss, unit = self.loss, self.metric or "weighted mean of the metrics, in deviations"
        told = (
            f"On {counted(self.held_out, 'context')} that it was not grown from, it is expected to lose"
            f" {_amount(loss.mean, loss.mean_share)} of {unit} on average against the tuner's own recommendation, and"
            f" at most {_amount(loss.bound, loss.bound_share)} with a confidence of 95%; 19 contexts of 20 lose at most"
            f" {loss.most:.3g}. These are the tuner's forecasts, not measurements."
        )
        if loss.limits_broken:
            told += f" In {loss.limits_broken:.1%} of them it is expected to break a limit that the tuner keeps."
        return told


def _amount(value: float, share: float | None) -> str:
    return f"{value:.3g}" + ("" if share is None else f" ({share:.2%})")
