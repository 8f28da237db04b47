"""GpFamily: stored rows, and the one Gaussian process fitted to them (model.py).

A row is one point in one context; its samples are averaged. The fit is a function of the rows and of the
hyperparameters alone, so nothing else is kept.

A fit has at most MOST_ROWS rows: it takes time with their cube. Beyond, rows of other situations are put away, and come
back with their situation.

symbol     shape      meaning
n          scalar     rows: those put away, then those of the fit
C          scalar     loss columns
"""

import math
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from rasp_tuner.base.common_constants import (
    EARLY_SAMPLES,
    FADING_SAMPLES,
    FEWEST_SAMPLES,
    LIKELY,
    ODD_DEVIATIONS,
    RECENT_STEPS,
)
from rasp_tuner.base.numerics import LARGEST, SMALLEST, Array
from rasp_tuner.base.state_checks import FINITE, MOST_SAMPLES, Field, broken, checked
from rasp_tuner.contexts.context_metric import ALIKE, ContextMetric, likeness
from rasp_tuner.engine.family import ByExpert, Prices, RunOutcome
from rasp_tuner.engine.gp.belief import GpBelief, Recalled
from rasp_tuner.engine.gp.bill import HindsightBill
from rasp_tuner.engine.gp.find import FindBelief
from rasp_tuner.engine.gp.knobs import Indices, Knobs
from rasp_tuner.engine.gp.model import (
    LEVEL_VARIANCE,
    MOST_SPREAD,
    S2,
    Climb,
    Fit,
    Older,
    Ready,
    Rows,
    Targets,
    ThetaPrior,
    climbed,
    evidence,
    fitted,
    taken,
)  # fmt: skip
from rasp_tuner.engine.gp.posterior import ContextPosterior
from rasp_tuner.engine.gp.rows import ROW_ARRAYS, LatestRows, StoredRows
from rasp_tuner.engine.gp.search import point_keys
from rasp_tuner.engine.gp.similar_rows import most_similar, nearest
from rasp_tuner.engine.gp.trust import FALSE_ODDS, LEAST_TRUST, student_weight, trusted, without_like
from rasp_tuner.engine.gp.value import TAIL, TAIL_ROWS
from rasp_tuner.optimizer.optimizer import LatestSamples
from rasp_tuner.space import Layout
from rasp_tuner.types import Slots

CHANGE_ODDS = 0.002  # prior odds that the world changes at a step
REFITS = (EARLY_SAMPLES, 1), (2 * EARLY_SAMPLES, 2), (8 * EARLY_SAMPLES, 4)  # below so many samples, at every so many
RAREST_REFIT = 8  # samples between two, later
FALSE_SAMPLES = 10.0  # that the prior share of false ones is worth
MOST_ROWS = 256  # of a fit: about twenty settings in each of a dozen situations
AWAY_ROWS = 768  # put away: as many in each of forty more
SETTLED_SAMPLES = 128  # after which the scale of a metric is looked at no more; numbers of a long context
SAME_CONTEXT = 0.98  # likeness from which on a repeat joins its row
KEPT = 1.0 - 1.0 / FADING_SAMPLES  # of what is known of the scatter of repeats, and of reached points, at a new one
SURPRISING = ODD_DEVIATIONS**2  # squared deviations, beyond which a sample is none of its row
FIND_BASELINES = 8.0  # situations whose default runs first where the best is looked for; of more, a share
BASELINE_SHARE = 0.1  # of the steps, at most, run the default because it did not run in such a situation
UNREACHED = 64  # latest points kept that were asked for and ran as others
TRUST_FROM_ROWS = 6  # on, rows are judged by the others
SCALE_STEPS = 8  # of hyperparameters, where two scales are compared
MERGE_STEPS = 25  # of hyperparameters that start anew
MOST_MOMENTUM, TINY = 10.0, 1e-6  # of the mean slope, in roots of the mean squared one; rounding
FARTHEST_THETA = 60.0  # of a logarithm in a file: its exponential is finite, and so are products

