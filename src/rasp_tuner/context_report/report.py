"""ContextReport: is this context any good? A verdict in words, a table, warnings.

`screen` takes samples in the order of time: contexts [n, d_c], points [n, d] of the unit box, losses [n].
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

import numpy as np

from rasp_tuner.base.checks import show
from rasp_tuner.base.numerics import LARGEST, Array
from rasp_tuner.base.threads import one_thread
from rasp_tuner.context_report import flaws
from rasp_tuner.context_report.shifts import compare, features_of, in_deviations, moving, reduced
from rasp_tuner.errors import InvalidValue
from rasp_tuner.gain.versus_default import Gain
from rasp_tuner.page.words import TIMES_FROM, listed, times_words

Scale = Literal["linear", "log"]
Verdict = Literal["helps", "useless", "too little data"]

SIGNIFICANCE = 0.03  # p at which a context is said to help; docs/CONTEXT.md has the measured rate of false alarms
MIN_SAMPLES = 40  # samples: with fewer shifts than that no p is small
USELESS_FROM_SAMPLES = 60  # samples from which on a context may be called useless
MIN_INDEPENDENT_LOOKS = 12.0  # and independent looks at it: a context that hardly changed is not judged
MIN_UNEXPLAINED_SHARE = (
    0.25  # of its variance unexplained by the parameters: a context that these follow as closely is not judged either
)
MAX_SAMPLES = 160  # samples that are looked at; of more, so many at even distances
FEW_FEATURES, MAX_SAMPLES_OF_MANY = 4, 128  # up to so many features; and samples where there are more, to be as fast
SAME_PARAMETERS_SHARE = 0.9  # share of samples with the same parameters from which on nothing is judged
SAMPLES_ALONE = (
    "This rests on all that the tuner has learned. Its latest {samples} samples alone would not show it: once it runs"
    " what suits each context, they hardly vary in what else could run there."
)
LIKELY_LOST = 0.05  # share that is lost by one setting for all contexts: where more is expected, none is useless
FOLLOWED_NOTE = "parameters follow it"


@dataclass(frozen=True, slots=True)
class Dimension:
    """What one feature, or one component of many, says by itself."""

    name: str
    p: float  # corrected for the number of dimensions
    share: float  # of the squared errors left by parameters and drift that it takes away
    note: str  # "helps", "no sign", "too slow to judge", "parameters follow it"


@dataclass(frozen=True, slots=True)
class ContextReport:
    """How much a context says about the loss beyond parameters and time; `str()` gives it in words."""

    verdict: Verdict
    words: str
    samples: int  # looked at
    p: float | None  # that a context with no bearing on the loss looks as good; None where nothing was tested
    share: float | None  # of the squared errors left by parameters and drift that the context takes away
    level: float
    dimensions: tuple[Dimension, ...]
    warnings: tuple[str, ...]
    gain: float | None = None  # nats by which the context makes the loss likelier, at best
    shifted: tuple[float, ...] = ()  # and shifted contexts
    scale: Scale = "linear"  # on which the losses were compared
    lost_without: Gain | None = None  # by one setting for all contexts, as a share, by forecast; None: not known

    def beside_model(self, lost: Gain | None) -> "ContextReport":
        """This report with what the tuner's model says, so that both have one verdict."""
        report = replace(self, lost_without=lost)
        if report._decides and self.verdict != "helps":  # the samples do not speak against it
            words = " ".join([*report._answer(), SAMPLES_ALONE.format(samples=self.samples)])
            return replace(report, verdict="helps", words=words)
        if self.verdict == "useless" and lost is not None and lost.high is not None and lost.value > LIKELY_LOST:
            words = (
                f"It is open whether the context decides: {self.samples} samples show no sign of it (p = {self.p:.2f}),"
                f" but by what the tuner has learned you would lose about {lost.value:.0%} without it, {lost.high:.0%}"
                " at most."
            )
            return replace(report, verdict="too little data", words=words)
        return report

    def __str__(self) -> str:
        answer, tested = self._answer(), f"{self.words[0].lower()}{self.words[1:]}"
        if answer and self.words.startswith(answer[0]):  # the model alone
            return "\n".join([self.words, *(f"Warning: {warning}" for warning in self.warnings)])
        apart = "The test of the samples, which knows nothing of the tuner's model: " if answer else ""
        lines = [*answer, f"{apart}{tested}" if apart else self.words]
        if self.dimensions:
            width = max(9, *(len(d.name) for d in self.dimensions))
            lines += ["", f"{'dimension':{width}}  {'p':>5}  {'explains':>8}"]
            lines += [f"{d.name:{width}}  {d.p:5.2f}  {d.share:8.0%}  {d.note}" for d in self.dimensions]
        if self.p is not None:
            by = "factors" if self.scale == "log" else "differences"
            lines += ["", f"Losses are compared on a {self.scale} scale: by {by}."]
        return "\n".join([*lines, *(f"Warning: {warning}" for warning in self.warnings)])

    @property
    def _decides(self) -> bool:
        """Whether one setting for all contexts would surely lose."""
        return self.lost_without is not None and self.lost_without.low is not None and self.lost_without.low > 0.0

    def _answer(self) -> list[str]:
        """What a person asks: does it matter, and how much?"""
        lost = self.lost_without
        if lost is None or lost.low is None or lost.high is None:
            return []
        if lost.low > 0.0:
            low, high = (f"{100.0 * x:.0f}" for x in (lost.low, lost.high))
            if 1.0 + lost.value >= TIMES_FROM:
                low, high = (times_words(1.0 + x).removesuffix(" times") for x in (lost.low, lost.high))
                paid = f"{times_words(1.0 + lost.value)} as much ({low} to {high})"
                return [f"The context decides: without it you would pay {paid}."]
            return [f"The context decides: without it you would lose {lost.value:.0%} ({low} to {high}%)."]
        if self.verdict == "too little data":
            return []
        if lost.high <= 0.0:
            return ["The context decides nothing: the same settings are best in all of it."]
        times = 1.0 + lost.high
        most = f"lose {lost.high:.0%}" if times < TIMES_FROM else f"pay {times_words(times)} as much"
        if self.verdict == "useless":
            return [f"Without the context you would {most} at most."]
        return [f"It is open whether the context decides: without it you would {most} at most."]

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


