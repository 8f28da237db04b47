"""The parts of the engine that are taken away, one at a time.

An ablation is a list of replacements: (where, name, instead), made for one run and undone after it. The product has no
flags for them. Those of the quadratic family replace functions and constants of the kernel on arrays, which is what all
runs of this study compute with: compiled code has no parts to take away. An expert is removed by a prior score of minus
infinity; its minimiser is no candidate then, either.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from rasp_tuner.engine.gp import belief as gp_belief
from rasp_tuner.engine.gp import family as gp_family
from rasp_tuner.engine.gp import knobs as gp_knobs
from rasp_tuner.engine.gp import model as gp_model
from rasp_tuner.engine.gp import search as gp_search
from rasp_tuner.engine.gp import value as gp_value
from rasp_tuner.engine.kernel import believe, choose, learn, memory, moving, pooled_prior
from rasp_tuner.engine.kernel import state as states
from rasp_tuner.engine.kernel.belief import Belief
from rasp_tuner.engine.kernel.state import Dims, E, State

BLIND, RECENT, WIDE, NARROW, MOVING = range(E)  # the experts
FULL = "full engine"
NONE = 1e-9  # of a variance or share that shall play no part

Replacement = tuple[object, str, object]


@dataclass(frozen=True)
class Ablation:
    """One change: what is replaced, which agent plays, and whether harder worlds than the quiet ones show it, too."""

    name: str
    replacements: tuple[Replacement, ...] = ()
    agent: str = "rasp"
    in_harder_worlds: bool = True


# Experts and their gate


def _prior_scores(change: Callable[[np.ndarray], None]) -> Replacement:
    """Other scores of the experts before any sample."""
    scores = pooled_prior.EXPERT_PRIOR.copy()
    change(scores)
    return learn, "EXPERT_PRIOR", scores


def _without(*experts: int) -> tuple[Replacement, ...]:
    """Experts whose prior score is minus infinity; the mean of the others' minimisers stands where theirs were."""
    usual = choose._centres

    def remove(scores: np.ndarray) -> None:
        scores[list(experts)] = -np.inf

    def centres(belief: Belief, low: np.ndarray, high: np.ndarray) -> np.ndarray:
        every = usual(belief, low, high)
        every[:, :-1] = np.where(belief.weights[:, :, None] == 0.0, every[:, -1:], every[:, :-1])
        return every

    return _prior_scores(remove), (choose, "_centres", centres)


def _no_odds(scores: np.ndarray) -> None:
    scores[:] = 0.0


def _uniform() -> tuple[Replacement, ...]:
    """Scores that stay zero: they are moved just before what is shared is tracked."""
    usual = learn._track

    def track(dims: Dims, state: State, *arguments: Any) -> None:
        state.scores[:] = 0.0
        usual(dims, state, *arguments)

    return _prior_scores(_no_odds), (learn, "_track", track)


def _leader_only() -> Replacement:
    usual = believe._weights

    def weights(state: State, moving: np.ndarray) -> np.ndarray:
        return np.eye(E)[usual(state, moving).argmax(axis=1)]

    return believe, "_weights", weights


def _gaussian() -> Replacement:
    usual = believe._kernels

    def kernels(dims: Dims, state: State, contexts: np.ndarray, n: int) -> np.ndarray:
        found = usual(dims, state, contexts, n)
        wobbles, spreads = memory.gaps(dims, state, contexts).swapaxes(0, 1)
        used = found[:, BLIND] > 0.0
        found[:, WIDE] = used * np.exp(-wobbles / memory.reach(state)[:, None])
        found[:, NARROW] = used * np.exp(-spreads / (2.0 * believe.NARROW_WIDTH**2))
        return found

    return believe, "_kernels", kernels


# What all situations share


def _same_shape() -> Replacement:
    usual = learn.track

    def track(state: State, *arguments: Any) -> None:
        usual(state, *arguments)
        state.shape[:] = 1.0

    return learn, "track", track


