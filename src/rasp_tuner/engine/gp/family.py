"""GpFamily: stored rows, and the one Gaussian process fitted to them (model.py).

A row is one point in one context at about one time; its samples are averaged. The fit is a function of the rows and of
the hyperparameters alone, so nothing else is kept.

symbol     shape      meaning
n          scalar     stored rows, at most MOST_ROWS
C          scalar     loss columns
"""

import math
from collections.abc import Mapping, Sequence

import numpy as np

from rasp_tuner.core.numerics import LARGEST, Array
from rasp_tuner.core.optimizer import Samples
from rasp_tuner.engine.family import Forecast, Trial
from rasp_tuner.engine.gp.belief import GpBelief
from rasp_tuner.engine.gp.context_metric import ContextMetric, likeness
from rasp_tuner.engine.gp.knobs import Knobs
from rasp_tuner.engine.gp.model import (
    FEW_ROWS,
    FIT_FROM_ROWS,
    FREEDOM,
    LEAST_TRUST,
    TRUST_FROM_ROWS,
    Climb,
    Fit,
    Prior,
    Rows,
    fitted,
    trusted,
)
from rasp_tuner.engine.gp.posterior import ContextPosterior
from rasp_tuner.space import Rules
from rasp_tuner.types import Slots

MOST_ROWS = 200
SAME_CONTEXT = 0.98  # likeness from which on a repeat joins its row
ROW_SAMPLES = 60.0  # that a row's mean is taken over, at most: so it follows drift
REPEATS_KEPT = 0.98  # of what is known of the scatter of repeats, at each new one
ALIKE = 0.5  # likeness from which on what failed, or could not be had, there is not asked for here
REACH_KEPT = 0.98  # of what is known about reached points, at each new one
SURPRISING = 9.0  # squared deviations
CHANGE_RUN = 2  # surprises in a row that are a change, not mistakes
BASELINE_SHARE = 0.1  # of the steps, at most, run the default because it did not run in such a situation
UNREACHED = 64  # latest points kept that were asked for and ran as others


