"""RegimeTimeline: which situations a stream of contexts has met, for people to see. No engine uses it.

A regime is a running mean of contexts, and how alike contexts are is what it is everywhere (context_metric.py). Two
contexts of a regime are alike: so a context belongs to the nearest regime if it is half as far from it, else it opens a
new one. There are up to twelve: regimes of one or two contexts, which may be absurd, make room for others; after that a
context is a stray, shown with the nearest regime. The relevance of a dimension is that which the engine has learned, if
it learns one; but a situation is something that lasts, so a dimension whose steps are as large as its whole spread has
little weight. Regimes that move close together are merged, and the older label stays. The result depends only on the
sequence of contexts and relevances.

Noise alone opens regimes, too, as long as there is nothing larger. So a situation is one regime or several: those whose
squared distance is at most `reach` times the noise, or that are linked by such. The noise is half the usual squared
change from one context to the next: the mean of the lower nine tenths of the latest 64. Regimes that alternate change
as much as they differ, so they are one situation. The reach is 16 in one dimension, and less in several, where noise
averages out. Situations that were apart become one only well within it.
"""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from rasp_tuner.base.numerics import LARGEST, Array
from rasp_tuner.base.state_checks import MOST_SAMPLES, Field, checked, under
from rasp_tuner.contexts.context_metric import ALIKE, ContextMetric, squared_gaps
from rasp_tuner.contexts.context_scales import ContextScales
from rasp_tuner.contexts.online_means import RunningCentres

