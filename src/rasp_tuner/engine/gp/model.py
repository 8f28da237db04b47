"""The model: one Gaussian process over settings, contexts and time, and its fit to stored rows. Pure functions.

y = center + a f,   f ~ GP(mean(x), k),   noise of a row: s2 / (count trust)

k = v0 + vc kc + vt kt                                       level: of all, of similar contexts, of about this time
  + lin (gs + gc kc + gt kt) + lin_choice gq kc              effects: shared, own to similar contexts, drifting
  + res (gs + gc kc + gt kt + turning kc)                    residual: interactions, ruggedness
  + curved                                                   curvature, shared by all
lin = sum_p w var effect effect',  res = vr exp(-sum_e w (e - e')^2 / 2 ell),  kt = exp(-|t - t'| / RECENT_STEPS),
turning = gq times the share of knobs that are choices or switches

Variances are in units of a^2. The scale a has a closed form: with q = 1 / a the log evidence is
-(A q^2 - 2 b q + m'K^-1 m) / 2 + N log q + ..., A = y'K^-1 y + S / V + 2, b = y'K^-1 m, N = n + repeats + 2, with S
the squared distances of repeats from their rows, and V = s2 + what drifts until they come; y in units of what a is
expected to be.

symbol     shape      meaning
theta      [H+d+d_c]  logarithms of the hyperparameters, of each knob's weight, of each context dimension's relevance
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from rasp_tuner.base.common_constants import EARLY_SAMPLES, RECENT_STEPS
from rasp_tuner.base.numerics import Array
from rasp_tuner.contexts.context_metric import ContextMetric, likeness, squared_gaps, weighted
from rasp_tuner.engine.gp import native_gp
from rasp_tuner.engine.gp.knobs import Knobs
from rasp_tuner.engine.gp.native_gp import Features
from rasp_tuner.engine.gp.rows import StoredRows
from rasp_tuner.engine.gp.trust import LEAST_TRUST, if_false, suspects

LEVEL_VARIANCE = 10.0  # v0, of the common level: vague
JITTER = 1e-8  # of the level's variance: keeps matrices of equal rows regular
GUESS_SHARE = 0.5  # of the rows' spread: what a is expected to be
GUESS_ROWS = 2.0  # that this guess is worth
SAME_SHARE, UNTOLD_SHARE = 1e-12, 0.1  # of the level: a spread below is rounding; effects expected where none is seen
LEAST_UNIT = 1e-250  # of y: its inverse is finite
MOST_SPREAD = 1e6  # of rows, in units of a
NOISE_FACTORS = np.array([1.0, 0.1, 0.33, 3.3, 10.0])  # tried while rows are few: noise and effects are a ridge
RATE, MOMENTUM, SQUARES_KEPT, SOFT = 0.3, 0.8, 0.95, 0.3  # of Adam on theta; steps shrink where slopes are below SOFT
ABSENT = 1e-20  # a share of nothing
WIDTH = 1.2  # prior length of the context kernel, in deviations
WEIGHT_DEVIATION = 0.7  # how far weights of knobs and relevances of contexts may differ, in logarithms
# where the best is looked for: inputs are their own, and interactions as large as effects, from one level to the next
FIND_WIDTH, FIND_RESIDUAL, FIND_LENGTH = 0.5, 0.3, 0.3
FIND_WEIGHT_DEVIATION = 1.4  # some knobs do nothing, and looks at them are wasted

# with two or three knobs d interactions may be as large as effects (2.8 / d^3), from one level to the next (0.075 d^2)
SMALL_RESIDUAL, SMALL_LENGTH = 2.8, 0.075

# name: prior median, deviation of its logarithm
PRIORS = {
    "gs": (0.4, 1.0),  # share of effects that holds in all contexts
    "gc": (0.3, 1.0),  # share that holds in similar contexts
    "gq": (0.7, 1.0),  # the same, more of it, of choices and switches, whose effects may turn around
    "gt": (0.03, 1.5),  # share that drifts with time
    "vc": (0.3, 2.0),  # level of similar contexts
    "vt": (0.05, 1.5),  # level that drifts with time
    "vr": (0.05, 1.0),  # residual
    "s2": (0.003, 2.0),  # noise of one run
    "ell": (1.0, 1.0),  # squared length of the residual
    "hot": (4.0, 1.0),  # effect of each of few levels, against the slope over them
}
NO_CONTEXTS = np.zeros((0, 0))  # of a compiled fit, which has its own
H = len(PRIORS)
GS, GC, GQ, GT, VC, VT, VR, S2, ELL, HOT = range(H)


class ThetaPrior(NamedTuple):
    """Of theta."""

    mean: Array
    deviation: Array

    @classmethod
    def of(cls, dim: int, context_dim: int, find: bool = False, scale: bool = False) -> "ThetaPrior":
        """`scale`: whether the only knob is one. Its shape is in the residual; levels have effects of their own."""
        median, deviation = np.array(list(PRIORS.values())).T
        if find:
            median[[VR, ELL]] = FIND_RESIDUAL, FIND_LENGTH
        elif dim > 1 or scale:
            median[VR] = max(median[VR], SMALL_RESIDUAL / dim**3)
            median[ELL] = min(median[ELL], SMALL_LENGTH * dim**2)
        if not context_dim:  # nothing differs between contexts
            median[[GC, GQ, VC]] = ABSENT
        relevance = -2.0 * math.log(FIND_WIDTH if find else WIDTH)
        own = FIND_WEIGHT_DEVIATION if find else WEIGHT_DEVIATION
        return cls(
            np.concatenate([np.log(median), np.zeros(dim), np.full(context_dim, relevance)]),
            np.concatenate([deviation, np.full(dim, own), np.full(context_dim, WEIGHT_DEVIATION)]),
        )


class Rows(NamedTuple):
    """What is fitted: n rows."""

    points: Array  # [n, d]
    features: Features
    contexts: Array  # [n, d_c]
    y: Array  # [n] mean target of each row's samples
    counts: Array  # [n] samples in each row
    trust: Array  # [n] from LEAST_TRUST to 1: weights of the noise as a scale mixture
    times: Array  # [n] step of the latest sample


NO_ROWS = Rows(NO_CONTEXTS, Features(*[NO_CONTEXTS] * 4), *[NO_CONTEXTS] * 5)


class Weights(NamedTuple):
    """Hyperparameters as the covariance uses them."""

    h: Array  # [H] exp of the first part of theta
    effects: Array  # [p] variance of each effect
    choices: Array  # [p] gq times the same, of choices and switches; 0 of the others
    turning: float  # of the residual: interactions of choices turn around between contexts as their effects do
    embedding: Array  # [e] sqrt(w / ell)
    relevance: Array  # [d_c]
    level: float  # v0
    drifts: tuple[float, float]  # variance of what is about this time alone: of the level, of effects

    @classmethod
    def of(cls, theta: Array, knobs: Knobs, level: float) -> "Weights":
        h, w, relevance = np.split(np.exp(theta), [H, H + knobs.dim])
        effects = knobs.effect_variance * w[knobs.effect_knob] * np.where(knobs.of_few, h[HOT], 1.0)
        choices = np.where(knobs.of_choice, h[GQ] * effects, 0.0)
        turning = float(h[GQ]) * knobs.share_of_choices
        drifts = float(h[VT]), float(h[GT] * (effects @ knobs.usual_squares + h[VR]))
        apart = np.sqrt(w[knobs.embedding_knob] / h[ELL])
        return cls(h, effects, choices, turning, apart, relevance, level, drifts)

    def flat(self, metric: ContextMetric) -> Array:
        """All of them but the level, with those of contexts, in the order of GpFit."""
        root = np.sqrt(self.relevance / max(len(self.relevance), 1))
        return np.concatenate([self.h, [self.turning], self.effects, self.choices, self.embedding, root, *metric])


class Fit(NamedTuple):
    """The posterior of all rows."""

    knobs: Knobs
    rows: Rows  # NO_ROWS where it is compiled
    metric: ContextMetric
    weights: Weights
    z: Array  # [n, d_c] contexts in deviations; NO_CONTEXTS where it is compiled
    half: Array | None  # [n, n] inverse of the Cholesky factor of the covariance of the rows' means; None if compiled
    alpha: Array  # [n]
    noises: Array  # [n] of the rows' means, in units of a^2
    center: float
    scale: float  # a
    unit: float  # of y, as it is fitted
    native: native_gp.NativeFit | None  # the same where compiled code computes
    theta: Array

    @property
    def noise(self) -> float:
        """s2."""
        return float(self.weights.h[S2])

    def targets(self) -> Array:
        """[n] what rows came to, around the center, in units of a."""
        y = self.of_rows("y")
        return (y - self.center) / self.scale if self.native is None else y * (self.unit / self.scale)

    def of_rows(self, name: str) -> Array:
        """[n], or [n, d]: `points`, `counts`, `trust`, or `y` as it is fitted."""
        if self.native is None:
            found: Array = getattr(self.rows, name)
            return found
        return self.native.part(name, len(self.alpha), *([self.knobs.dim] if name == "points" else []))

    def spare(self) -> Array:
        """[n] variance of each row given the others, without its noise."""
        if self.native is not None:
            return native_gp.spare(self.native)
        spare: Array = 1.0 / (self.half**2).sum(axis=0) - self.noises  # type: ignore[operator]
        return spare


class Older(NamedTuple):
    """A fit to some of the same rows."""

    fit: Fit
    kept: NDArray[np.int64]  # [n] where each row was in it, ascending; -1: nowhere

    def is_of(self, theta: Array, metric: ContextMetric) -> bool:
        """Whether it has the very same weights: these arrays are replaced, never changed."""
        known = self.fit.metric
        return self.fit.theta is theta and known.median is metric.median and known.deviation is metric.deviation


class Parts(NamedTuple):
    """The covariance of n rows, in parts [n, n]."""

    kc: Array
    kt: Array
    lin: Array
    choice: Array  # gq lin_choice + turning res
    res: Array
    gap: Array  # sum_e w (e - e')^2 / ell
    sharing: Array  # gs + gc kc + gt kt
    whole: Array  # without noise


def covariance(weights: Weights, knobs: Knobs, rows: Rows, z: Array) -> Parts:
    h, f = weights.h, rows.features
    kc = likeness(z, z)
    kt = np.exp(-np.abs(rows.times[:, None] - rows.times) / RECENT_STEPS)
    lin, choice = (f.effects * weights.effects) @ f.effects.T, (f.effects * weights.choices) @ f.effects.T
    embedded = f.embedding * weights.embedding
    gap = squared_gaps(embedded, embedded)
    res = h[VR] * np.exp(-0.5 * gap)
    choice += weights.turning * res
    sharing = h[GS] + h[GC] * kc + h[GT] * kt
    whole = weights.level + h[VC] * kc + h[VT] * kt + (lin + res) * sharing + choice * kc
    whole += (f.curved * knobs.curved_variance) @ f.curved.T
    return Parts(kc, kt, lin, choice, res, gap, sharing, whole)


class Targets(NamedTuple):
    """What rows came to, around their median, in units of what a is expected to be: squares stay finite."""

    y: Array  # [n]
    center: float
    unit: float
    spread: float

    @classmethod
    def of(cls, raw: Array, trust: Array) -> "Targets":
        ordered, half = np.sort(raw), len(raw) // 2
        center = float(ordered[half] if len(raw) % 2 else 0.5 * (ordered[half - 1] + ordered[half]))  # the median
        spread = _deviation(raw - center, trust)
        unit = GUESS_SHARE * spread if spread > SAME_SHARE * abs(center) else UNTOLD_SHARE * abs(center) + LEAST_UNIT
        return cls((raw - center) / unit, center, unit, spread / unit)

    def level(self, scale: float) -> float:
        """v0, if a was last so many units; 0 if it was never known."""
        return LEVEL_VARIANCE * (1.0 + (min(self.spread / scale, MOST_SPREAD) ** 2 if scale else 0.0))


class Repeats(NamedTuple):
    """Samples that joined a row: they scatter around it by noise, and by what drifted until they came."""

    joined: float
    squares: float  # of their distances from the row, summed, in units of what a is expected to be
    drifts: tuple[float, float]  # variances of a repeat, in units of a^2: of the level, of effects

    @classmethod
    def of(cls, repeats: Array, unit: float, weights: Weights) -> "Repeats":
        """`repeats` [3]: how many, their squared distances, and how much of what drifts has changed until each."""
        joined, squares, moved = repeats.tolist()
        level, effects = weights.drifts
        share = moved / max(joined, 1.0)
        return cls(joined, min(math.sqrt(squares) / unit, MOST_SPREAD) ** 2, (level * share, effects * share))

    def slope(self, s2: float, scale: float) -> Array:
        """[3] of their log density in the logarithms of s2, vt and gt."""
        variance = s2 + sum(self.drifts)
        more = scatter_of(self.joined, self.squares, scale) / variance - self.joined
        return 0.5 * more / variance * np.array([s2, *self.drifts])


class Solved(NamedTuple):
    """A covariance with its noise, and the scale that explains the rows best."""

    half: Array
    alpha: Array
    scale: float
    evidence: float  # log, up to a constant
    noises: Array


def solve(parts: Parts, rows: Rows, y: Array, repeats: Repeats, s2: float, level: float) -> Solved:
    """Of targets y [n] around their center, in units of what a is expected to be."""
    n, mean, variance = len(y), rows.features.mean, s2 + sum(repeats.drifts)
    noises = s2 / (rows.counts * rows.trust)
    matrix = parts.whole.copy()
    matrix.reshape(-1)[:: n + 1] += noises + JITTER * level
    root = np.linalg.cholesky(matrix)
    half = np.linalg.inv(root)
    of_y, of_mean = half.T @ (half @ y), half.T @ (half @ mean)
    big, b = float(y @ of_y) + repeats.squares / variance + GUESS_ROWS, float(y @ of_mean)
    count = n + repeats.joined + GUESS_ROWS
    q = (b + math.sqrt(b * b + 4.0 * big * count)) / (2.0 * big)
    evidence = -0.5 * (big * q * q - 2.0 * b * q + float(mean @ of_mean)) + count * math.log(q)
    evidence -= float(np.log(root.diagonal()).sum()) + 0.5 * repeats.joined * (math.log(variance) + JITTER / variance)
    return Solved(half, q * of_y - of_mean, 1.0 / q, evidence, noises)


def gradient(weights: Weights, knobs: Knobs, rows: Rows, z: Array, parts: Parts, solved: Solved) -> tuple[Array, Array]:
    """Of the log evidence in theta [H + d + d_c]; and of each row, given the others, its squared distance from what is
    expected, the variance of that without noise, and how many others are of situations like its own [3, n]."""
    inverse = solved.half.T @ solved.half
    h, f, (kc, kt, lin, choice, res, gap, sharing, _) = weights.h, rows.features, parts
    rest = np.outer(solved.alpha, solved.alpha) - inverse
    both = rest * (lin + res)
    of_sharing, of_res = rest * sharing, rest * (sharing + weights.turning * kc) * res
    slope = np.zeros(H + knobs.dim + len(weights.relevance))
    slope[GS], slope[GC], slope[GT] = h[GS] * both.sum(), h[GC] * np.vdot(both, kc), h[GT] * np.vdot(both, kt)
    of_kc = rest * kc
    slope[GQ] = np.vdot(of_kc, choice)
    slope[VC], slope[VT] = h[VC] * of_kc.sum(), h[VT] * np.vdot(rest, kt)
    slope[VR], slope[ELL] = of_res.sum(), 0.5 * np.vdot(of_res, gap)
    slope[S2] = rest.diagonal() @ solved.noises
    by_effect = weights.effects * (f.effects * (of_sharing @ f.effects)).sum(axis=0)
    by_effect += weights.choices * (f.effects * (of_kc @ f.effects)).sum(axis=0)
    slope[HOT] = by_effect[knobs.of_few].sum()
    embedded = f.embedding * weights.embedding
    by_axis = (embedded * (of_res @ embedded)).sum(axis=0) - of_res.sum(axis=1) @ embedded**2
    slope[H : H + knobs.dim] = np.bincount(knobs.effect_knob, by_effect, knobs.dim)
    slope[H : H + knobs.dim] += np.bincount(knobs.embedding_knob, by_axis, knobs.dim)
    by_context = of_kc * (h[VC] + h[GC] * (lin + res) + choice)
    slope[H + knobs.dim :] = (z * (by_context @ z)).sum(axis=0) - by_context.sum(axis=1) @ z**2
    whole = 1.0 / inverse.diagonal()
    return 0.5 * slope, np.stack(
        [(solved.alpha * whole) ** 2, np.maximum(whole - solved.noises, 0.0), kc.sum(axis=1) - 1.0]
    )


class Climb(NamedTuple):
    """Hyperparameters on their way up the evidence."""

    theta: Array
    momentum: Array
    squares: Array
    steps: int

    def moved(self, slope: Array) -> "Climb":
        """One step of Adam."""
        steps = self.steps + 1
        momentum = MOMENTUM * self.momentum + (1.0 - MOMENTUM) * slope
        squares = SQUARES_KEPT * self.squares + (1.0 - SQUARES_KEPT) * slope**2
        size = np.sqrt(squares / (1.0 - SQUARES_KEPT**steps)) + SOFT
        theta = self.theta + RATE * momentum / (1.0 - MOMENTUM**steps) / size
        return Climb(theta, momentum, squares, steps)


class Pass(NamedTuple):
    """One look at all rows."""

    factor: int  # which of the noises tried
    scale: float
    evidence: float  # log, up to a constant, with the prior of the noise
    alpha: Array
    noises: Array
    half: Array | None
    slope: Array | None
    odd: Array | None


def numpy_pass(
    knobs: Knobs, rows: Rows, y: Array, repeats: Repeats, z: Array, weights: Weights, factors: Array, priors: Array,
    climbs: bool,
) -> Pass:  # fmt: skip
    """The noise of greatest evidence, of `factors` times s2 with `priors` taken off; with slopes if theta `climbs`."""
    parts = covariance(weights, knobs, rows, z)
    tried = [solve(parts, rows, y, repeats, f * float(weights.h[S2]), weights.level) for f in factors.tolist()]
    evidence = [one.evidence - prior for one, prior in zip(tried, priors.tolist(), strict=True)]
    best = int(np.argmax(evidence))
    found = tried[best]
    slope, odd = gradient(weights, knobs, rows, z, parts, found) if climbs else (None, None)
    return Pass(best, found.scale, evidence[best], found.alpha, found.noises, found.half, slope, odd)


def native_pass(
    knobs: Knobs, rows: Rows, y: Array, repeats: Repeats, z: Array, weights: Weights, factors: Array, priors: Array,
    climbs: bool,
) -> Pass:  # fmt: skip
    """The same, compiled."""
    tables, width = knobs.compiled(), z.shape[1]
    of_contexts = np.zeros((2, width))  # nobody asks for other contexts
    given = {"points": rows.points, **rows.features._asdict(), "counts": rows.counts, "trust": rows.trust}
    flat = weights.flat(ContextMetric(*of_contexts))
    again = repeats.joined, repeats.squares, sum(repeats.drifts)
    made = native_gp.prepared(tables, flat, H + 1, weights.level, again, {**given, "times": rows.times, "y": y}, z)
    slopes = H + knobs.dim + width if climbs else 0
    scale, best, evidence, slope, odd = native_gp.fit(tables, made, factors, priors, slopes)
    return Pass(best, scale, evidence, made.alpha, made.noises, None, slope, odd)


class Ready(NamedTuple):
    """What all looks at the same rows share."""

    targets: Targets
    bounded: Array | None  # [n, d_c] contexts in the metric, without relevance; None where an older fit has them

    @classmethod
    def of(cls, knobs: Knobs, rows: Rows, metric: ContextMetric) -> "Ready":
        compiled = knobs.tables is not None
        bounded = native_gp.bounded(*metric, rows.contexts) if compiled else metric.bounded(rows.contexts)
        return cls(Targets.of(rows.y, rows.trust), bounded)


def scatter_of(joined: float, squares: float, scale: float) -> float:
    """Of so many repeats, in units of a^2; none are closer than rounding."""
    return min(math.sqrt(squares) / scale, MOST_SPREAD) ** 2 + JITTER * joined


def climbed(
    knobs: Knobs,
    rows: Rows,
    metric: ContextMetric,
    climb: Climb,
    prior: ThetaPrior,
    scale: float,
    steps: int,
    repeats: Array,
    ready: Ready | None = None,
) -> tuple[Climb, float, Array | None, NDArray[np.bool_]]:
    """Theta after so many steps; v0 for the fit; if theta moved, how surprising each row is; which are false [n].

    `scale` is the last a; 0 if there was none. `repeats`: see Repeats.
    """
    (targets, bounded), odd, false = ready or Ready.of(knobs, rows, metric), None, np.zeros(len(rows.y), dtype=bool)
    scale /= targets.unit
    look = numpy_pass if knobs.tables is None else native_pass
    for step in range(steps):
        weights = Weights.of(climb.theta, knobs, targets.level(scale))
        z = weighted(bounded, weights.relevance)  # type: ignore[arg-type]  # it is there if theta moves
        factors = NOISE_FACTORS if step == 0 and len(rows.y) < EARLY_SAMPLES else NOISE_FACTORS[:1]
        off = (climb.theta[S2] + np.log(factors) - prior.mean[S2]) / prior.deviation[S2]
        against = 0.5 * off * off
        again = Repeats.of(repeats, targets.unit, weights)
        if step == 0:
            found, rows, false = _judged(look, knobs, rows, targets.y, again, z, weights, factors, against)
        else:
            found = look(knobs, rows, targets.y, again, z, weights, factors, against, True)
        scale, slope, odd = found.scale, found.slope, found.odd
        if found.factor:
            theta, momentum = climb.theta.copy(), climb.momentum.copy()
            theta[S2] += math.log(factors[found.factor])
            momentum[S2] = 0.0
            climb = climb._replace(theta=theta, momentum=momentum)
        slope[[S2, VT, GT]] += again.slope(float(weights.h[S2] * factors[found.factor]), scale)  # type: ignore[index]
        climb = climb.moved(slope - (climb.theta - prior.mean) / prior.deviation**2)  # type: ignore[operator]
    return climb, targets.level(scale), odd, false


def _judged(
    look: Callable[..., Pass],
    knobs: Knobs,
    rows: Rows,
    y: Array,
    repeats: Repeats,
    z: Array,
    weights: Weights,
    factors: Array,
    priors: Array,
) -> tuple[Pass, Rows, NDArray[np.bool_]]:
    """A look with slopes; the rows as it saw them; and which are false: those far from all others, or none [n].

    The evidence decides.
    """
    far = suspects(y, rows.counts, z, rows.points[:, knobs.choices], rows.trust)
    if not far.any():
        return look(knobs, rows, y, repeats, z, weights, factors, priors, True), rows, far
    right, wrong = (rows._replace(trust=np.where(far, trust, rows.trust)) for trust in (1.0, LEAST_TRUST))
    one, two = (look(knobs, seen, y, repeats, z, weights, factors, priors, True) for seen in (right, wrong))
    noise = float(weights.h[S2] * factors[two.factor])
    if two.evidence + if_false(y, far, noise, two.scale) > one.evidence:
        return two, wrong, far
    return one, right, np.zeros_like(far)


def fitted(
    knobs: Knobs,
    rows: Rows,
    metric: ContextMetric,
    theta: Array,
    level: float,
    repeats: Array,
    ready: Ready | None = None,
) -> Fit:
    """The posterior of the rows, in NumPy; what is ready only saves time."""
    targets, weights = Targets.of(rows.y, rows.trust), Weights.of(theta, knobs, level)  # trust may be new
    bounded = metric.bounded(rows.contexts) if ready is None or ready.bounded is None else ready.bounded
    z, again = weighted(bounded, weights.relevance), Repeats.of(repeats, targets.unit, weights)
    found = numpy_pass(knobs, rows, targets.y, again, z, weights, NOISE_FACTORS[:1], np.zeros(1), False)
    parts = (found.half, found.alpha, found.noises, targets.center, found.scale * targets.unit)
    return Fit(knobs, rows, metric, weights, z, *parts, targets.unit, None, theta)


def evidence(knobs: Knobs, rows: Rows, theta: Array, level: float, ready: Ready) -> float:
    """The log evidence of the rows' targets, up to a constant, by these hyperparameters."""
    weights, look = Weights.of(theta, knobs, level), numpy_pass if knobs.tables is None else native_pass
    none = Repeats.of(np.zeros(3), 1.0, weights)
    z = weighted(ready.bounded, weights.relevance)  # type: ignore[arg-type]  # it was made with all there is
    return look(knobs, rows, ready.targets.y, none, z, weights, NOISE_FACTORS[:1], np.zeros(1), False).evidence


