"""Which regime a context belongs to, found online from contexts alone.

symbol   shape      meaning
centres  [n, d_c]   mean context of each regime
counts   [n]        contexts in it
within   [d_c]      sum of squared deviations from the centre, over all regimes
wobble   [d_c]      half the usual squared change from one context to the next
D        [n]        squared distance to each centre, in units of the usual one, averaged over coordinates

Inside a regime D is about 1, with variance 2 / d_c if coordinates are independent. So the radius needs no setting:
units cancel, many coordinates tell near regimes apart, noise stays one regime and a regime that drifts widens.
"""

from collections import deque

import numpy as np

from rasp_tuner.base.numerics import Array
from rasp_tuner.contexts.online_means import RunningCentres

REACH_DEVIATIONS = 6.0  # of D above 1: a context is new when it is this far from all centres
MERGE_SHARE = 0.7  # of the reach: centres that turn out to be this near become one
MAX_INDEPENDENT_DIMS = 16  # coordinates beyond this many count as correlated
MIN_DEVIATIONS = 4  # seen before a second regime may open
RECENT_CHANGES = 64  # from which the wobble is estimated
USUAL_SHARE = 0.9  # of those changes; the largest may be switches
MIN_VARIANCE_SHARE = 0.01  # of the variance over all contexts: a lower limit, for contexts that repeat exactly
CONSTANT_TOLERANCE = 1e-12  # relative variance of a coordinate that does not move, up to rounding
MAX_REGIMES = 32  # then a new context joins the nearest one


class ContextRegimes:
    """Centres that contexts are added to; a far context opens a regime, and near ones are merged.

    The usual deviation is that inside regimes, and at least the wobble: a symbol that changes at random at every step
    tells nothing, even if it was rare at first and got a regime of its own.
    """

    def __init__(self, dim: int) -> None:
        self._regimes = RunningCentres(dim)
        self._within, self._deviations = np.zeros(dim), 0
        self._changes: deque[Array] = deque(maxlen=RECENT_CHANGES)
        self._wobble = np.zeros(dim)
        self._latest: Array | None = None
        self._seen, self._mean, self._squares = 0, np.zeros(dim), np.zeros(dim)  # squared deviations from the mean

    def __len__(self) -> int:
        return len(self._regimes)

    @property
    def centres(self) -> Array:
        return self._regimes.centres

    @property
    def counts(self) -> Array:
        return self._regimes.counts

    def nearest(self, context: Array) -> tuple[int, bool]:
        """The nearest regime, and whether the context is too far from it; there must be one already."""
        units, reach = self._units(context)
        spare = self.counts / (self.counts + 1.0)  # a centre of few contexts has a deviation of its own
        away = spare * ((self.centres - context) ** 2 @ units)
        index = int(away.argmin())
        far = bool(away[index] > reach)
        return index, far and self._deviations >= MIN_DEVIATIONS and len(self) < MAX_REGIMES

    def add(self, context: Array) -> tuple[int, int | None]:
        """The regime that takes the context in, the last one if it is new; and one that was merged into another.

        The index is valid before the merged regime is removed from a list kept beside this one.
        """
        index, new = self.nearest(context) if len(self) else (0, True)
        if new:
            index = self._regimes.open(context)
        else:
            count = self.counts[index]
            self._within += (context - self.centres[index]) ** 2 * count / (count + 1.0)
            self._deviations += 1
            self._regimes.add(index, context)
        self._observe(context)
        return index, self._merge(index)

    def _units(self, context: Array) -> tuple[Array, float]:
        """Weights [d_c] that turn squared differences into D, and the reach; as if this context had come."""
        apart = context - self._mean
        variance = (self._squares + apart**2 * self._seen / (self._seen + 1)) / (self._seen + 1)
        moves = variance > CONSTANT_TOLERANCE * self._mean**2
        dim = max(int(moves.sum()), 1)
        n = max(self._deviations, MIN_DEVIATIONS)
        usual = np.maximum(np.maximum(self._within / n, self._wobble), MIN_VARIANCE_SHARE * variance)
        weights = np.divide(1.0 / dim, usual, out=np.zeros(len(usual)), where=moves)
        few = n / (n - 2.0)  # mean of 1 / (estimated variance), if the true one is 1
        return weights, few * (1.0 + REACH_DEVIATIONS * float(np.sqrt(2.0 / min(dim, MAX_INDEPENDENT_DIMS))))

    def _observe(self, context: Array) -> None:
        if self._latest is not None:
            self._changes.append(0.5 * (context - self._latest) ** 2)
            kept = max(int(USUAL_SHARE * len(self._changes)), 1)
            self._wobble = np.sort(np.array(self._changes), axis=0)[:kept].mean(axis=0)
        self._latest = context
        apart = context - self._mean
        self._seen += 1
        self._mean += apart / self._seen
        self._squares += apart * (context - self._mean)

    def _merge(self, index: int) -> int | None:
        """Fold this regime and its nearest into the larger one, if they are near; the one that is gone."""
        units, reach = self._units(self.centres[index])
        away = (self.centres - self.centres[index]) ** 2 @ units
        away[index] = np.inf
        other = int(away.argmin())
        if away[other] >= MERGE_SHARE * reach:
            return None
        gone, kept = sorted((index, other), key=lambda i: float(self.counts[i]))
        self._regimes.merge(kept, gone)
        return gone
