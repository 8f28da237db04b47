"""DiscreteFamily: a Gaussian process over stored points, for integer, categorical, boolean and rugged knobs.

Main effects and a rugged term are each shared by all contexts and own to similar ones (kernel.py), so a new regime
inherits what holds everywhere. Rows come and go by rank-one updates; every few steps all is rebuilt, contexts are
standardised anew and hyperparameters move one step up the log evidence.

symbol     shape      meaning
n, d, d_c  scalar     stored rows (at most `capacity`), knobs, context dimensions; K metrics
points     [n, d]     a row is one point of the unit box in one neighbourhood of contexts; its samples are averaged
contexts   [n, d_c]   of the rows, standardised
counts     [n]        samples in a row, at most `memory` + 1: so a row follows drift
noises     [n]        variance of each row's mean around the function, as it stands in `inverse`
gram       [n, n]     kernel between stored points, contexts left out
inverse    [n, n]     of the whole kernel matrix plus noises
target     [n]        y = values @ weights, shifted, scaled by its deviation within a context, and compressed above the
                      level of the context: what is bad need not be known exactly
alpha      [n]        inverse @ target
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from rasp_tuner.core.numerics import LARGEST, Array
from rasp_tuner.core.optimizer import Samples
from rasp_tuner.engine.discrete.belief import DiscreteBelief
from rasp_tuner.engine.discrete.here import DiscreteConstants, Fit, Here
from rasp_tuner.engine.discrete.kernel import (
    JITTER,
    NOISE,
    WEIGHTS,
    Kernel,
    Rows,
    bordered,
    clipped,
    evidence,
    likeness,
    standard,
    with_noise,
    with_row,
)
from rasp_tuner.engine.discrete.knobs import Knobs
from rasp_tuner.engine.discrete.merge import merge
from rasp_tuner.engine.discrete.search import CompiledHere, Search
from rasp_tuner.engine.discrete.target import Target, target_of
from rasp_tuner.engine.family import Forecast, Trial
from rasp_tuner.space import Rules
from rasp_tuner.types import Slots

FLAT_SLOPE = 1e-9  # slope of the evidence that is but rounding: a knob never moved must not drift
LEAST_LOG_NOISE, MOST_LOG_NOISE = math.log(JITTER), math.log(3.0)
DRIFT_SAMPLES, DRIFT_DEVIATIONS = 3.0, 2.5  # a repeat so far off leaves a row no more weight than so many samples
REPEATS_KEPT = 0.98  # of the scatter of repeats, at each new one
WILD_DEVIATIONS = 4.0  # a repeat farther off than this counts as if it were so far
REACH_KEPT = 0.98  # of what is known about reached points, at each new one
UNREACHED = 64  # latest points kept that were asked for and ran as others
DERIVED = Rows._fields  # features of the rows, kept to save time


class DiscreteFamily:
    """Stored rows, their kernel matrix and its hyperparameters."""

    uses_blas, merge = True, merge
    experts: tuple[str, ...] = ("elites",)

    def __init__(
        self,
        levels: Sequence[Array | None],
        unordered: Sequence[bool],
        default: Array,
        context_dim: int,
        window: int = 0,
        rules: Rules | None = None,
        **constants: float | tuple[float, ...],
    ) -> None:
        self._constants = c = replace(DiscreteConstants(), **constants)  # type: ignore[arg-type]
        self._knobs = Knobs(levels, unordered, default, rules)
        self._search = Search(t, c) if rules is None and (t := self._knobs.tables) else None  # it knows no rules
        dim = self._knobs.dim
        logs = np.log([c.va, c.vp, c.length, c.width, c.noise, c.vc, c.rho / (1.0 - c.rho)])
        self._start = np.concatenate([logs, np.zeros(dim)])
        self._loose = c.loose * np.concatenate([[1.0, 1.0, 0.7, 0.7, 1.0, 1.0, 1.0], np.full(dim, 0.7)])
        self._least, self._most = self._start - 3.0 * self._loose, self._start + 3.0 * self._loose
        self._context_dim, self._window = context_dim, window  # the latter samples are kept in order, for `recent`
        self._state = self._empty()
        self._fit = self._derive()

    @property
    def samples(self) -> int:
        return int(self._state["clock"][0])

    def learn(self, trial: Trial, belief: DiscreteBelief | None, forecast: Forecast | None) -> None:
        """Take in one trial."""
        del forecast  # one expert: there are no rivals to score
        point, failed = trial.point, trial.failed
        context, values = (clipped(array, -LARGEST, LARGEST) for array in (trial.context, trial.losses))
        s = self._state
        if belief is None or belief.fit is not self._fit:
            belief = self.believe(context)
        s["clock"] = s["clock"] + 1.0
        if self._window:
            sample = np.concatenate([context, point, values])[None]
            s["late"] = np.concatenate([s["late"].reshape(-1, sample.shape[1]), sample])[-self._window :]
        nearest, ran = belief.nearest(point), point.tolist()
        wanted = ran if trial.asked is None else trial.asked.tolist()
        self._reach(point, None if wanted == ran else trial.asked, context, trial.asked is not None, nearest >= 0)
        s["since_default"] = np.zeros(1) if self._knobs.default.tolist() in (ran, wanted) else s["since_default"] + 1.0
        self._observe(context)
        close = nearest >= 0 and belief.similar()[nearest] > self._constants.similar
        if close and self._seen_to_vary(context, nearest):
            self._merge(nearest, context, values, failed)
        else:
            self._insert(self._free_row(), point, context, values, failed, belief)
        target = self._refit() if s["clock"][1] >= _period(len(s["points"])) else self._target()
        self._fit = self._prepare(target)

    def _seen_to_vary(self, context: Array, row: int) -> bool:
        """Whether a context differs from a row's only where contexts are known to differ; else kc cannot tell."""
        s, varies = self._state, self._state["width"] < LARGEST
        return bool(varies.all() or (varies | (context == s["raw"][row])).all())

    def reweigh(self, weights: Array) -> None:
        """From now on y = values @ weights [K], for all that was ever learned."""
        self._state["weights"] = np.array(weights, dtype=np.float64)
        self._fit = self._prepare(self._target())

    def believe(self, context: Array) -> DiscreteBelief:
        """Everything known about `context` [d_c]; nothing is learned."""
        fit, context, search = self._fit, clipped(context, -LARGEST, LARGEST), self._search
        return DiscreteBelief(Here(fit, context) if search is None else CompiledHere(fit, context, search))

    def remembered(self) -> Slots:
        """Its rows; it does not know when each was met."""
        s = self._state
        return Slots(s["raw"].copy(), s["counts"].copy(), np.full(len(s["counts"]), np.nan))

    def recent(self) -> Samples:
        """The latest samples, as copies; none without a window, for its rows are not in the order of time."""
        s, dim, width = self._state, self._knobs.dim, len(self._state["mean"])
        late = s["late"] if len(s["late"]) else np.zeros((0, width + dim + len(s["weights"])))
        contexts, points, values = (part.copy() for part in np.split(late, [width, width + dim], axis=1))
        return Samples(contexts, points, values @ s["weights"], values)

    def state(self) -> dict[str, Array]:
        """Everything learned; a copy."""
        return {name: array.copy() for name, array in self._state.items() if name not in DERIVED}

    def restore(self, state: Mapping[str, Array]) -> None:
        """Take back what `state` gave: behaviour goes on bit by bit."""
        early = "likeness" not in state  # of rows that had other features, or did not know how alike they are
        tried = self._knobs.tried(self._knobs.none_tried(), state["points"])
        state = {**self._empty(), "likeness": np.ones(2 * [len(state["points"])]), "tried": tried, **state}
        s = {name: np.array(state[name], dtype=np.float64, order="C") for name in self._state if name not in DERIVED}
        self._state = s
        self._fit = self._derive()
        if early and len(s["points"]):
            self._fit = self._prepare(self._refit())

    def _derive(self) -> Fit:
        """What follows from the state, features of the rows included."""
        s = self._state
        self._kernel = Kernel.of(s["used"], float(s["level"][0]), self._knobs)
        s.update(self._kernel.rows_of(self._knobs, s["points"])._asdict())
        return self._prepare(self._target())

    def _empty(self) -> dict[str, Array]:
        """What is known before anything is learned."""
        dim, context_dim = self._knobs.dim, self._context_dim
        return {
            "points": np.zeros((0, dim)),
            "raw": np.zeros((0, context_dim)),  # contexts as they came
            "values": np.zeros((0, 0)),  # [n, K]
            "counts": np.zeros(0),
            "failed": np.zeros(0),
            "doubt": np.zeros(0),  # times the usual noise that each row seems to have
            "noises": np.zeros(0),
            "rivals": np.zeros(0),  # how many rows of like context were better at the last refit
            "contexts": np.zeros((0, context_dim)),
            "likeness": np.zeros((0, 0)),  # [n, n] kc between the rows
            "level": np.ones(1),  # b, see kernel.py
            "gram": np.zeros((0, 0)),
            "inverse": np.zeros((0, 0)),
            "theta": self._start,  # where hyperparameters go next
            "used": self._start,  # those in gram and inverse
            "speed": np.full(WEIGHTS + dim, self._constants.rate),  # step of each theta
            "sign": np.zeros(WEIGHTS + dim),  # its last direction
            "clock": np.zeros(2),  # samples seen; samples since the last refit
            "mean": np.zeros(context_dim),  # of all contexts seen
            "squares": np.zeros(context_dim),  # summed, around that mean
            "middle": np.zeros(context_dim),
            "width": np.full(context_dim, LARGEST),
            "weights": np.zeros(0),  # [K]
            "repeats": np.zeros(1),  # [1 + K K] how many samples repeated a row; summed squares of their deviations
            "tried": self._knobs.none_tried(),  # which levels ran or were asked for
            "unreached": np.zeros((0, dim)),  # the latest points that were asked for and ran as others, and never ran
            "unreached_in": np.zeros((0, context_dim)),  # raw contexts of these
            "since_default": np.zeros(1),  # samples since the default ran or was asked for
            "reach": np.ones(2),  # how many new points ran as they were asked for; how many were asked for
            "late": np.zeros((0, 0)),  # [w, d_c + d + K] context, point and values of the latest samples
        }

    def _observe(self, context: Array) -> None:
        s = self._state
        gap = context - s["mean"]
        s["mean"] = s["mean"] + gap / s["clock"][0]
        s["squares"] = s["squares"] + gap * (context - s["mean"])

    def _reach(self, ran: Array, asked: Array | None, context: Array, own: bool, ran_before: bool) -> None:
        """Take in what was tried: what ran, and what was asked for if that is another point.

        `own` says whether anything was asked for.
        """
        s, known = self._state, ran[None] if asked is None else np.stack([ran, asked])
        if asked is not None or not ran_before:
            s["tried"] = self._knobs.tried(s["tried"], known)
        if len(s["unreached"]):
            kept = ~(s["unreached"] == known[:, None]).all(axis=2).any(axis=0)
            s["unreached"], s["unreached_in"] = s["unreached"][kept], s["unreached_in"][kept]
        if (ran_before or not own) if asked is None else (s["points"] == asked).all(axis=1).any():
            return  # it could be had before
        reached = asked is None or self._knobs.same(asked, ran)
        s["reach"] = REACH_KEPT * s["reach"] + [float(reached), 1.0]
        if asked is not None and not reached:
            s["unreached"] = np.concatenate([s["unreached"], asked[None]])[-UNREACHED:]
            s["unreached_in"] = np.concatenate([s["unreached_in"], context[None]])[-UNREACHED:]

    def _merge(self, row: int, context: Array, values: Array, failed: bool) -> None:
        """One more sample of a row; a change between success and failure starts it anew."""
        s, mean, raw = self._state, self._state["values"][row], self._state["raw"][row]
        gap = values - mean
        count = min(float(s["counts"][row]), self._constants.memory) if failed == bool(s["failed"][row]) else 0.0
        if count > DRIFT_SAMPLES and self._strange(gap):
            count = DRIFT_SAMPLES
        if count > 0.0 and not failed:
            self._scatter(gap, count / (count + 1.0))
        noise = float(self._kernel.noise * s["doubt"][row] / (count + 1.0) + JITTER)
        change = noise - float(s["noises"][row])
        self._write(
            row,
            values=mean + gap / (count + 1.0),
            raw=raw + (context - raw) / (count + 1.0),
            counts=count + 1.0,
            failed=float(failed),
            noises=noise,
        )
        s["inverse"] = with_noise(s["inverse"], row, change)

    def _strange(self, gap: Array) -> bool:
        """Whether a repeat lies so far from the mean of its row that the world may have changed."""
        usual = self._fit.scale * math.sqrt(self._kernel.noise)
        return abs(float(gap @ self._state["weights"])) > DRIFT_DEVIATIONS * usual

    def _scatter(self, gap: Array, share: float) -> None:
        """Take in how far a repeat lies from the mean of its row: pure noise. Old ones fade, wild ones count little."""
        s, gaps = self._state, clipped(gap, -LARGEST, LARGEST).tolist()
        if len(s["repeats"]) == 1:
            s["repeats"] = np.zeros(1 + len(gaps) ** 2)
        size = max(1e-300, *map(abs, gaps))
        usual = max(self._fit.scale * math.sqrt(self._kernel.noise), 1e-300)
        far = abs(sum(g / size * w for g, w in zip(gaps, s["weights"].tolist(), strict=True))) * size / usual
        cut = [min(1.0, WILD_DEVIATIONS / max(far, 1e-300)) * one for one in gaps]
        s["repeats"] = REPEATS_KEPT * s["repeats"]
        s["repeats"] += [1.0, *(share * one * other for one in cut for other in cut)]

    def _insert(
        self, row: int, point: Array, context: Array, values: Array, failed: bool, belief: DiscreteBelief
    ) -> None:
        """A new row, or one in the place of another, which leaves the inverse at the same time."""
        s, kernel, kc = self._state, self._kernel, belief.similar()
        rows = kernel.rows_of(self._knobs, point[None])
        near = kernel.gram(rows, self._fit.rows)[0]
        own, noise = float(kernel.variances(rows.phi)[0]), kernel.noise + JITTER
        cross = kernel.base(kc) + near * kernel.blend(kc)
        s["inverse"] = with_row(s["inverse"], row, cross, own + noise, noise)
        s["gram"] = bordered(s["gram"], row, near, own - kernel.level * (1.0 + kernel.vc))
        s["likeness"] = bordered(s["likeness"], row, kc, 1.0)
        self._write(
            row,
            points=point,
            raw=context,
            values=values,
            counts=1.0,
            failed=float(failed),
            doubt=1.0,
            noises=noise,
            rivals=0.0,
            contexts=standard(context, s["middle"], s["width"]),
            **{name: part[0] for name, part in rows._asdict().items()},
        )

    def _free_row(self) -> int:
        """A row to fill: a new one, or the one that the others predict best and that is not the best of its context."""
        s = self._state
        rows = len(s["points"])
        if rows < self._constants.capacity:
            return rows
        spare = 1.0 / s["inverse"].diagonal() - s["noises"]  # variance of each row given the others
        dear = (s["rivals"] < self._constants.kept) & (s["failed"] == 0.0)
        return int(np.where(dear & ~dear.all(), np.inf, spare).argmin())

    def _write(self, row: int, **entries: float | Array) -> None:
        """Change or append one row of some arrays; the old arrays stay as they are, for beliefs hold them."""
        s = self._state
        for name, entry in entries.items():
            if row < len(s[name]):
                s[name] = s[name].copy()
                s[name][row] = entry
            else:
                last = np.reshape(entry, (1, *np.shape(entry)))
                s[name] = np.concatenate([s[name], last]) if row else last

    def _refit(self) -> Target:
        """Standardise contexts anew, rebuild the matrices, and move theta one step up the log evidence.

        The target of the rows, as it is now.
        """
        s, c = self._state, self._constants
        spread = np.sqrt(np.maximum(s["squares"], 0.0) / s["clock"][0])
        live = spread > 1e-9 * np.abs(s["mean"])
        s["middle"], s["width"] = s["mean"], np.where(live, np.maximum(spread, 1e-300), LARGEST)
        s["contexts"] = standard(s["raw"], s["middle"], s["width"])
        kernel = Kernel.of(s["theta"], 1.0, self._knobs)
        gaps, s["likeness"] = likeness(s["contexts"], kernel.width)
        target = self._target()
        self._kernel = kernel = kernel._replace(level=target.level)
        rows = kernel.rows_of(self._knobs, s["points"]) if self._knobs.tables else kernel.rows(s["phi"], s["steps"])
        s.update(rows._asdict())
        repeats = self._repeats(target.scale)
        found = evidence(
            kernel, self._knobs, rows, gaps, s["likeness"], target.values, s["doubt"], s["counts"], c.freedom, repeats
        )
        s["level"], s["used"] = np.array([target.level]), s["theta"]
        s["gram"], s["inverse"], s["rivals"] = found.gram, found.inverse, found.rivals
        s["noises"], s["doubt"] = found.noises, found.noise_factor  # the factors count from the next refit on
        s["clock"] = np.array([s["clock"][0], 0.0])
        self._climb(found.gradient - (s["theta"] - self._start) / self._loose**2, found.noise_step)
        return target

    def _repeats(self, scale: float) -> tuple[float, float]:
        """How many samples repeated a row, and the sum of their squared deviations from it, in units of the target."""
        s = self._state
        count = float(s["repeats"][0])
        if count == 0.0:
            return 0.0, 0.0
        squares = s["repeats"][1:].reshape(len(s["weights"]), -1)
        return count, min(float(s["weights"] @ squares @ s["weights"]) / scale / scale, LARGEST)  # scale^2 may be 0

    def _climb(self, gradient: Array, noise_step: float) -> None:
        """Each theta moves by the sign of its gradient, further while that lasts and less once it turns (Rprop)."""
        s, sign = self._state, np.sign(gradient)
        sign[np.abs(gradient) < FLAT_SLOPE] = 0.0
        s["speed"] = clipped(s["speed"] * np.where(sign * s["sign"] < 0.0, 0.5, 1.2), 0.01, 0.3)
        s["sign"] = sign
        moved = clipped(s["theta"] + sign * s["speed"], self._least, self._most)
        moved[NOISE] = min(max(s["theta"][NOISE] + noise_step, LEAST_LOG_NOISE), MOST_LOG_NOISE)
        s["theta"] = moved

    def _target(self) -> Target:
        """Of y = values @ weights, less what the prior expects."""
        s = self._state
        if len(s["points"]) == 0:
            return Target(np.zeros(0), 0.0, 1.0, 1.0, np.zeros(0))
        values, weights = s["values"], s["weights"]
        known = len(weights) == values.shape[1]  # y is zero until weights are
        y = clipped(values @ weights, -LARGEST, LARGEST) if known else np.zeros(len(values))
        found = target_of(y, s["likeness"], self._constants.warp)
        return found._replace(values=found.values - self._knobs.expected(s["phi"]))

    def _prepare(self, target: Target) -> Fit:
        s = self._state
        return Fit(
            constants=self._constants,
            knobs=self._knobs,
            kernel=self._kernel,
            points=s["points"],
            rows=Rows(*(s[name] for name in DERIVED)),
            contexts=s["contexts"],
            failed=s["failed"],
            tried=s["tried"],
            counts=s["counts"],
            since_default=int(s["since_default"][0]),
            unreached=s["unreached"],
            unreached_in=s["unreached_in"],
            reached=float(s["reach"][0] / s["reach"][1]),
            gram=s["gram"],
            inverse=s["inverse"],
            alpha=s["inverse"] @ target.values,
            values=target.y,
            center=target.center,
            scale=target.scale,
            middle=s["middle"],
            width=s["width"],
        )


def _period(rows: int) -> int:
    """Samples between refits: a refit costs as rows cubed, so that many rows wait longer."""
    return 1 if rows <= 40 else 2 if rows <= 80 else 6
