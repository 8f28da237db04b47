"""FleetPrior: what tuners of a fleet have in common, as a start for one that has no samples (empirical Bayes).

All are robust averages over tuners with enough samples. What has units, the curvature and the level of the metric,
is shared only where tuners agree about it; the rest has none: where optima lie, which knobs matter, how noisy answers
are, how much each expert is worth. How far tuners disagree becomes the variance around it, so that a fleet of tuners
that are not alike tells a new one little.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields

import numpy as np

from rasp_tuner.core.numerics import Array
from rasp_tuner.fleet.device import Device, host
from rasp_tuner.fleet.engine import FleetEngine
from rasp_tuner.fleet.inputs import Rows
from rasp_tuner.fleet.records import GIVEN, LOCATED
from rasp_tuner.fleet.tuners import Tuners

LEAST_TUNERS, LEAST_SAMPLES = 8, 10  # that have learned, and what they have learned from
MOST_TUNERS = 512  # that are looked at
LOCATION_FLOOR, LOCATION_MOST = 0.01, 0.5  # variance of optima around the usual one, in u
LOCATION_KNOWN = 0.1  # mean variance below which a new tuner begins there
ALIKE_LOGS = 0.7  # deviation of log(curvature) up to which tuners are of one kind
MOST_TRACKED = 20.0  # samples that a shared shape counts as
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
    shape: Array  # [d]
    location: Array  # [d]
    location_variance: Array  # [d]
    scores: Array  # [E]
    noises: Array  # [E, NOISES]

    @classmethod
    def of(cls, arrays: Mapping[str, Array]) -> "FleetPrior":
        """What `vars` gave."""
        return cls(**{field.name: arrays[field.name] for field in fields(cls)})


def learn_prior(engine: FleetEngine, tuners: Tuners, device: Device) -> FleetPrior:
    """What the tuners have in common now."""
    learned = host(tuners.records.learned)
    known = np.flatnonzero((host(tuners.objective.seen) >= LEAST_SAMPLES) & (learned >= LEAST_SAMPLES))
    rows = (
        known[np.unique(np.linspace(0, len(known) - 1, min(len(known), MOST_TUNERS)).astype(int))]
        if len(known)
        else known
    )
    enough = len(rows) >= LEAST_TUNERS
    part = tuners.take(device.index(rows if enough else np.arange(1)))
    state = {name: host(array) for name, array in part.state.items()}
    contexts = part.state.origin + part.state.previous
    u = 2.0 * host(engine.kernel.best(part.state, engine.kernel.believe(part.state, contexts)) - engine.default)
    location, spread = _centre(u)
    variance = spread**2
    location = location * np.clip(1.0 - variance / len(u) / np.maximum(location**2, 1e-12), 0.0, 1.0)
    curvature, level, level_variance = _units(part, state)
    return FleetPrior(
        samples=np.array(float(learned.sum())),
        known=np.array(float(enough)),
        curvature=np.array(curvature),
        level=np.array(level),
        level_variance=np.array(level_variance),
        largest=np.array(float(np.median(state["largest"]))),
        tracked=np.array(min(float(np.median(state["tracked"])), MOST_TRACKED)),
        shape=_shape(state["shape"]),
        location=location,
        location_variance=np.clip(variance, LOCATION_FLOOR, LOCATION_MOST),
        scores=_scores(state["scores"]),
        noises=_scores(state["noises"]),
    )


def guide(prior: FleetPrior, tuners: Tuners, rows: Rows, device: Device) -> None:
    """Give tuners without samples this start."""
    at, state = device.index(rows), tuners.state
    located = float(prior.location_variance.mean()) < LOCATION_KNOWN
    names = ["shape", "location", "location_variance", "scores", "noises"]
    if prior.curvature > 0.0:
        names += ["curvature", "level", "level_variance", "largest", "tracked"]
    for name in names:
        getattr(state, name)[at] = device.put(getattr(prior, name))
    tuners.records.guided[at] = LOCATED if located else GIVEN


def _units(part: Tuners, state: Mapping[str, Array]) -> tuple[float, float, float]:
    """Curvature, least y and its variance in units of the curvature squared, where tuners agree; else zeros."""
    none = (0.0, 0.0, 0.0)
    if len(part.objective.metrics) > 1:
        return none  # each tuner measures them in deviations of its own
    log = host(part.objective.weights)[:, -1] > 0.0
    alike = (log == (log.mean() > 0.5)) & (state["curvature"] > 0.0)
    if alike.sum() < LEAST_TUNERS or (log.mean() > 0.5 and log.any() and not log.all()):
        return none
    logs, spread = _centre(np.log(state["curvature"][alike]))
    if spread > ALIKE_LOGS:
        return none
    curvature = float(np.exp(logs))
    origin = (state["first"] * state["weights"]).sum(axis=1)
    level, apart = _centre((origin + state["level"])[alike])
    own = float(np.median(state["level_variance"][alike]))
    return curvature, float(level), max(own, float(apart / curvature) ** 2)


def _centre(values: Array) -> tuple[Array, Array]:
    """Mean and deviation over tuners [n, ...], where the outer tenth counts as if it lay at the edge of the others."""
    low, high = np.quantile(values, [0.05, 0.95], axis=0)
    near = np.clip(values, low, high)
    return near.mean(axis=0), near.std(axis=0)


def _shape(shapes: Array) -> Array:
    shape = np.median(shapes, axis=0)
    usual: Array = shape / shape.mean()
    return usual


def _scores(scores: Array) -> Array:
    middle = np.median(np.maximum(scores, LEAST_SCORE), axis=0)
    best: Array = middle - middle.max(axis=-1, keepdims=True)
    return best
