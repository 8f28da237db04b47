"""RegimeTimeline: which situations a stream of contexts has met, for people to see. No engine uses it.

A regime is a running mean of contexts. A context belongs to the nearest regime, unless it is farther than
`NEW_REGIME_DISTANCE` from all of them: then it opens a new one, up to twelve; after that it is a stray, shown with the
nearest one. The distance is the mean over dimensions
of the squared difference divided by the dimension's variance; a dimension whose steps are as large as its whole spread
has little weight. Regimes that move close together are merged, and the older label stays. The result depends only on
the sequence of contexts.

Noise alone opens regimes, too, as long as there is nothing larger. So a situation is one regime or several: those whose
squared distance is at most `reach` times the noise, or that are linked by such. The noise is half the usual squared
change from one context to the next: the mean of the lower nine tenths of the latest 64. Regimes that alternate change
as much as they differ, so they are one situation. The reach is 16 in one dimension, and less in several, where noise
averages out. Situations that were apart become one only well within it.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from rasp_tuner.core.distance import squared_distances
from rasp_tuner.core.numerics import Array
from rasp_tuner.core.running_centres import RunningCentres
from rasp_tuner.core.state_checks import MOST_SAMPLES, Field, checked

MAX_REGIMES = 12
NEW_REGIME_DISTANCE = 0.5  # squared; a context farther than this opens a new regime
FAR_DISTANCE = 8.0  # squared; a context farther than this opens a regime even if there are twelve: two of them merge
MERGE_DISTANCE = 0.2  # squared; regimes closer than this are merged
MIN_WEIGHT = 0.05  # of a dimension of pure noise, relative to one that stays constant within regimes
RESCALE_EVERY_STEPS = 16  # after the first MERGE_EVERY_STEPS steps; before, at every step
MERGE_EVERY_STEPS = 64
MAX_SEGMENTS = 500  # of the timeline
RECENT_CHANGES = 64  # from which the noise of contexts is estimated
USUAL_SHARE = 0.9  # of those changes; the largest may be switches
REACH = 10.6  # standard deviations of a squared distance by noise: in one dimension four of a distance
JOIN_SHARE = 0.5  # of the reach, within which situations become one that were apart before
MAX_INDEPENDENT_DIMS = 16  # more count as correlated
MAX_NOISE_DIMS = 32  # looked at, of long contexts
KEPT_SEGMENTS = 400  # once there are more: the shortest are joined to their predecessors, many at a time


class RegimeTimeline:
    """Labels 0, 1, ... in order of appearance, and their timeline."""

    def __init__(self, dim: int) -> None:
        self.dim = dim
        self.steps = 0
        self.labels: list[int] = []
        self.segments: list[list[int]] = []  # [regime, from, to], both steps included
        self.merged: list[tuple[int, int]] = []  # labels (gone, kept) that the latest context made one
        self.situations: dict[int, int] = {}  # label -> the oldest label of its situation
        self.joined: list[tuple[int, int]] = []  # situations (gone, kept) that the latest context made one
        self.stray = False  # whether the latest context is of none of them: there is room for no more
        self._opened = 0
        self._regimes = RunningCentres(dim)
        self._moments = np.zeros((4, dim))  # mean, squares around it, half squared changes, latest
        self._scale = np.zeros(dim)
        self._spread = False  # whether any dimension has a weight yet
        self._looked_at = np.linspace(0, dim - 1, min(dim, MAX_NOISE_DIMS)).astype(int)
        self._changes = np.zeros((RECENT_CHANGES, len(self._looked_at)))  # half squared changes, of the latest steps

    def add(self, context: Array) -> int:
        """The label of the next context [d_c]."""
        self.merged, self.joined, opened = [], [], self._opened
        self._observe(context)
        if self.steps < MERGE_EVERY_STEPS or self.steps % RESCALE_EVERY_STEPS == 0 or not self._spread:
            self._rescale()
        gaps = self.squared_distances(context[None])[0]
        nearest = int(gaps.argmin()) if len(gaps) else -1
        if len(self.labels) >= MAX_REGIMES and gaps[nearest] > FAR_DISTANCE:
            self._merge_nearest(FAR_DISTANCE)  # makes room: noise may have opened all of them
        if nearest < 0 or (gaps[nearest] > NEW_REGIME_DISTANCE and len(self.labels) < MAX_REGIMES):
            nearest = self._regimes.open(context)
            self.labels.append(self._opened)
            self._opened += 1
            self.stray = False
        else:
            self.stray = bool(gaps[nearest] > NEW_REGIME_DISTANCE)
            if not self.stray:  # it would make a mixture of the regime, in which nobody knows what was seen before
                self._regimes.add(nearest, context)
        label = self.labels[nearest]
        if self.segments and self.segments[-1][0] == label:
            self.segments[-1][2] = self.steps
        else:
            self.segments.append([label, self.steps, self.steps])
            if len(self.segments) > MAX_SEGMENTS:
                self._drop_shortest_segments()
        self.steps += 1
        if self.steps % MERGE_EVERY_STEPS == 0 or self.steps & (self.steps - 1) == 0:
            self._merge_close_regimes()
            self._find_situations()
        elif self._opened != opened:
            self._find_situations()
        return self.segments[-1][0]

    def situation_segments(self) -> list[list[int]]:
        """The timeline of situations: [situation, from, to]."""
        return _renamed(self.segments, self.situations)

    def nearest_situations(self, contexts: Array) -> list[int]:
        """The situation of the nearest regime for each context [n, d_c]."""
        if not self.labels:
            return [0] * len(contexts)
        nearest = self.squared_distances(contexts).argmin(axis=1).tolist()
        return [self.situations[self.labels[i]] for i in nearest]

    def known_situation(self, context: Array) -> int | None:
        """The situation that a context [d_c] belongs to; None if it is far from all regimes."""
        gaps = self.squared_distances(context[None])[0]
        nearest = int(gaps.argmin()) if len(gaps) else -1
        return self.situations[self.labels[nearest]] if nearest >= 0 and gaps[nearest] <= NEW_REGIME_DISTANCE else None

    def squared_distances(self, contexts: Array) -> Array:
        """[n, regimes] squared distances."""
        return self._regimes.squared_distances(contexts, self._scale)

    def _rescale(self) -> None:
        """Update the weight of a squared difference in each dimension."""
        _, squares, changes, _ = self._moments
        variance = squares / max(self.steps, 1)
        moving = variance > 1e-200
        stability = 1.0 - np.minimum(changes / max(self.steps - 1, 1) / np.where(moving, variance, 1.0), 1.0)
        weights = np.where(moving, np.maximum(stability, MIN_WEIGHT), 0.0)
        self._scale = weights / np.where(moving, variance, 1.0) / max(float(weights.sum()), MIN_WEIGHT)
        self._spread = bool(moving.any())

    def to_json(self) -> dict[str, Any]:
        return {
            "steps": self.steps,
            "opened": self._opened,
            "labels": list(self.labels),
            "segments": [list(segment) for segment in self.segments],
            "situations": list(self.situations.items()),
        }

    def state(self) -> dict[str, Array]:
        regimes = {"centres": self._regimes.centres, "counts": self._regimes.counts}
        arrays = {**regimes, "moments": self._moments, "scale": self._scale, "changes": self._changes}
        return {name: array.copy() for name, array in arrays.items()}

    def restore(self, data: Mapping[str, Any], state: Mapping[str, Array]) -> None:
        labels = list(data["labels"])
        fields = {
            "centres": Field(("n", self.dim)),
            "counts": Field(("n",), 1.0, MOST_SAMPLES),
            "moments": Field((4, self.dim)),
            "scale": Field((self.dim,), 0.0),
            "changes": Field(self._changes.shape, 0.0),
        }
        arrays = checked(state, fields, {"n": len(labels)})
        self.steps, self._opened, self.labels = data["steps"], data["opened"], labels
        self.segments, self.situations = [list(segment) for segment in data["segments"]], dict(data["situations"])
        self._regimes.centres, self._regimes.counts = arrays["centres"], arrays["counts"]
        self._moments, self._scale, self._changes = (arrays[name] for name in ("moments", "scale", "changes"))
        self._spread = bool(self._scale.any())

    def _observe(self, context: Array) -> None:
        mean, squares, changes, latest = self._moments
        if self.steps:
            change = context - latest
            halves = 0.5 * change * change
            changes += halves
            self._changes[self.steps % RECENT_CHANGES] = (
                halves if self.dim <= MAX_NOISE_DIMS else halves[self._looked_at]
            )
        gap = context - mean
        mean += gap / (self.steps + 1)
        squares += gap * (context - mean)
        latest[:] = context

    def _merge_close_regimes(self) -> None:
        """Merge the two nearest regimes while they are close."""
        while self._merge_nearest(MERGE_DISTANCE):
            pass

    def _merge_nearest(self, within: float) -> bool:
        """Merge the two nearest regimes if they are as close as this; the older label stays."""
        if len(self.labels) < 2:
            return False
        gaps = self.squared_distances(self._regimes.centres)
        np.fill_diagonal(gaps, np.inf)
        one, other = sorted(int(i) for i in np.unravel_index(int(gaps.argmin()), gaps.shape))
        if gaps[one, other] > within:
            return False
        self._regimes.merge(one, other)
        gone, kept = self.labels.pop(other), self.labels[one]
        self._relabel(gone, kept)
        self.merged.append((gone, kept))
        return True

    def _find_situations(self) -> None:
        """Regimes that noise cannot tell apart are one situation; so are those that are linked by such."""
        seen = np.sort(self._changes[1 : self.steps] if self.steps < RECENT_CHANGES else self._changes, axis=0)
        weights = self._scale[self._looked_at]
        noise = float(seen[: max(int(USUAL_SHARE * len(seen)), 1)].mean(axis=0) @ weights) if len(seen) else 0.0
        shares = weights / max(float(weights.max(initial=0.0)), 1e-300)  # weights of tiny contexts have no square
        independent = float(shares.sum()) ** 2 / max(float(shares @ shares), 1e-300)
        reach = 1.0 + REACH * (2.0 / min(max(independent, 1.0), MAX_INDEPENDENT_DIMS)) ** 0.5
        centres = self._regimes.centres[:, self._looked_at]
        before, self.situations = self.situations, {}
        known = np.array([before.get(label, -1) for label in self.labels])
        parted = (known[:, None] != known) & (known[:, None] >= 0) & (known >= 0)
        linked = squared_distances(centres, centres, weights) <= np.where(parted, JOIN_SHARE, 1.0) * reach * noise
        for place, label in enumerate(self.labels):
            if label in self.situations:
                continue
            reached = np.zeros(len(self.labels), dtype=bool)
            reached[place] = True
            while (more := linked[reached].any(axis=0) & ~reached).any():
                reached |= more
            members = [self.labels[i] for i in np.flatnonzero(reached)]
            self.situations |= dict.fromkeys(members, min(members))
        kept = dict(self.merged)
        for gone in dict.fromkeys(before.values()):
            label = gone
            while label not in self.situations:
                label = kept[label]
            if self.situations[label] != gone:
                self.joined.append((gone, self.situations[label]))

    def _relabel(self, gone: int, kept: int) -> None:
        self.segments = _renamed(self.segments, {gone: kept})

    def _drop_shortest_segments(self) -> None:
        """Join the shortest segments, but for the first and the last, to those before them; of equals the oldest."""
        lengths = np.array([end - start for _, start, end in self.segments])
        lengths[[0, -1]] = self.steps + 1
        dropped = set(np.argsort(lengths, kind="stable")[: len(lengths) - KEPT_SEGMENTS].tolist())
        joined: list[list[int]] = []
        for place, (label, start, end) in enumerate(self.segments):
            if joined and (place in dropped or joined[-1][0] == label):
                joined[-1][2] = end
            else:
                joined.append([label, start, end])
        self.segments = joined


def _renamed(segments: list[list[int]], names: Mapping[int, int]) -> list[list[int]]:
    """Segments with other labels; neighbours with the same one are joined."""
    joined: list[list[int]] = []
    for label, start, end in segments:
        now = names.get(label, label)
        if joined and joined[-1][0] == now:
            joined[-1][2] = end
        else:
            joined.append([now, start, end])
    return joined