@one_thread()
def screen(
    contexts: Array,
    points: Array,
    losses: Array,
    names: Sequence[str] | None = None,
    memory: Array | None = None,
    scale: Scale = "linear",
) -> ContextReport:
    """The report on samples in the order of time.

    names   of the feature that each dimension belongs to; those with the same name are one feature
    memory  [N, d_c] contexts known besides, for drift
    scale   of the losses, for the report to say: "log" if they are logarithms of what was measured
    """
    _check(contexts, points, losses)
    names = list(names) if names is not None else [f"c{i + 1}" for i in range(contexts.shape[1])]
    if len(names) != contexts.shape[1]:
        raise InvalidValue(f"names must be one for each of {contexts.shape[1]} dimensions, got {show(names)}")
    seen = len(losses)
    most = MAX_SAMPLES if len(set(names)) <= FEW_FEATURES else MAX_SAMPLES_OF_MANY
    kept = np.unique(np.linspace(0, max(seen - 1, 0), min(seen, most)).round().astype(int))
    contexts, points, losses = np.clip(contexts[kept], -LARGEST, LARGEST), points[kept], losses[kept]
    n = len(losses)
    if n < MIN_SAMPLES:
        return untested(f"{n} samples are not enough to tell; it takes {MIN_SAMPLES} at least", n, ())
    warnings = [*flaws.constant(contexts, names), *flaws.duplicates(contexts, names)]
    if not moving(contexts).any():
        return untested(f"the context never changed in {n} samples", n, warnings)
    if not losses.std() > 1e-12 * np.abs(losses).max():
        return untested(f"the loss never changed in {n} samples", n, warnings)
    warnings += flaws.one_way(contexts, names)
    warnings += flaws.leakage(contexts, names, losses, points)
    warnings += flaws.drifted(contexts, memory)
    by_name = features_of([name for name, moves in zip(names, moving(contexts), strict=True) if moves])
    x, features = reduced(in_deviations(contexts), list(by_name.values()))
    tested = compare(x, features, points, losses)
    looks = np.array([n / min(memory_of(x[:, i]) for i in own) for own in features])
    labels = list(by_name) if len(features) == len(by_name) else [f"component {i + 1}" for i in range(len(features))]
    dimensions = tuple(
        Dimension(name, float(p), float(share), _note(p, many, unexplained))
        for name, p, share, many, unexplained in zip(
            labels, tested.each, tested.shares, looks, tested.unexplained, strict=True
        )
    )
    repeated = float(np.unique(points, axis=0, return_counts=True)[1].max()) / n
    verdict, words = _verdict(tested.p, tested.share, n, float(looks.max()), repeated, dimensions)
    shifted = tuple(tested.others.tolist())
    p, share, gain = tested.p, tested.share, tested.gain
    return ContextReport(verdict, words, n, p, share, SIGNIFICANCE, dimensions, tuple(warnings), gain, shifted, scale)


