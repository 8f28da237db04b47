"""A small fleet, its worlds, and a generator that draws what a fleet draws."""

import numpy as np

from rasp_tuner import Float, Tuner, presets
from rasp_tuner.engine.kernel.draws import DrawKeys, draws
from rasp_tuner.fleet import Fleet

SPACE = {  # all digits: a fleet and a tuner may round halves to different sides
    "a": Float(0.0, 1.0, digits=12),
    "b": Float(-5.0, 5.0, digits=12),
    "c": Float(0.01, 100.0, log=True, digits=12),
}
DEFAULT = {"a": 0.4, "b": 0.0, "c": 1.0}
METRICS = {"ms": "min"}
KNOBS = len(SPACE)
DRAWS = KNOBS + 7 + 12 * KNOBS


def fleet(size=4, **changes):
    settings = {"space": SPACE, "metrics": METRICS, "context": 2, "default": DEFAULT, "size": size, "share": False}
    return Fleet(**{**settings, **changes})


def tuner(**changes):
    kind = presets.default(quadratic=True)  # as those of a fleet are
    settings = {"space": SPACE, "metrics": METRICS, "context": 2, "default": DEFAULT, "preset": kind}
    return Tuner(**{**settings, **changes})


class FleetDraws:
    """In the place of a tuner's generator: what a fleet with this seed draws for its tuner `number` at an ask."""

    def __init__(self, number, ask, seed=0):
        self.draws = draws(DrawKeys(seed, np.array([number]), np.array([ask])), DRAWS)[0]
        self.used = 0

    def random(self, count=None, out=None):
        out = np.empty(count) if out is None else out
        out[:] = self.draws[self.used : self.used + len(out)]
        self.used += len(out)
        return out

    def integers(self, knobs):
        return int(self.draws[0] * knobs)

    def choice(self, signs):
        return signs[int(self.draws[1] >= 0.5)]


class Worlds:
    """A noisy bowl for each tuner; with `levels`, times what the context says.

    Optima lie around a common point with a deviation of their own; or anywhere, where that is None.
    """

    def __init__(self, size, seed=0, own=0.2, levels=False, noise=0.05):
        self.rng = np.random.default_rng(seed)
        anywhere = self.rng.random((size, KNOBS))
        normal = self.rng.normal(size=(size, KNOBS))
        self.optima = anywhere if own is None else np.clip(0.6 + own * normal, 0.05, 0.95)
        self.levels, self.noise = levels, noise

    def contexts(self, rows=slice(None)):
        return self.rng.normal(size=(len(self.optima[rows]), 2))

    def regrets(self, points, rows=slice(None)):
        return ((points - self.optima[rows]) ** 2).sum(axis=1)

    def metrics(self, points, contexts, rows=slice(None)):
        y = 10.0 + 5.0 * self.regrets(points, rows) + self.noise * self.rng.normal(size=len(points))
        return {"ms": y * np.exp(3.0 * contexts[:, 0]) if self.levels else y}


def teach(taught, worlds, steps, rows=None, failures=0.0):
    """Have a fleet take so many steps; the points [steps, n, d] that it tried."""
    which = slice(None) if rows is None else rows
    tried = []
    for _ in range(steps):
        contexts = worlds.contexts(which)
        points = taught.ask(contexts, rows).points
        failed = worlds.rng.random(len(points)) < failures
        taught.tell(worlds.metrics(points, contexts, which), rows, failed=failed)
        tried.append(points)
    return np.array(tried)