class GpFamily:
    """Rows and hyperparameters."""

    uses_blas = True
    experts: tuple[str, ...] = ("one model",)

    def __init__(
        self,
        levels: Sequence[Array | None],
        unordered: Sequence[bool],
        default: Array,
        context_dim: int,
        window: int,
        rules: Rules | None = None,
    ) -> None:
        self._knobs = Knobs(levels, unordered, default, rules)
        self._context_dim, self._window = context_dim, window
        self._prior = Prior.of(self._knobs.dim, context_dim)
        if not context_dim:  # nothing could be learned of what differs between contexts
            self._prior.mean[[1, 2, 4]] = -50.0
        self._least_effect = 0.0
        self._bounds = np.full(context_dim, -LARGEST), np.full(context_dim, LARGEST)  # that scales are made within
        self._state = self._empty()
        self._fit: Fit | None = None

    @property
    def samples(self) -> int:
        return int(self._state["clock"][0])

    def believe(self, context: Array) -> GpBelief:
        s, fit = self._state, self._fit
        if fit is None:
            raise RuntimeError("nothing was learned yet")
        here = ContextPosterior(fit, context, float(s["clock"][0]))
        failed = s["points"][(s["failed"] > 0.0) & (here.kc > ALIKE)]
        barred = {point.tobytes() for point in failed}
        if len(s["unreached"]):
            z = fit.metric.z(np.stack([context, *s["unreached_in"]]), fit.weights.relevance)
            barred |= {p.tobytes() for p in s["unreached"][likeness(z[:1], z[1:])[0] > ALIKE]}
        barred.discard(self._knobs.default_key)
        ran = (s["points"] == self._knobs.default).all(axis=1)
        known, total = float(here.kc @ np.where(ran, s["counts"], 0.0)), float(s["counts"][ran].sum())
        unknown = known < ALIKE and total < 1.0 + BASELINE_SHARE * float(s["clock"][0])
        return GpBelief(here, barred, float(s["reach"][0] / s["reach"][1]), unknown)

    def learn(self, trial: Trial, belief: GpBelief | None, forecast: Forecast | None) -> None:
        s = self._state
        context, losses = (np.clip(array, -LARGEST, LARGEST) for array in (trial.context, trial.losses))
        now = float(s["clock"][0])
        if belief is None and self._fit is not None:
            belief = self.believe(context)
        if self._window:
            sample = np.concatenate([context, trial.point, losses])[None]
            s["late"] = np.concatenate([s["late"].reshape(-1, sample.shape[1]), sample])[-self._window :]
        if len(s["losses"]) == 0:
            s["losses"] = np.zeros((0, len(losses)))
        self._note_reach(trial, context)
        gap, odd = 0.0, 0.0
        if forecast is not None and belief is not None and not trial.failed:
            gap = float(losses @ s["weights"]) - forecast.mean
            odd = gap * gap / max(forecast.variance + belief.noise, 1e-300)
        row = -1
        if belief is not None and odd <= SURPRISING:
            row = self._row_of(trial.point, belief.similar(), trial.failed)
        if row >= 0:
            self._join(row, context, losses, now)
        else:
            self._append(trial.point, context, losses, now, trial.failed)
        self._judge(gap, odd, row, now)
        s["clock"] = s["clock"] + [1.0, 0.0]
        if len(s["points"]) > MOST_ROWS:
            self._shrink()
        self._refit()

    def _judge(self, gap: float, odd: float, row: int, now: float) -> None:
        """Trust a new row as little as it surprises; a second surprise of the same sign in a row is a change."""
        s, run = self._state, float(self._state["run"][0])
        far = math.copysign(1.0, gap) if odd > SURPRISING else 0.0
        run = 0.0 if far == 0.0 else run + far if run * far > 0.0 else far
        s["run"] = np.array([run])
        if row < 0:
            s["trust"][-1] = max(min(1.0, (FREEDOM + 1.0) / (FREEDOM + odd)), LEAST_TRUST)
        if abs(run) >= CHANGE_RUN:
            s["trust"][s["times"] > now - abs(run)] = 1.0

    def _row_of(self, point: Array, kc: Array, failed: bool) -> int:
        """The latest row that a sample joins: the same point in the same context; -1 if there is none."""
        s = self._state
        joins = (s["points"] == point).all(axis=1) & (kc > SAME_CONTEXT) & (s["failed"] == failed)
        rows = np.flatnonzero(joins)
        return int(rows[s["times"][rows].argmax()]) if len(rows) else -1

    def _join(self, row: int, context: Array, losses: Array, now: float) -> None:
        """One more sample of a row; the scatter of repeats is pure noise."""
        s = self._state
        count = min(float(s["counts"][row]), ROW_SAMPLES)
        gap, share = losses - s["losses"][row], 1.0 / (count + 1.0)
        apart = float(gap @ s["weights"])
        s["repeats"] = REPEATS_KEPT * s["repeats"] + [1.0, (1.0 - share) * apart * apart]
        s["losses"][row] += share * gap
        s["contexts"][row] += share * (context - s["contexts"][row])
        s["counts"][row] = count + 1.0
        s["times"][row] = now

    def _append(self, point: Array, context: Array, losses: Array, now: float, failed: bool) -> None:
        s = self._state
        new = {"points": point, "contexts": context, "losses": losses}
        for name, entry in new.items():
            s[name] = np.concatenate([s[name], entry[None]])
        for name, number in {"counts": 1.0, "times": now, "failed": float(failed), "trust": 1.0}.items():
            s[name] = np.append(s[name], number)

    def _shrink(self) -> None:
        """One row less: the two most alike of one point become one; else the one that the others predict best goes."""
        s, fit = self._state, self._fit
        assert fit is not None  # noqa: S101
        z = fit.metric.z(s["contexts"], fit.weights.relevance)
        alike = likeness(z, z)
        alike *= (s["points"][:, None] == s["points"]).all(axis=2) & (s["failed"][:, None] == s["failed"])
        alike[np.tril_indices(len(alike))] = 0.0
        one, two = np.unravel_index(int(alike.argmax()), alike.shape)
        if alike[one, two] > ALIKE:
            share = s["counts"][two] / (s["counts"][one] + s["counts"][two])
            for name in ("losses", "contexts", "trust"):
                s[name][one] += share * (s[name][two] - s[name][one])
            s["counts"][one] += s["counts"][two]
            s["times"][one] = max(s["times"][one], s["times"][two])
            gone = int(two)
        else:
            gone = int(fit.spare().argmin())  # of the rows before the last
        for name in ("points", "contexts", "losses", "counts", "times", "failed", "trust"):
            s[name] = np.delete(s[name], gone, axis=0)

    def _refit(self) -> None:
        """Scales of contexts, hyperparameters and trust move a little; the posterior follows."""
        s = self._state
        n = len(s["points"])
        due = n >= FIT_FROM_ROWS and (s["clock"][0] - s["clock"][1] >= refit_every(n))
        steps = 0
        if due:
            s["clock"] = np.array([s["clock"][0], s["clock"][0]])
            steps = 2 if n < FEW_ROWS else 1
        if due or n < FIT_FROM_ROWS:
            metric = ContextMetric.of(np.clip(s["contexts"], *self._bounds))
            s["median"], s["deviation"] = metric
        climb = Climb(s["theta"], s["momentum"], s["squares"], int(s["climbed"][0]))
        fit, climb, odd = self._fitted(climb, steps)
        s["theta"], s["momentum"], s["squares"], s["climbed"] = *climb[:3], np.array([float(climb.steps)])
        s["scale"] = np.array([fit.scale])
        if odd is not None and n >= TRUST_FROM_ROWS:
            run = abs(float(s["run"][0]))
            change = s["times"] > float(s["clock"][0]) - 1.0 - run if run >= CHANGE_RUN else np.zeros(n, dtype=bool)
            s["trust"] = np.where(change, 1.0, trusted(s["trust"], odd))
        self._fit = fit

    def _fitted(self, climb: Climb, steps: int) -> tuple[Fit, Climb, Array | None]:
        s = self._state
        rows = Rows(
            s["points"],
            self._knobs.features(s["points"]),
            s["contexts"],
            self._y(),
            s["counts"],
            s["trust"],
            s["times"],
        )
        metric = ContextMetric(s["median"], s["deviation"])
        return fitted(self._knobs, rows, metric, climb, self._prior, self._least_effect, float(s["scale"][0]), steps, s["repeats"])

    def _y(self) -> Array:
        s = self._state
        known = len(s["weights"]) == s["losses"].shape[1]
        y: Array = s["losses"] @ s["weights"] if known else np.zeros(len(s["losses"]))
        return np.clip(y, -LARGEST, LARGEST)

    def reweigh(self, weights: Array, least_effect: float = 0.0) -> None:
        self._state["weights"] = np.array(weights, dtype=np.float64)
        self._least_effect = least_effect
        self._state["repeats"] = np.zeros(2)  # they were of another target
        if len(self._state["points"]):
            self._state["scale"] = np.zeros(1)
            self._refit()

    def restate(self, factors: Array, shifts: Array, weights: Array) -> None:
        """Rows hold mean losses, so that this is exact."""
        s = self._state
        s["losses"] = s["losses"] * factors + shifts
        if len(s["late"]):
            at = s["late"].shape[1] - len(factors)
            s["late"] = np.concatenate([s["late"][:, :at], s["late"][:, at:] * factors + shifts], axis=1)
        self.reweigh(weights, self._least_effect)

    def forget(self) -> None:
        self._state, self._fit = {**self._empty(), "weights": self._state["weights"]}, None

    def bound_contexts(self, least: Array, most: Array, mend: bool) -> None:
        """What is trimmed away holds one or two absurd values (context_metric.py); the bounds hold more."""
        del mend  # scales are made anew at every refit
        self._bounds = least, most

    def merge(self, other: "GpFamily", weights: Array, first: bool) -> None:
        raise NotImplementedError

    def remembered(self) -> Slots:
        s = self._state
        return Slots(s["contexts"].copy(), s["counts"].copy(), s["times"].copy())

    def recent(self) -> Samples:
        s, dim, width = self._state, self._knobs.dim, self._context_dim
        late = s["late"] if len(s["late"]) else np.zeros((0, width + dim + len(s["weights"])))
        contexts, points, losses = (part.copy() for part in np.split(late, [width, width + dim], axis=1))
        return Samples(contexts, points, losses @ s["weights"], losses)

    def state(self) -> dict[str, Array]:
        return {name: array.copy() for name, array in self._state.items()}

    def restore(self, state: Mapping[str, Array]) -> None:
        self._state = {name: np.array(state[name], dtype=np.float64, order="C") for name in self._state}
        s = self._state
        self._fit = None
        if len(s["points"]):
            climb = Climb(s["theta"], s["momentum"], s["squares"], int(s["climbed"][0]))
            self._fit = self._fitted(climb, 0)[0]

    def _note_reach(self, trial: Trial, context: Array) -> None:
        """Take in whether a new point ran as it was asked for."""
        s, asked = self._state, trial.asked
        if len(s["unreached"]):
            kept = ~(s["unreached"] == trial.point).all(axis=1)
            s["unreached"], s["unreached_in"] = s["unreached"][kept], s["unreached_in"][kept]
        if asked is None or (s["points"] == asked).all(axis=1).any():
            return  # nobody asked, or it could be had before
        reached = self._knobs.same(asked, trial.point)
        s["reach"] = REACH_KEPT * s["reach"] + [float(reached), 1.0]
        if not reached:
            s["unreached"] = np.concatenate([s["unreached"], asked[None]])[-UNREACHED:]
            s["unreached_in"] = np.concatenate([s["unreached_in"], context[None]])[-UNREACHED:]

    def _empty(self) -> dict[str, Array]:
        dim, context_dim, size = self._knobs.dim, self._context_dim, len(self._prior.mean)
        return {
            "points": np.zeros((0, dim)),
            "contexts": np.zeros((0, context_dim)),
            "losses": np.zeros((0, 0)),  # [n, C] means
            "counts": np.zeros(0),
            "times": np.zeros(0),
            "failed": np.zeros(0),
            "trust": np.zeros(0),
            "theta": self._prior.mean.copy(),
            "momentum": np.zeros(size),
            "squares": np.zeros(size),
            "climbed": np.zeros(1),
            "scale": np.zeros(1),
            "median": np.zeros(context_dim),
            "deviation": np.ones(context_dim),
            "clock": np.zeros(2),  # samples seen; samples seen at the last refit
            "weights": np.zeros(0),  # [C]
            "unreached": np.zeros((0, dim)),
            "unreached_in": np.zeros((0, context_dim)),
            "repeats": np.zeros(2),  # samples that joined a row; their squared distances from it, summed
            "run": np.zeros(1),  # surprises in a row; negative where less came than was expected
            "reach": np.ones(2),  # new points that ran as they were asked for; new points asked for
            "late": np.zeros((0, 0)),
        }


def refit_every(rows: int) -> int:
    """Samples between refits, whose cost grows with the cube of the rows."""
    return 1 if rows < FEW_ROWS else 2 if rows < 2 * FEW_ROWS else 4