def memory_of(series: Array) -> float:
    """Steps after which a series [n] with mean 0 has forgotten itself: its integrated autocorrelation time."""
    n, power = len(series), float(series @ series)
    time = 1.0
    for lag in range(1, n // 2):
        like = float(series[lag:] @ series[:-lag]) / power
        if like < 0.05:
            break
        time += 2.0 * like
    return time


def _verdict(
    p: float, share: float, n: int, looks: float, repeated: float, dimensions: Sequence[Dimension]
) -> tuple[Verdict, str]:
    if p <= SIGNIFICANCE:
        named = [d.name for d in dimensions if d.p <= SIGNIFICANCE] if len(dimensions) > 1 else []
        alone = f"; by itself: {listed(named)}" if named else ""
        return "helps", (
            f"The context helps: it takes away {share:.0%} of the squared error that parameters and drift leave"
            f" (p = {p:.2f}, {n} samples){alone}."
        )
    if n < USELESS_FROM_SAMPLES:
        return (
            "too little data",
            f"Too little data yet: no sign in {n} samples (p = {p:.2f}); look again at {USELESS_FROM_SAMPLES}.",
        )
    if repeated > SAME_PARAMETERS_SHARE:
        return "too little data", (
            f"These {n} samples cannot tell: in {repeated:.0%} of them the parameters are the same, so nothing shows"
            " what others would have done."
        )
    followed = [d.name for d in dimensions if d.note == FOLLOWED_NOTE]
    if followed:
        return "too little data", (
            f"These {n} samples cannot tell: the parameters follow {listed(followed)} so closely that hardly any sample"
            " shows what else would have done there."
        )
    if looks < MIN_INDEPENDENT_LOOKS:
        return "too little data", (
            f"Too little data yet: the context changes so slowly that {n} samples hold about {looks:.0f} independent"
            f" looks at it (p = {p:.2f})."
        )
    return "useless", (
        f"The context is useless as far as {n} samples tell: moved along the time axis it explains the loss as well"
        f" (p = {p:.2f})."
    )


def _note(p: float, looks: float, unexplained: float) -> str:
    if p <= SIGNIFICANCE:
        return "helps"
    if unexplained < MIN_UNEXPLAINED_SHARE:
        return FOLLOWED_NOTE
    return "no sign" if looks >= MIN_INDEPENDENT_LOOKS else "too slow to judge"


def untested(why: str, samples: int = 0, warnings: Sequence[str] = ()) -> ContextReport:
    """A report that says why nothing was tested."""
    words = f"Too little data yet: {why}."
    return ContextReport("too little data", words, samples, None, None, SIGNIFICANCE, (), tuple(warnings))


def _check(contexts: Array, points: Array, losses: Array) -> None:
    for field, array, axes_ in (("contexts", contexts, 2), ("points", points, 2), ("losses", losses, 1)):
        if array.ndim != axes_ or not np.isfinite(array).all():
            raise InvalidValue(f"{field} must be finite numbers with {axes_} axes, got shape {array.shape}")
    if not len(contexts) == len(points) == len(losses):
        raise InvalidValue(
            f"contexts, points and losses must be equally many, got {len(contexts)}, {len(points)}, {len(losses)}"
        )
