"""ContextScales: the metric of a stream of contexts (context_metric.py), made of a bounded sample of it.

The sample is every context at first; when it is full, every second one of it goes, and from then on twice as few come
in. The latest contexts count besides, so that a change of scale is followed after a few samples. What lies outside of
what was seen three times counts as if it lay there (context_bounds.py): one absurd value moves nothing.

symbol    shape     meaning
n, m      scalar    contexts in the sample; latest ones
"""

from collections.abc import Mapping

import numpy as np

from rasp_tuner.base.numerics import LARGEST, Array
from rasp_tuner.base.state_checks import MOST_SAMPLES, Field, broken, checked, under
from rasp_tuner.base.trusted_range import SHORT
from rasp_tuner.contexts.context_bounds import ContextBounds
from rasp_tuner.contexts.context_metric import ContextMetric

MOST_KEPT, MOST_LATEST = 128, 16  # contexts in the sample, and the latest ones
MOST_NUMBERS = 4096  # in the sample: of long contexts fewer are kept, down to LEAST_KEPT
LEAST_KEPT = 32
ALL = np.ones(1, dtype=bool)  # the one stream that there is

FIELDS = {
    "kept": Field(("n", "c"), -LARGEST, LARGEST),
    "latest": Field(("m", "c"), -LARGEST, LARGEST),
    "clock": Field((2,), (0.0, 1.0), MOST_SAMPLES, whole=True),  # contexts seen; one in so many is kept
}


class ContextScales:
    """Of contexts with so many dimensions."""

    def __init__(self, dim: int) -> None:
        self._most = max(min(MOST_KEPT, MOST_NUMBERS // max(dim, 1)), LEAST_KEPT)
        self.dim = dim
        self.bounds = ContextBounds(dim, 1)
        self.kept, self.latest = np.zeros((0, dim)), np.zeros((0, dim))
        self.seen, self.every = 0, 1

    def observe(self, context: Array) -> None:
        """Take in the next context [d_c]."""
        if self.dim > SHORT or not self.bounds.usual(context):
            self.bounds.observe(context[None], ALL)
        self.latest = np.concatenate([self.latest, context[None]])[-MOST_LATEST:]
        if self.seen % self.every == 0:
            self.kept = np.concatenate([self.kept, context[None]])
        if len(self.kept) > self._most:
            self.kept, self.every = self.kept[::2].copy(), 2 * self.every
        self.seen += 1

    def sample(self) -> Array:
        """[n, d_c] contexts that scales are made of, within bounds; something must have been seen."""
        contexts = self.kept if self.every == 1 else np.concatenate([self.kept, self.latest])
        return self.bounds.clipped(contexts)

    def metric(self) -> ContextMetric:
        """As of now; something must have been seen."""
        return ContextMetric.of(self.sample(), float(self.seen))

    def proven(self, context: Array) -> bool:
        """Whether a context [d_c] lies where others did; all do while that is not known."""
        return not self.bounds.outside(context[None])[0]

    def state(self) -> dict[str, Array]:
        own = {
            "kept": self.kept.copy(),
            "latest": self.latest.copy(),
            "clock": np.array([self.seen, self.every], float),
        }
        return {**own, **{f"bounds/{name}": array.copy() for name, array in self.bounds.state().items()}}

    def restore(self, state: Mapping[str, Array]) -> None:
        arrays = checked(state, FIELDS, {"n": range(self._most + 1), "m": range(MOST_LATEST + 1), "c": self.dim})
        self.bounds.restore(under("bounds/", state))
        seen, every = (int(number) for number in arrays["clock"])
        if bool(seen) != bool(len(arrays["kept"])) or bool(seen) != bool(len(arrays["latest"])):
            raise broken(state, "kept", "hold a context once one was seen", len(arrays["kept"]))
        self.kept, self.latest, self.seen, self.every = arrays["kept"], arrays["latest"], seen, every