FIELDS = {
    "points": Field(("n", "d"), 0.0, 1.0),
    "contexts": Field(("n", "c"), -LARGEST, LARGEST),
    "losses": Field(("n", "C"), -LARGEST, LARGEST),  # means
    "counts": Field(("n",), 1.0, MOST_SAMPLES),
    "times": Field(("n",), 0.0, MOST_SAMPLES),
    "failed": Field(("n",), 0.0, 1.0, whole=True),
    "trust": Field(("n",), LEAST_TRUST, 1.0),
    "own": Field(("n",), 0.0, MOST_SAMPLES),  # samples that answer a suggestion
    "theta": Field(("theta",), -FARTHEST_THETA, FARTHEST_THETA),
    "momentum": Field(("theta",), -LARGEST, LARGEST),
    "squares": Field(("theta",), 0.0, LARGEST),
    "climbed": Field((1,), 0.0, MOST_SAMPLES, whole=True),  # steps that theta has made
    "level": Field((1,), LEVEL_VARIANCE, LEVEL_VARIANCE * (1.0 + MOST_SPREAD**2)),  # v0 of the fit
    "median": Field(("c",), -LARGEST, LARGEST),
    "deviation": Field(("c",), 0.0, LARGEST),
    "clock": Field((2,), 0.0, MOST_SAMPLES, whole=True),  # samples seen; samples seen at the last refit
    "weights": Field(("C",)),
    "unreached": Field(("u", "d"), 0.0, 1.0),  # the latest points that ran as others, and never ran
    "unreached_in": Field(("u", "c"), -LARGEST, LARGEST),
    # samples that joined a row: see model.Repeats
    "repeats": Field((3,), 0.0, (FADING_SAMPLES + 1.0, FINITE, 2.0 * FADING_SAMPLES + 2.0)),
    "run": Field((1,), -MOST_SAMPLES, MOST_SAMPLES),  # surprises in a row; negative where less came than expected
    "reach": Field((2, "d"), 0.0, FINITE),  # moves of each knob that ran as they were asked for; moves asked for
    "late": Field(("w", "sample"), -LARGEST, LARGEST),  # context, point and losses of the latest samples
}