def _estimated() -> Replacement:
    usual = learn._track

    def track(dims: Dims, state: State, belief: Belief, *arguments: Any) -> None:
        usual(dims, state, belief, *arguments)
        blind = (belief.G[:, BLIND], belief.b[:, BLIND], belief.rest[:, BLIND])
        a = pooled_prior.estimate(pooled_prior.prior(dims, state), *blind, np.zeros(state.size))
        state.curvature[:] = np.where(state.curvature > 0.0, a, 0.0)

    return learn, "_track", track


# Candidates and the choice among them


def _without_hint(_dims: Dims, _state: State, belief: Belief, _rows: np.ndarray, _n: int) -> np.ndarray:
    widest = np.full(belief.optimum.shape[1], 2.0)  # wherever the default is, the box lies within
    return choose._centres(belief, -widest, widest)[:, -1]


NO_TRUST = (
    (learn, "update_trust", lambda *_: None),
    (moving, "residual_trust", lambda squares, _scale: np.ones_like(squares)),
)
NO_LATE_RULE = (learn, "trust_in_sample", lambda state, *_: (np.ones(state.size), False))
NO_EARLY_RULE = (learn, "recheck_early_samples", lambda *_: None)
NO_PIN = (believe, "_pinned", lambda _dims, _state, _default, mean, S, *_: (mean, S))
NO_DIRECTIONS = ((choose, "DIRECTIONS", 0), (choose, "_moves", choose._moves.__wrapped__))  # it keeps what it found
ONE_ESTIMATE = (pooled_prior, "ESTIMATE_NOISES", np.array([1e-2])), (pooled_prior, "ESTIMATE_ODDS", np.zeros(1))


def _one_noise(variance: float) -> tuple[Replacement, ...]:
    """A noise that is told, in units of the curvature squared."""

    def variances(noises: np.ndarray) -> np.ndarray:
        return np.full(noises.shape[:2], variance)

    return tuple((where, "noise_variances", variances) for where in (believe, moving))


