"""FleetPrior: what tuners of a fleet have in common, as a start for one that has no samples (empirical Bayes).

All are robust averages over tuners with enough samples. What has units, the curvature and the level of the metric,
is shared only where tuners agree about it; the rest has none: where optima lie, how noisy answers are, how much each
expert is worth. How far tuners disagree becomes the variance around it, so that a fleet of tuners that are not alike
tells a new one little.

A fleet in parts learns the same. Each part gives a summary with one row for each tuner, and summaries of different
tuners can be combined in any order. Where there are too many tuners, those that are looked at are a function of their
numbers: the same ones, whatever the parts are.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields

import numpy as np

from rasp_tuner.base.numerics import Array
from rasp_tuner.base.state_checks import broken, checked
from rasp_tuner.engine.kernel.draws import DrawKeys, draws
from rasp_tuner.engine.kernel.state import FIELDS, LARGEST_LEVEL_VARIANCE, LEAST_UNIT, Dims, Places, sizes
from rasp_tuner.fleet.records import GIVEN, LOCATED
from rasp_tuner.fleet.tuners import Tuners

LEAST_TUNERS, LEAST_SAMPLES = 8, 10  # that have learned, and what they have learned from
MOST_PRIOR_TUNERS = 512  # that are looked at
LOCATION_FLOOR, LOCATION_MOST = 0.01, 0.5  # variance of optima around the usual one, in u
LOCATION_KNOWN = 0.1  # mean variance below which a new tuner begins there
ALIKE_LOGS = 0.7  # deviation of log(curvature) up to which tuners are of one kind
SUMMARISED = ("level_variance", "largest", "tracked", "scores", "noises")  # of a state, as they are
LEAST_SCORE = -5.0  # nats against an expert, or a noise, that a new tuner begins with


@dataclass(frozen=True)
class FleetPrior:
    """In NumPy; y is the target that tuners minimise."""

    samples: Array  # [] that the fleet had when this was learned
    known: Array  # [] 1 if enough tuners had learned enough
    curvature: Array  # [] 0 where tuners do not agree
    level: Array  # [] least y, not relative to anything
    level_variance: Array  # []
    largest: Array  # []
    tracked: Array  # []
    location: Array  # [d]
    location_variance: Array  # [d]
    scores: Array  # [E]
    noises: Array  # [E, NOISES]

    @classmethod
    def of(cls, arrays: Mapping[str, Array], dims: Dims) -> "FleetPrior":
        """What `vars` gave, checked."""
        own = {"samples": FIELDS["steps"], "known": FIELDS["fitted"]}
        rules = {field.name: own.get(field.name) or FIELDS[field.name] for field in fields(cls)}
        prior = cls(**checked(arrays, rules, sizes(dims)))
        if 0.0 < prior.curvature < LEAST_UNIT:
            raise broken(arrays, "curvature", f"be 0 or at least {LEAST_UNIT:g}", float(prior.curvature))
        return prior


@dataclass(frozen=True)
class Summary:
    """What some tuners know, in NumPy: a row for each of n with enough samples, MOST_PRIOR_TUNERS of them at most."""

    samples: Array  # [] of all the tuners, with those that have no row
    number: Array  # [n] of the tuner in its fleet
    optimum: Array  # [n, d] u
    log: Array  # [n] 1 if its metric is on a log scale
    curvature: Array  # [n] 0 where it has no units that tuners share
    level: Array  # [n] least y, not relative to anything
    level_variance: Array  # [n]
    largest: Array  # [n]
    tracked: Array  # [n]
    scores: Array  # [n, E]
    noises: Array  # [n, E, NOISES]

    def take(self, rows: Places) -> "Summary":
        """That of some of its rows."""
        return Summary(self.samples, **{name: array[rows] for name, array in vars(self).items() if name != "samples"})


def summarise(tuners: Tuners, default: Array) -> Summary:
    """What the tuners know now; the default [d]."""
    learned, numbers = tuners.records.learned, tuners.records.number
    known = np.flatnonzero((tuners.objective.seen >= LEAST_SAMPLES) & (learned >= LEAST_SAMPLES))
    rows = known[_looked_at(numbers[known])]
    part = tuners.some(rows)
    state = {name: part.known(name) for name in ("first", "weights", "curvature", "level", *SUMMARISED)}
    optimum = np.zeros((len(rows), len(default)))
    if len(rows):
        optimum = 2.0 * (part.believe(part.known("origin") + part.known("previous")).best() - default)
    alone = len(part.objective.metrics) > 1  # then each tuner measures them in deviations of its own
    return Summary(
        samples=np.array(float(learned.sum())),
        number=numbers[rows],
        optimum=optimum,
        log=np.where(part.objective.weights[:, -1] > 0.0, 1.0, 0.0),
        curvature=np.where(alone, 0.0, state["curvature"]),
        level=(state["first"] * state["weights"]).sum(axis=1) + state["level"],
        **{name: state[name] for name in SUMMARISED},
    )


def combine(summaries: Sequence[Summary]) -> FleetPrior:
    """What the tuners of these summaries have in common; their order does not matter."""
    names = [field.name for field in fields(Summary) if field.name != "samples"]
    rows = {name: np.concatenate([getattr(one, name) for one in summaries]) for name in names}
    every = Summary(np.array(sum(float(one.samples) for one in summaries)), **rows)
    some = every.take(np.argsort(every.number))
    some = some.take(_looked_at(some.number))
    if len(some.number) < LEAST_TUNERS:
        return _unknown(some)
    location, spread = _centre(some.optimum)
    variance = spread**2
    location = location * np.clip(1.0 - variance / len(some.number) / np.maximum(location**2, 1e-12), 0.0, 1.0)
    curvature, level, level_variance = _units(some)
    return FleetPrior(
        samples=some.samples,
        known=np.array(1.0),
        curvature=np.array(curvature),
        level=np.array(level),
        level_variance=np.array(level_variance),
        largest=np.array(float(np.median(some.largest))),
        tracked=np.array(float(np.median(some.tracked))),
        location=location,
        location_variance=np.clip(variance, LOCATION_FLOOR, LOCATION_MOST),
        scores=_scores(some.scores),
        noises=_scores(some.noises),
    )


def guide(prior: FleetPrior, tuners: Tuners, rows: Places) -> None:
    """Give tuners without samples this start."""
    located = float(prior.location_variance.mean()) < LOCATION_KNOWN
    names = ["location", "location_variance", "scores", "noises"]
    if prior.curvature > 0.0:
        names += ["curvature", "level", "level_variance", "largest", "tracked"]
    for name in names:
        tuners.batch.write(name, tuners.rows[rows], getattr(prior, name))
    tuners.records.guided[rows] = LOCATED if located else GIVEN


def _unknown(some: Summary) -> FleetPrior:
    """Too few tuners have learned enough."""
    none, d = np.array(0.0), some.optimum.shape[1]
    scores, noises = (np.zeros(array.shape[1:]) for array in (some.scores, some.noises))
    located = np.zeros(d), np.full(d, LOCATION_MOST)
    return FleetPrior(some.samples, none, none, none, none, none, none, *located, scores, noises)


def _looked_at(numbers: Array) -> Places:
    """Positions, in order, of the tuners with these numbers that are looked at: of any, those that draw the least.

    What is chosen among the chosen of parts is then what is chosen among all.
    """
    drawn = draws(DrawKeys(0, numbers, np.zeros_like(numbers)), 1)[:, 0]
    return np.sort(np.argsort(drawn, kind="stable")[:MOST_PRIOR_TUNERS])


def _units(some: Summary) -> tuple[float, float, float]:
    """Curvature, least y and its variance in units of the curvature squared, where tuners agree; else zeros."""
    none = (0.0, 0.0, 0.0)
    mostly_log = some.log.mean() > 0.5
    alike = ((some.log > 0.0) == mostly_log) & (some.curvature > 0.0)
    if alike.sum() < LEAST_TUNERS or (mostly_log and not some.log.all()):
        return none
    logs, spread = _centre(np.log(some.curvature[alike]))
    if spread > ALIKE_LOGS:
        return none
    curvature = float(np.exp(logs))
    level, apart = _centre(some.level[alike])
    own = float(np.median(some.level_variance[alike]))
    return curvature, float(level), min(max(own, float(apart / curvature) ** 2), LARGEST_LEVEL_VARIANCE)


def _centre(values: Array) -> tuple[Array, Array]:
    """Mean and deviation over tuners [n, ...], where the outer tenth counts as if it lay at the edge of the others."""
    low, high = np.quantile(values, [0.05, 0.95], axis=0)
    near = np.clip(values, low, high)
    return near.mean(axis=0), near.std(axis=0)


def _scores(scores: Array) -> Array:
    middle = np.median(np.maximum(scores, LEAST_SCORE), axis=0)
    best: Array = middle - middle.max(axis=-1, keepdims=True)
    return best