class GpFamily:
    """Rows and hyperparameters."""

    uses_blas = True
    experts: tuple[str, ...] = ("one model",)
    hindsight = True

    def __init__(self, layout: Layout, context_dim: int, columns: int, window: int, find: bool = False) -> None:
        self._knobs = Knobs(layout, find)
        self._prior = ThetaPrior.of(self._knobs.dim, context_dim, find, bool(self._knobs.scale.all()))
        self._find = find
        dim = self._knobs.dim
        self._sizes: dict[str, int | range] = {
            "n": range(MOST_ROWS + AWAY_ROWS + 1), "d": dim, "c": context_dim, "C": columns,
            "theta": len(self._prior.mean), "u": range(UNREACHED + 1), "w": range(window + 1),
            "sample": context_dim + dim + columns,
        }  # fmt: skip
        self._window = window
        self._bounds = np.full(context_dim, -LARGEST), np.full(context_dim, LARGEST)  # that scales are made within
        self._stored = StoredRows(dim, context_dim, columns, MOST_ROWS)
        self._away = StoredRows(dim, context_dim, columns, 0)  # room for them is made as they come
        self._late = LatestRows(window, context_dim + dim + columns)
        self._state: dict[str, Array]  # all else
        self._fit: Fit | None
        self._kept: NDArray[np.int64]  # [n] where each row is in the fit; -1: nowhere, or it was another one
        self._spare: Array | None = None  # memory of the fit before this one
        self._any_failed: bool  # whether any row did, as far as is known
        self._take(self._empty())

    @property
    def samples(self) -> int:
        return int(self._state["clock"][0])

    @property
    def weights(self) -> Array:
        """y = losses @ weights."""
        return self._state["weights"]

    @property
    def relevance(self) -> Array:
        return np.exp(self._state["theta"][len(self._prior.mean) - len(self._state["median"]) :])

    def believe(self, context: Array) -> GpBelief:
        s, fit = self._state, self._fit
        if fit is None:
            raise RuntimeError("nothing was learned yet")
        here = ContextPosterior(fit, context, float(s["clock"][0]))
        similar = np.concatenate([self._likeness_of_away(context), here.kc])
        recalled = self._recalled(similar)
        if recalled is not None:
            here = ContextPosterior(recalled.fit, context, float(s["clock"][0]))
        stored, barred = self._stored if recalled is None else recalled.stored, set[bytes]()
        if self._any_failed:
            points, failed = stored["points"], stored["failed"]
            barred = set(point_keys(points[(failed > 0.0) & (here.kc > ALIKE)]))
        if len(s["unreached"]):
            z = fit.metric.z(np.stack([context, *s["unreached_in"]]), fit.weights.relevance)
            barred |= set(point_keys(s["unreached"][likeness(z[:1], z[1:])[0] > ALIKE]))
        runs, rows = here.default_runs()  # each row is a situation of its own
        first = 1.0
        if self._find:  # in every situation, however alike they are
            default = (stored["points"] == self._knobs.default).all(axis=1)
            runs, first = float((here.kc[default] > SAME_CONTEXT).any()), FIND_BASELINES
        unknown = runs < ALIKE and self._knobs.default_key not in barred
        unknown = unknown and rows < first + BASELINE_SHARE * float(s["clock"][0])
        lacks_default = self._knobs.default_key in barred and self._runs_without_default(stored, here.kc)
        if not lacks_default:
            barred.discard(self._knobs.default_key)
        reached = s["reach"][0] / s["reach"][1]
        if self._find:
            return FindBelief(here, barred, reached, unknown, s["repeats"], similar, recalled)
        return GpBelief(here, barred, reached, unknown, lacks_default, similar, recalled)

    def learn(self, trial: RunOutcome, belief: GpBelief | None, forecast: ByExpert | None) -> None:
        s = self._state
        point, now = trial.point, max(float(s["clock"][0]) - trial.ago, 0.0)
        context, losses = (np.minimum(np.maximum(a, -LARGEST), LARGEST) for a in (trial.context, trial.losses))
        if belief is None and self._fit is not None:
            belief = self.believe(context)
        if belief is not None and belief.recalled is not None:
            if belief.recalled.origin is not self._fit:  # something else was learned since
                belief = self.believe(context)
            self._keep(belief.recalled)
        stored = self._stored
        if self._window and trial.ended is None:  # what was expected says nothing about scales
            self._late.append(context, point, losses)
            s["late"] = self._late.rows
        gap, odd, row, trust = 0.0, 0.0, -1, 1.0
        same = np.flatnonzero((stored["points"] == point).all(axis=1))
        self._note_reach(trial, context, belief)
        if belief is not None:
            row = self._row_of(same, belief.kc, trial.failed)
            if forecast is not None and not trial.failed:
                gap = float(losses @ s["weights"]) - forecast.mean
                odd = min(abs(gap) / math.sqrt(max(forecast.variance + belief.noise, 1e-300)), LARGEST) ** 2
                trust = self._trusted(gap, forecast.variance, float(belief.kc.sum()), belief.noise)
            if row >= 0 and (odd > SURPRISING or stored["trust"][row] < LIKELY):  # as far as before from the others?
                apart = float((losses - stored["losses"][row]) @ s["weights"])
                row = row if apart * apart <= 2.0 * SURPRISING * belief.noise else -1
        if trial.scatter is not None and trial.runs > 1:
            self._note_scatter(trial.runs, trial.scatter)
        if row >= 0:
            self._join(row, context, losses, now, trial.ended is None, trial.runs)
        else:
            stored.append(point, context, losses, now, trial.failed)
            stored["counts"][-1] = trial.runs
            self._kept = np.append(self._kept, -1)
        self._any_failed |= trial.failed
        billed = trial.asked is not None and trial.ended is None and (belief is None or not belief.lacks_default)
        stored["own"][-1] += trial.runs * billed
        self._judge(gap, odd, row >= 0, now, trust)
        s["clock"] = s["clock"] + [1.0, 0.0]
        if stored.count > MOST_ROWS:
            self._shrink(belief)
        self._refit()

    def bill(self, prices: Prices, belief: GpBelief | None = None) -> HindsightBill | None:
        if belief is not None and belief.recalled is not None:
            return HindsightBill(belief.fit, belief.recalled.stored["own"], prices)
        return None if self._fit is None else HindsightBill(self._fit, self._stored["own"], prices)

    def reweigh(self, weights: Array) -> None:
        s = self._state
        s["weights"] = np.array(weights, dtype=np.float64)
        s["repeats"], self._fit = np.zeros(3), None  # they were of another target
        if self._stored.count:
            self._refit()

    def restate(self, factors: Array, shifts: Array, weights: Array) -> None:
        """Rows hold mean losses, so that this is exact."""
        s = self._state
        for rows in (self._stored, self._away):
            rows["losses"][:] = rows["losses"] * factors + shifts
        at = s["late"].shape[1] - len(factors)
        s["late"][:, at:] = s["late"][:, at:] * factors + shifts
        self.reweigh(weights)

    def forget(self) -> None:
        self._take({**self._empty(), "weights": self._state["weights"]})

    def bound_contexts(self, least: Array, most: Array, mend: bool) -> None:
        """What is trimmed away holds one or two absurd values (context_metric.py); the bounds hold more."""
        del mend  # scales are made anew at every refit
        self._bounds = least, most

    def merge(self, other: "GpFamily", weights: Array, first: bool) -> None:
        """Take in the rows of another family. Hyperparameters start anew: neither knows what is new in the other."""
        if not other.samples:
            self.reweigh(weights)
            return
        one, two = (self.state(), other.state()) if first else (other.state(), self.state())
        (low, high), (least, most) = self._bounds, other._bounds
        self._bounds = np.minimum(low, least), np.maximum(high, most)  # the same, whichever takes the other in
        joined = other.state() if not self.samples else {**self._empty(), **_joined(one, two, self._window)}
        at_most = 2 * MOST_ROWS if self.samples else MOST_ROWS
        self._take({**joined, "weights": np.array(weights, dtype=np.float64)}, at_most)
        self._refit()
        while self._stored.count > MOST_ROWS:
            self._shrink()
            self._fit = self._fitted()
        for _ in range(MERGE_STEPS):
            self._state["clock"][1] = 0.0
            self._refit()

    def logs_gain(self, sign: float) -> float | None:
        """By evidence, which is settled after some samples."""
        if self.samples > SETTLED_SAMPLES:
            return None
        own = sign * self._stored["losses"][:, 1]
        if (own < math.log(SMALLEST) + 1.0).any():  # a value of 0 or less, which may be a mistake
            return -math.inf
        values, logs = (self._log_density(column) for column in np.eye(2))
        return logs - float(own.sum()) - values  # as a density of the values

    def _log_density(self, weights: Array) -> float:
        """Of what rows came to under other weights, up to a constant: hyperparameters climb anew from their prior.

        All rows count: what is false on one scale may be a cliff on the other.
        """
        s, prior, knobs = self._state, self._prior, self._knobs
        y = np.clip(self._stored["losses"] @ weights, -LARGEST, LARGEST)
        rows = self._rows()._replace(y=y, trust=np.ones(len(y)))
        metric, still = ContextMetric(s["median"], s["deviation"]), np.zeros(len(prior.mean))
        none = np.zeros(3)  # the scatter of repeats is known on the scale of today alone
        ready = Ready.of(knobs, rows, metric)
        start = Climb(prior.mean, still, still, 0)
        climb, level, *_ = climbed(knobs, rows, metric, start, prior, 0.0, SCALE_STEPS, none, ready)
        off = (climb.theta - prior.mean) / prior.deviation
        found = evidence(knobs, rows, climb.theta, level, ready)
        return found - 0.5 * float(off @ off) - len(rows.y) * math.log(ready.targets.unit)

    def remembered(self) -> Slots:
        s, last = self._stored_and_away(), float(self._state["clock"][0]) - 1.0
        return Slots(s["contexts"], s["counts"], last - s["times"])

    def recent(self) -> LatestSamples:
        s, dim, width = self._state, self._knobs.dim, len(self._state["median"])
        contexts, points, losses = (part.copy() for part in np.split(s["late"], [width, width + dim], axis=1))
        return LatestSamples(contexts, points, losses @ s["weights"], losses)

    def state(self) -> dict[str, Array]:
        return {**self._stored_and_away(), **{name: array.copy() for name, array in self._state.items()}}

    def restore(self, state: Mapping[str, Array]) -> None:
        s = checked(state, FIELDS, self._sizes)
        if (s["times"] >= max(s["clock"][0], 1.0)).any() or s["clock"][1] > s["clock"][0]:
            raise broken(state, "times", f"be before {s['clock'][0]:g}, the number of samples", s["times"].tolist())
        if bool(len(s["points"])) != bool(s["clock"][0]):
            raise broken(state, "points", "have a row once there are samples", len(s["points"]))
        if not (s["deviation"] > 0.0).all() or not ((s["reach"][0] <= s["reach"][1]) & (s["reach"][1] > 0.0)).all():
            raise broken(state, "deviation", "be above 0, and reach a share", s["deviation"].tolist())
        if (np.abs(s["momentum"]) > MOST_MOMENTUM * np.sqrt(s["squares"]) + TINY).any():
            raise broken(state, "momentum", "be in proportion to the squares", s["momentum"].tolist())
        self._take(s)
        if self._stored.count:
            try:
                self._fit = self._fitted()
            except np.linalg.LinAlgError as reason:
                raise broken(state, "points", "have a covariance", str(reason)) from None

    def _stored_and_away(self) -> dict[str, Array]:
        """Rows put away, then those of the fit."""
        stored, away = self._stored.state(), self._away.state()
        return {name: np.concatenate([away[name], stored[name]]) for name in ROW_ARRAYS}

    def _take(self, state: Mapping[str, Array], most: int = MOST_ROWS) -> None:
        """Hold another state, whose rows are not fitted yet; of them `most` are for the fit."""
        apart = max(len(state["points"]) - most, 0)
        self._stored.restore({name: state[name][apart:] for name in ROW_ARRAYS})
        self._away.restore({name: state[name][max(apart - AWAY_ROWS, 0) : apart] for name in ROW_ARRAYS})
        self._state = {name: array for name, array in state.items() if name not in ROW_ARRAYS}
        self._late.restore(state["late"])
        self._state["late"] = self._late.rows
        self._any_failed = bool(state["failed"].any())
        self._fit, self._kept = None, np.full(self._stored.count, -1, dtype=np.int64)

    def _runs_without_default(self, stored: StoredRows, kc: Array) -> bool:
        """Whether something ran in situations so much like this one, and the default did not."""
        ran = (stored["failed"] == 0.0) & (kc > ALIKE)
        return bool(ran.any()) and not (stored["points"][ran] == self._knobs.default).all(axis=1).any()

    def _row_of(self, same: Indices, kc: Array, failed: bool) -> int:
        """The latest row that a sample joins: of those of the same point, in the same context; -1 if there is none.

        One that is taken for an outlier is joined only where there is no other.
        """
        s, rows = self._stored, same[kc[same] > SAME_CONTEXT]
        if len(rows) and (failed or self._any_failed):
            rows = rows[s["failed"][rows] == failed]
        if len(rows) > 1 and (trusted := s["trust"][rows] > LIKELY).any():
            rows = rows[trusted]
        return int(rows[s["times"][rows].argmax()]) if len(rows) else -1

    def _note_scatter(self, runs: int, scatter: Array) -> None:
        """Take in how far so many runs at one time scattered around their mean: as repeats between which nothing moved.

        Each fades the ones before it, as if they had come one by one.
        """
        s, kept = self._state, KEPT ** (runs - 1)
        variance = float(scatter @ s["weights"] ** 2) * runs / (runs - 1)
        s["repeats"] = kept * s["repeats"] + (1.0 - kept) * FADING_SAMPLES * np.array([1.0, variance, 0.0])

    def _join(self, row: int, context: Array, losses: Array, now: float, measured: bool, runs: int = 1) -> None:
        """One more sample of a row, which becomes the last one; repeats scatter by noise and by what time moves.

        A mean of so many runs counts as many. What the row has counts as 50 such, or 2% less than before.
        """
        s, stored = self._state, self._stored
        stored.to_end(row)
        self._kept[row:-1] = self._kept[row + 1 :]
        self._kept[-1] = -1
        known = float(stored["counts"][-1])
        count = max(min(known, FADING_SAMPLES * runs), KEPT * known)
        gap, share = losses - stored["losses"][-1], runs / (count + runs)
        apart = float(gap @ s["weights"])
        if measured:
            moved = 1.0 - math.exp(-abs(now - float(stored["times"][-1])) / RECENT_STEPS)
            s["repeats"] = KEPT * s["repeats"] + [1.0, (1.0 - share) * apart**2, 2.0 * (1.0 - share) * moved]
        stored["losses"][-1] += share * gap
        stored["contexts"][-1] += share * (context - stored["contexts"][-1])
        stored["counts"][-1], stored["times"][-1] = count + runs, now

    def _judge(self, gap: float, odd: float, repeated: bool, now: float, weight: float) -> None:
        """Trust the last row by its weight; but surprises of the same sign in a row may be a change."""
        s, trust, run = self._state, self._stored["trust"], float(self._state["run"][0])
        far = math.copysign(1.0, gap) if odd > SURPRISING else 0.0
        run = 0.0 if far == 0.0 else run + far if run * far > 0.0 else far
        s["run"] = np.array([run])
        # what is measured twice is no mistake
        trust[-1] = 1.0 if repeated or (weight < LIKELY and self._alone()[-1]) else weight
        trust[self._changed(now + 1.0)] = 1.0

    @property
    def _freedom(self) -> float:
        """Of forecasts: what was fitted to few rows is not known well."""
        return TAIL + self._stored.count / TAIL_ROWS

    def _trusted(self, gap: float, variance: float, alike: float, noise: float) -> float:
        """The weight of one sample, so far from its forecast; none is false while there is little to judge it by."""
        square = min(gap * gap, LARGEST)
        noise = max(noise, square / LARGEST, SMALLEST)
        z = square / (variance + noise)
        if self._stored.count < TRUST_FROM_ROWS or z <= 1.0:
            return max(float(student_weight(np.array(z))), LEAST_TRUST)
        squares, spread, like, own = np.array([[square], [variance], [alike], [noise]])
        return float(trusted(squares, spread, like, own, self._freedom, np.zeros(1, dtype=bool))[0])

    def _alone(self) -> NDArray[np.bool_]:
        """[n] rows whose choice nothing can contradict."""
        return without_like(self._stored["points"][:, self._knobs.choices], self._stored["trust"])

    def _changed(self, now: float) -> NDArray[np.bool_]:
        """[n] rows of the latest surprises, if they are too many in a row for mistakes, as often as these are made."""
        s, run = self._stored, abs(float(self._state["run"][0]))
        if not run:
            return np.zeros(s.count, dtype=bool)
        late: NDArray[np.bool_] = s["times"] >= now - run
        mistakes = float(((s["trust"] < LIKELY) & ~late).sum()) + FALSE_ODDS * FALSE_SAMPLES
        share = mistakes / (now + FALSE_SAMPLES)
        return late if share**run < CHANGE_ODDS else np.zeros_like(late)

    def _likeness_of_away(self, context: Array) -> Array:
        """[n] how alike a context is to those of the rows that were put away."""
        away, fit = self._away, self._fit
        if fit is None or not away.count:
            return np.zeros(0)
        relevance = fit.weights.relevance
        similar: Array = likeness(fit.metric.z(context, relevance)[None], fit.metric.z(away["contexts"], relevance))[0]
        return similar

    def _recalled(self, similar: Array) -> Recalled | None:
        """Rows for a context, by how alike each is to it; None: those of the fit.

        Rows of situations like this one come back, in place of those that are least like it.
        """
        away, own = np.split(similar, [self._away.count])
        count, fit = min(int((away > ALIKE).sum()), int((own <= ALIKE).sum())), self._fit
        if fit is None or not count:
            return None
        stored, put_away, kept = self._stored.copy(), self._away.copy(), np.arange(len(own))
        back = put_away.taken_out(np.sort(np.argsort(-away, kind="stable")[:count]))
        for row in np.sort(np.argsort(own, kind="stable")[:count])[::-1].tolist():
            kept = _put_away(row, stored, put_away, fit, kept)
        stored.put(back)
        kept = np.concatenate([kept, np.full(count, -1)])
        return Recalled(stored, put_away, self._fitted_to(stored, Older(fit, kept)), fit)

    def _keep(self, recalled: Recalled | None) -> None:
        if recalled is not None:
            self._stored, self._away, self._fit, _ = recalled
            self._kept = np.arange(self._stored.count, dtype=np.int64)

    def _shrink(self, belief: GpBelief | None = None) -> None:
        """One row less: the two most alike of one point become one; else one is put away.

        It is the one least like the situation of now; if all are alike, the one that the others predict best.
        """
        s, fit = self._stored, self._fit
        if fit is None:
            raise RuntimeError("nothing was learned yet")
        most, one, gone = most_similar(fit, s, self._kept)
        if most > ALIKE:
            share = s["counts"][gone] / (s["counts"][one] + s["counts"][gone])
            for name in ("losses", "contexts", "trust"):
                s[name][one] += share * (s[name][gone] - s[name][one])
            s["counts"][one] += s["counts"][gone]
            s["own"][one] += s["own"][gone]
            s["times"][one] = max(s["times"][one], s["times"][gone])
            self._kept[one] = -1
            s.drop(gone)
            self._kept = np.delete(self._kept, gone)
            return
        if belief is not None and belief.kc.min() <= ALIKE:
            row = int(belief.kc.argmin())
        else:
            row = int(fit.spare().argmin())  # of those in the fit: the latest is none of them
        self._kept = _put_away(row, s, self._away, fit, self._kept)

    def _refit(self) -> None:
        """Scales of contexts, hyperparameters and trust move a little now and then; the posterior follows."""
        s, stored, n = self._state, self._stored, self._stored.count
        now, last = s["clock"].tolist()
        every = 1 if self._find else refit_every(int(now), len(s["median"]))  # each new input may be unlike all others
        due = n >= FEWEST_SAMPLES and now - last >= every
        if n >= FEWEST_SAMPLES and not due and self._fit is not None:
            self._fit = self._fitted()
            return
        steps = 0
        if due:
            s["clock"] = np.array([now, now])
            steps = 2 if n < EARLY_SAMPLES else 1
        if due or n < FEWEST_SAMPLES:
            s["median"], s["deviation"] = ContextMetric.of(
                np.clip(stored["contexts"], *self._bounds), float(stored["counts"].sum())
            )
        scale = 0.0 if self._fit is None else self._fit.scale
        metric = ContextMetric(s["median"], s["deviation"])
        climb = Climb(s["theta"], s["momentum"], s["squares"], int(s["climbed"][0]))
        rows = self._rows()
        ready = Ready.of(self._knobs, rows, metric) if steps else Ready(Targets.of(rows.y, rows.trust), None)
        climb, level, odd, false = climbed(
            self._knobs, rows, metric, climb, self._prior, scale, steps, s["repeats"], ready
        )
        s["theta"], s["momentum"], s["squares"], s["climbed"] = *climb[:3], np.array([float(climb.steps)])
        s["level"] = np.array([level])
        if odd is not None:
            noise = math.exp(s["theta"][S2]) / stored["counts"]
            weights = trusted(odd[0], odd[1], odd[2], noise, self._freedom, false)
            weights = np.where(false | (n >= TRUST_FROM_ROWS), weights, stored["trust"])
            certain = (stored["counts"] > 1.0) | (self._changed(now) & ~false)
            if (weights < LIKELY).any():
                certain |= self._alone()
            stored["trust"][:] = np.where(certain, 1.0, weights)
        self._fit = self._fitted(ready)

    def _rows(self, stored: StoredRows | None = None) -> Rows:
        s = stored or self._stored
        y = np.clip(s["losses"] @ self._state["weights"], -LARGEST, LARGEST)
        points = s["points"].copy()  # a fit is never changed, rows are
        copies = (s[name].copy() for name in ("counts", "trust", "times"))
        return Rows(points, self._knobs.features(points), s["contexts"].copy(), y, *copies)

    def _fitted(self, ready: Ready | None = None) -> Fit:
        """The fit to the state as it is; what is known of its rows, if that was made already."""
        older = None if self._fit is None else Older(self._fit, self._kept)
        fit = self._fitted_to(self._stored, older, self._spare, ready)
        self._spare = None if self._fit is None or self._fit.native is None else self._fit.native.block
        self._kept = np.arange(self._stored.count, dtype=np.int64)
        return fit

    def _fitted_to(
        self, stored: StoredRows, older: Older | None, spare: Array | None = None, ready: Ready | None = None
    ) -> Fit:
        """The same to other rows, all else as it is."""
        s = self._state
        metric, level = ContextMetric(s["median"], s["deviation"]), float(s["level"][0])
        if self._knobs.tables is None:
            return fitted(self._knobs, self._rows(stored), metric, s["theta"], level, s["repeats"], ready)
        known = (older, spare, None if ready is None else ready.bounded)
        return taken(self._knobs, stored, metric, s["theta"], level, s["weights"], s["repeats"], *known)

    def _note_reach(self, trial: RunOutcome, context: Array, belief: GpBelief | None) -> None:
        """Take in whether a new point ran as it was asked for; the default is new in each situation."""
        s, asked = self._state, None if trial.asked is None else trial.asked.point
        if len(s["unreached"]):
            kept = ~(s["unreached"] == trial.point).all(axis=1)
            s["unreached"], s["unreached_in"] = s["unreached"][kept], s["unreached_in"][kept]
        if asked is None:
            return
        ran = (self._stored["points"] == asked).all(axis=1)
        moved = asked != self._knobs.default
        if belief is not None and not moved.any():
            ran &= belief.kc > ALIKE
        if ran.any():  # it could be had before
            return
        s["reach"] = np.where(moved, KEPT * s["reach"] + [self._knobs.alike(asked, trial.point), moved], s["reach"])
        if not self._knobs.same(asked, trial.point):
            s["unreached"] = np.concatenate([s["unreached"], asked[None]])[-UNREACHED:]
            s["unreached_in"] = np.concatenate([s["unreached_in"], context[None]])[-UNREACHED:]

    def _empty(self) -> dict[str, Array]:
        sizes = {name: 0 if isinstance(size, range) else size for name, size in self._sizes.items()}
        blank = {
            name: np.zeros([sizes[length] if isinstance(length, str) else length for length in field.shape])
            for name, field in FIELDS.items()
        }
        return {
            **blank,
            "theta": self._prior.mean.copy(),
            "deviation": blank["deviation"] + 1.0,
            "reach": np.ones((2, self._knobs.dim)),
            "level": np.array([LEVEL_VARIANCE]),
        }