MAX_REGIMES = 12
RELEVANCE_STEP = 4.0  # between relevances by which situations are followed
LEAST_SAVED_DEVIATION = 1e-220  # in a file: what is divided by it is finite
UNLIKE = -2.0 * math.log(ALIKE)  # squared distance of contexts that are just alike
RADIUS = UNLIKE / 4.0  # squared, of a regime: any two contexts within it are alike; regimes this close are one
MIN_WEIGHT = 0.01  # of a dimension of pure noise, relative to one that stays constant within regimes
LASTING_COUNT = 3.0  # contexts of a regime, below which it may go when there is room for no more
LARGEST_MOVE = 9.0  # squared deviations that one step counts for at most
RESCALE_EVERY_STEPS = 16  # after the first MERGE_EVERY_STEPS steps; before, at every step
MERGE_EVERY_STEPS = 64
MAX_SEGMENTS = 500  # of the timeline
NOISE_STEPS = 64  # from which the noise of contexts is estimated
USUAL_SHARE = 0.9  # of their changes; the largest may be switches
SAME_REGIME_DEVIATIONS = 10.6  # standard deviations of a squared distance by noise: in one dimension four of a distance
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
        self._scales = ContextScales(dim)
        self._metric = ContextMetric(np.zeros(dim), np.ones(dim))
        self._relevance = np.zeros(dim)  # times how much a dimension lasts; what z divides by d_c is undone
        self._moves = np.zeros((2, dim))  # half the squared steps of each dimension, and squared distances; summed
        self._looked_at = np.linspace(0, dim - 1, min(dim, MAX_NOISE_DIMS)).astype(int)
        self._recent = np.zeros((0, len(self._looked_at)))  # the latest contexts

    def add(self, context: Array, relevance: Array | None = None) -> int:
        """The label of the next context [d_c]; `relevance` [d_c] is what the engine has learned, None: 1."""
        self.merged, self.joined, opened = [], [], self._opened
        self._scales.observe(context)
        self._recent = np.concatenate([self._recent, context[None, self._looked_at]])[-NOISE_STEPS - 1 :]
        if self.steps < MERGE_EVERY_STEPS or self.steps % RESCALE_EVERY_STEPS == 0 or not self._relevance.any():
            self._rescale(relevance)
        gaps = self._note_moves()
        nearest = int(gaps.argmin()) if len(gaps) else -1
        unlike = nearest < 0 or bool(gaps[nearest] > RADIUS)
        if unlike and len(self.labels) >= MAX_REGIMES:
            self._make_room(context, float(gaps[nearest]))
        if unlike and len(self.labels) < MAX_REGIMES:
            nearest = self._regimes.open(context)
            self.labels.append(self._opened)
            self._opened += 1
            self.stray = False
        else:
            self.stray = unlike
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

    def known_situation(self, context: Array) -> int | None:
        """The situation that a context [d_c] belongs to; None if it is far from all regimes."""
        gaps = self.squared_distances(context[None])[0]
        nearest = int(gaps.argmin()) if len(gaps) else -1
        return self.situations[self.labels[nearest]] if nearest >= 0 and gaps[nearest] <= RADIUS else None

    def squared_distances(self, contexts: Array) -> Array:
        """[n, regimes] squared distances: -2 log(likeness)."""
        return squared_gaps(self._z(contexts), self._z(self._regimes.centres))

    def _z(self, contexts: Array) -> Array:
        return self._metric.z(contexts, self._relevance)

    def _rescale(self, relevance: Array | None) -> None:
        """Update the metric, and what each dimension counts."""
        self._metric = self._scales.metric()
        steps, far = self._moves
        moves = np.ptp(self._scales.sample(), axis=0) > 0.0
        lasting = 1.0 - np.minimum(steps / np.where(far > 0.0, far, 1.0), 1.0)
        lasting = np.where(moves, np.maximum(lasting, MIN_WEIGHT), 0.0)
        shares = lasting * (self.dim / max(float(lasting.sum()), MIN_WEIGHT))
        self._relevance = shares if relevance is None else shares * coarse(relevance)

    def to_json(self) -> dict[str, Any]:
        return {
            "steps": self.steps,
            "opened": self._opened,
            "labels": list(self.labels),
            "segments": [list(segment) for segment in self.segments],
            "situations": list(self.situations.items()),
        }

    def state(self) -> dict[str, Array]:
        arrays = {
            "centres": self._regimes.centres,
            "counts": self._regimes.counts,
            "median": self._metric.median,
            "deviation": self._metric.deviation,
            "relevance": self._relevance,
            "moves": self._moves,
            "recent": self._recent,
        }
        scales = {f"scales/{name}": array for name, array in self._scales.state().items()}
        return {**{name: array.copy() for name, array in arrays.items()}, **scales}

    def restore(self, data: Mapping[str, Any], state: Mapping[str, Array]) -> None:
        labels = list(data["labels"])
        fields = {
            "centres": Field(("n", self.dim), -LARGEST, LARGEST),
            "counts": Field(("n",), 1.0, MOST_SAMPLES),
            "median": Field((self.dim,), -LARGEST, LARGEST),
            "deviation": Field((self.dim,), LEAST_SAVED_DEVIATION),
            "relevance": Field((self.dim,), 0.0, LARGEST),
            "moves": Field((2, self.dim), 0.0),
            "recent": Field(("m", len(self._looked_at)), -LARGEST, LARGEST),
        }
        arrays = checked(state, fields, {"n": len(labels), "m": range(NOISE_STEPS + 2)})
        self._scales.restore(under("scales/", state))
        self.steps, self._opened, self.labels = data["steps"], data["opened"], labels
        self.segments, self.situations = [list(segment) for segment in data["segments"]], dict(data["situations"])
        self._regimes.centres, self._regimes.counts = arrays["centres"], arrays["counts"]
        self._metric = ContextMetric(arrays["median"], arrays["deviation"])
        self._relevance, self._moves, self._recent = (arrays[name] for name in ("relevance", "moves", "recent"))

    def _note_moves(self) -> Array:
        """[regimes] squared distances of the latest context; how far it moved is taken in."""
        latest = self._scales.latest[-2:]
        apart = self._metric.bounded(np.concatenate([latest, self._regimes.centres]))
        now = apart[len(latest) - 1]
        self._moves[0] += np.minimum(0.5 * (now - apart[0]) ** 2, LARGEST_MOVE)
        self._moves[1] += np.minimum(now * now, LARGEST_MOVE)
        gaps = apart[len(latest) :] - now
        distances: Array = (gaps * gaps) @ (self._relevance / max(self.dim, 1))
        return distances

    def _merge_close_regimes(self) -> None:
        """Merge the two nearest regimes while they are close."""
        while self._merge_nearest(RADIUS):
            pass

    def _make_room(self, context: Array, gap: float) -> None:
        """Drop a regime that hardly any context is of: it may be absurd.

        Else merge the nearest two, if they are half as far from each other as this context from all: noise may have
        opened them. But not for one that lies where no others did.
        """
        rare = np.flatnonzero(self._regimes.counts < LASTING_COUNT)
        if len(rare):
            self._drop(int(rare[0]))
        elif self._scales.proven(context):
            self._merge_nearest(min(UNLIKE, gap / 4.0))

    def _drop(self, place: int) -> None:
        """A regime is no more; what was of it is shown with the nearest one, which stays where it is."""
        z = self._z(self._regimes.centres)
        gaps = squared_gaps(z[place][None], z)[0]
        gaps[place] = np.inf
        kept, gone = self.labels[int(gaps.argmin())], self.labels.pop(place)
        self._regimes.drop(place)
        self._relabel(gone, kept)
        self.merged.append((gone, kept))

    def _merge_nearest(self, within: float) -> bool:
        """Merge the two nearest regimes if they are as close as this; the older label stays."""
        if len(self.labels) < 2:
            return False
        z = self._z(self._regimes.centres)
        gaps = squared_gaps(z, z)
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
        own = self._looked_at
        weights = self._relevance[own] * (len(own) / max(self.dim, 1))
        metric = ContextMetric(self._metric.median[own], self._metric.deviation[own])
        z = metric.z(np.concatenate([self._recent, self._regimes.centres[:, own]]), weights)
        recent, centres = z[: len(self._recent)], z[len(self._recent) :]
        halves = 0.5 * (recent[1:] - recent[:-1]) ** 2
        halves.sort(axis=0)
        usual = halves[: max(int(USUAL_SHARE * len(halves)), 1)]
        noise = float((usual.sum(axis=0) / len(usual)).sum()) if len(halves) else 0.0
        shares = weights / max(float(weights.max(initial=0.0)), 1e-300)
        independent = float(shares.sum()) ** 2 / max(float(shares @ shares), 1e-300)
        reach = 1.0 + SAME_REGIME_DEVIATIONS * (2.0 / min(max(independent, 1.0), MAX_INDEPENDENT_DIMS)) ** 0.5
        before, self.situations = self.situations, {}
        known = [before.get(label) for label in self.labels]  # its situation; None of a new one
        within, within_if_parted = reach * noise, JOIN_SHARE * reach * noise
        neighbours = [
            [
                other
                for other, gap in enumerate(gaps)
                if gap <= within and (gap <= within_if_parted or None in (one, known[other]) or one == known[other])
            ]
            for one, gaps in zip(known, squared_gaps(centres, centres).tolist(), strict=True)
        ]
        for place, label in enumerate(self.labels):
            if label in self.situations:
                continue
            reached, found = set[int](), {place}
            while found:
                reached |= found
                found = {other for one in found for other in neighbours[one]} - reached
            members = [self.labels[i] for i in sorted(reached)]
            self.situations |= dict.fromkeys(members, min(members))
        kept = dict(self.merged)
        for gone in dict.fromkeys(before.values()):
            label = gone
            while label not in self.situations:
                label = kept[label]
            if self.situations[label] != gone:
                self.joined.append((gone, self.situations[label]))

    def _relabel(self, gone: int, kept: int) -> None:
        """Give the segments of a regime to another one; only these are looked at, since the timeline is long."""
        segments = self.segments
        for place in [place for place, segment in enumerate(segments) if segment[0] == gone][::-1]:
            segments[place][0] = kept
            for later in (place + 1, place):  # neighbours of one label are one segment
                if 0 < later < len(segments) and segments[later - 1][0] == segments[later][0]:
                    segments[later - 1][2] = segments.pop(later)[2]

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


def coarse(relevance: Array) -> Array:
    """Relevances [d_c] in steps of a factor: a record that is followed by them is not seen anew at every sample."""
    rounded: Array = RELEVANCE_STEP ** np.round(np.log(relevance) / np.log(RELEVANCE_STEP))
    return rounded


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