def taken(
    knobs: Knobs,
    stored: StoredRows,
    metric: ContextMetric,
    theta: Array,
    level: float,
    by_loss: Array,
    repeats: Array,
    older: Older | None = None,
    spare: Array | None = None,
    bounded: Array | None = None,
) -> Fit:
    """The same of stored rows, compiled; y = losses @ by_loss. An older one only saves time: it gives the same bits.

    `spare`: memory of a fit that nobody needs any more. `bounded`: see Ready.
    """
    tables, n, width = knobs.compiled(), stored.count, len(metric.median)
    if older is not None and older.fit.native is not None and older.is_of(theta, metric):
        was, kept, weights = older.fit.native, older.kept, older.fit.weights
        weights = weights if weights.level == level else weights._replace(level=level)
        flat = was.block[: was.places.at["points"] // 8]
    else:
        was, kept, weights = None, None, Weights.of(theta, knobs, level)
        flat = weights.flat(metric)
    again = Repeats.of(repeats, 1.0, weights)
    of_repeats = float(repeats[0]), float(repeats[1]), sum(again.drifts)  # its own unit is not known yet
    made = native_gp.blank_fit(tables, n, flat, H + 1, width, level, of_repeats, spare)
    center, unit, _, scale = native_gp.take(tables, made, stored.table, stored.columns, by_loss, was, kept, bounded)
    parts = (None, made.alpha, made.noises, center, scale * unit, unit, made, theta)
    return Fit(knobs, NO_ROWS, metric, weights, NO_CONTEXTS, *parts)


def _deviation(y: Array, weights: Array) -> float:
    """Of y [n] with any finite numbers up to LARGEST."""
    size, total = max(float(y.max()), -float(y.min()), 1e-300), float(weights.sum())
    y = y / size
    y -= float(weights @ y) / total
    return size * math.sqrt(float(weights @ y**2) / total)