def refit_every(samples: int, context_dim: int) -> int:
    """Samples between refits, which move less the more is known; each dimension costs the square of the rows."""
    every = next((every for most, every in REFITS if samples < most), RAREST_REFIT)
    return every if every == 1 else every * (1 + context_dim // SETTLED_SAMPLES)


def _put_away(row: int, stored: StoredRows, away: StoredRows, fit: Fit, kept: Indices) -> Indices:
    """Where the rows that are left are in the fit. The bill still knows of the row's runs: they go to the nearest."""
    if stored["own"][row]:
        stored["own"][nearest(row, fit, stored, kept)] += stored["own"][row]
        stored["own"][row] = 0.0
    if stored["contexts"].shape[1]:  # without contexts all are alike: none would ever come back
        if away.count == AWAY_ROWS:
            away.drop(0)
        away.put(stored.table[row : row + 1])
    stored.drop(row)
    return np.delete(kept, row)


def _joined(one: Mapping[str, Array], two: Mapping[str, Array], window: int) -> dict[str, Array]:
    """The rows of two states with samples; those of one happened first."""
    n, m = float(one["clock"][0]), float(two["clock"][0])
    one = {**one, "times": one["times"] * ((n + m) / n)}  # side by side
    two = {**two, "times": two["times"] * ((n + m) / m)}
    away, fit = slice(None, -MOST_ROWS), slice(-MOST_ROWS, None)
    both = {
        name: np.concatenate([one[name][away], two[name][away], one[name][fit], two[name][fit]]) for name in ROW_ARRAYS
    }
    both["trust"] = np.ones(len(both["trust"]))
    unreached = [np.concatenate([one[name], two[name]])[-UNREACHED:] for name in ("unreached", "unreached_in")]
    return {
        **both,
        "unreached": unreached[0],
        "unreached_in": unreached[1],
        "clock": np.array([n + m, 0.0]),
        "repeats": one["repeats"] + two["repeats"],
        "reach": one["reach"] + two["reach"] - 1.0,  # each began with one of each
        "late": np.concatenate([one["late"], two["late"]])[-window:] if window else one["late"],
    }