def _slots(count: int) -> tuple[Replacement, ...]:
    """A smaller memory, half of which stays sharp."""
    sizes = tuple((where, "SLOTS", count) for where in (states, memory))
    return *sizes, (memory, "SHARP_STEPS", count // 2), (believe, "_rows", believe._rows.__wrapped__)


def _horizon(steps: float) -> tuple[Replacement, ...]:
    return ((choose, "HORIZON_STEPS", steps),)


def _quiet_only(name: str, *replacements: Replacement) -> Ablation:
    return Ablation(name, replacements, in_harder_worlds=False)


QUADRATIC = (
    Ablation(FULL),
    _quiet_only("without expert: all history", *_without(BLIND)),
    _quiet_only("without expert: recent history", *_without(RECENT)),
    _quiet_only("without expert: situations like this one (wide kernel)", *_without(WIDE)),
    _quiet_only("without expert: the most similar situations (narrow kernel)", *_without(NARROW)),
    _quiet_only("without expert: moving optimum", *_without(MOVING)),
    Ablation("contexts hidden (agent rasp-no-memory)", agent="rasp-no-memory"),
    _quiet_only("without both kernels", *_without(WIDE, NARROW)),
    _quiet_only("blind expert only", *_without(RECENT, WIDE, NARROW, MOVING)),
    _quiet_only("Gaussian instead of squared-Gaussian kernels", _gaussian()),
    _quiet_only("gate: uniform weights", *_uniform()),
    Ablation("gate: only the leader has weight", (_leader_only(),)),
    _quiet_only("gate: no prior odds", _prior_scores(_no_odds)),
    _quiet_only("gate: forgetting 0.9", (learn, "KEEP", 0.9)),
    _quiet_only("gate: forgetting 0.999", (learn, "KEEP", 0.999)),
    Ablation("without outlier rule: trust by residual", NO_TRUST),
    Ablation("without outlier rule: one odd sample", (NO_LATE_RULE,)),
    Ablation("without outlier rule: look back at the first samples", (NO_EARLY_RULE,)),
    Ablation("without any outlier rule", (*NO_TRUST, NO_LATE_RULE, NO_EARLY_RULE)),
    _quiet_only("without the pinned level", NO_PIN),
    _quiet_only("without tracking the knobs' shape", _same_shape()),
    _quiet_only("curvature always estimated, never tracked", _estimated()),
    _quiet_only("nothing shared is tracked", (learn, "_track", lambda *_: None)),
    Ablation("curvature estimated under one noise: 0.01", ONE_ESTIMATE),
    _quiet_only("curvature estimated without odds against large noises", (pooled_prior, "ESTIMATE_ODDS", np.zeros(5))),
    Ablation("noise not tracked: 0.0001", _one_noise(1e-4)),
    _quiet_only("noise not tracked: 0.01", *_one_noise(1e-2)),
    Ablation("noise not tracked: 0.1", _one_noise(1e-1)),
    _quiet_only("noise never forgotten", (pooled_prior, "KEEP", 1.0)),
    _quiet_only("moving optimum: no extra steps while young", (moving, "YOUNG_EXTRA_STEPS", 0)),
    _quiet_only("an observation is worth nothing", *_horizon(0.0)),
    _quiet_only("an observation is worth 3 steps", *_horizon(3.0)),
    Ablation("an observation is worth 30 steps", _horizon(30.0)),
    _quiet_only("without the first probe", (choose, "_first_probe", partial(choose._choice, slots=1))),
    _quiet_only("without moves along the least known directions", *NO_DIRECTIONS),
    _quiet_only("without the best point tried", (choose, "_hint", _without_hint)),
    _quiet_only("memory of 48 slots", *_slots(48)),
)


# The Gaussian process, of spaces whose knobs have levels


def _medians(**medians: float) -> Replacement:
    """Other prior medians of hyperparameters; one of NONE that is known for sure takes a part away."""
    sure = 1e-3
    changed = {name: (median, sure if median == NONE else gp_model.PRIORS[name][1]) for name, median in medians.items()}
    return gp_model, "PRIORS", {**gp_model.PRIORS, **changed}


ALL_TRUSTED = (
    (gp_family.GpFamily, "_judge", lambda *_: None),
    (gp_family, "trusted", lambda trust, _odd: np.ones_like(trust)),
)

DISCRETE = (
    Ablation(FULL),
    Ablation("contexts hidden (agent rasp-no-memory)", agent="rasp-no-memory", in_harder_worlds=False),
    _quiet_only("kernel: without the residual", _medians(vr=NONE)),
    _quiet_only("kernel: nothing shared by all contexts", _medians(gs=NONE)),
    _quiet_only("kernel: no effects that only similar contexts share", _medians(gc=NONE, gq=NONE)),
    _quiet_only("kernel: nothing drifts", _medians(gt=NONE, vt=NONE)),
    Ablation("kernel: no hyperparameter steps", ((gp_family, "FIT_FROM_ROWS", 10**9),)),
    Ablation("kernel: Gaussian instead of Student-t noise", ALL_TRUSTED),
    Ablation("without the prior that a default is good", ((gp_knobs, "HARM", 0.0), (gp_knobs, "BOWL", 0.0))),
    Ablation("repeats do not join their row", ((gp_family, "SAME_CONTEXT", 2.0),)),
    _quiet_only("capacity of 50 rows", (gp_family, "MOST_ROWS", 50)),
    _quiet_only("candidates: none with several knobs moved", (gp_search, "SEVERAL", 0)),
    _quiet_only("candidates: none with all scales moved a little", (gp_search, "ELSEWHERE", 0)),
    Ablation("choice: least mean, nothing is worth knowing", ((gp_belief, "MOST_HORIZON", 0.0),)),
    Ablation("choice: knowledge pays for at most 10 visits", ((gp_belief, "MOST_HORIZON", 10.0),)),
    Ablation("choice: the value of one look only", ((gp_value, "LOOKS", np.array([1.0])),)),
    _quiet_only("choice: the default is not run first where it did not run yet", (gp_family, "BASELINE_SHARE", -1e9)),
)
FAMILIES = {
    name: {ablation.name: ablation for ablation in group}
    for name, group in (("quadratic", QUADRATIC), ("discrete", DISCRETE))
}
