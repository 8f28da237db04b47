"""The parts of the engine that are taken away, one at a time.

An ablation is a list of replacements: (where, name, instead), made for one run and undone after it. The product has no
flags for them. Those of the quadratic family replace functions and constants of the kernel on arrays, which is what all
runs of this study compute with: compiled code has no parts to take away. An expert is removed by a hopeless prior
score; its minimiser is no candidate then, either.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from rasp_tuner.engine.gp import belief as gp_belief
from rasp_tuner.engine.gp import family as gp_family
from rasp_tuner.engine.gp import knobs as gp_knobs
from rasp_tuner.engine.gp import model, search, value
from rasp_tuner.engine.kernel import believe, choose, learn, memory, moving, pooled_prior
from rasp_tuner.engine.kernel import state as states
from rasp_tuner.engine.kernel.belief import SlotBelief
from rasp_tuner.engine.kernel.state import Dims, E, State

BLIND, RECENT, WIDE, NARROW, MOVING = range(E)  # the experts
FULL = "full engine"
NONE = 1e-9  # of a variance or share that shall play no part
NEVER = -1e6  # a score that no expert makes up for

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
    """Experts whose prior score is hopeless; the mean of the others' minimisers stands where theirs were."""
    usual = choose._centres

    def remove(scores: np.ndarray) -> None:
        scores[list(experts)] = NEVER

    def centres(belief: SlotBelief, low: np.ndarray, high: np.ndarray) -> np.ndarray:
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

    def weights(state: State, moving: np.ndarray, similar: np.ndarray) -> np.ndarray:
        return np.eye(E)[usual(state, moving, similar).argmax(axis=1)]

    return believe, "_weights", weights


def _normal_nodes(rows: int) -> np.ndarray:
    del rows  # however few they are
    weights = np.exp(-0.5 * value.NODES**2) * value.STEPS_BETWEEN
    return np.stack([value.NODES, weights / weights.sum()])


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


def _estimated() -> Replacement:
    usual = learn._track

    def track(dims: Dims, state: State, belief: SlotBelief, *arguments: Any) -> None:
        usual(dims, state, belief, *arguments)
        blind = (belief.G[:, BLIND], belief.b[:, BLIND], belief.rest[:, BLIND])
        a = pooled_prior.estimate(pooled_prior.prior(dims, state), *blind, np.zeros(state.size))
        state.curvature[:] = np.where(state.curvature > 0.0, a, 0.0)

    return learn, "_track", track


# Candidates and the choice among them


def _without_hint(_dims: Dims, _state: State, belief: SlotBelief, _rows: np.ndarray) -> np.ndarray:
    widest = np.full(belief.optimum.shape[1], 2.0)  # wherever the default is, the box lies within
    return choose._centres(belief, -widest, widest)[:, -1]


NO_TRUST = (
    (learn, "update_trust", lambda *_: None),
    (moving, "residual_trust", lambda squares, _scale: np.ones_like(squares)),
)
NO_LATE_RULE = (learn, "trust_in_sample", lambda state, *_: (np.ones(state.size), np.zeros(state.size, dtype=bool)))
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
    _quiet_only("without the first probe", (choose, "_first_probe", choose._choice)),
    _quiet_only("without moves along the least known directions", *NO_DIRECTIONS),
    _quiet_only("without the best point tried", (choose, "_hint", _without_hint)),
    _quiet_only("memory of 48 slots", *_slots(48)),
)


# The Gaussian process, where a knob has levels


def _priors(**medians: float) -> tuple[Replacement, ...]:
    """Other prior medians of hyperparameters; what is all but zero stays there."""
    changed = {name: (median, 0.01 if median == NONE else model.PRIORS[name][1]) for name, median in medians.items()}
    return ((model, "PRIORS", {**model.PRIORS, **changed}),)


def _visits(most: float) -> tuple[Replacement, ...]:
    """Visits to come, in which knowledge pays."""
    return ((gp_belief, "FIRST_HORIZON", most), (gp_belief, "MOST_HORIZON", most))


GAUSSIAN_PROCESS = (
    Ablation(FULL),
    Ablation("contexts hidden (agent rasp-no-memory)", agent="rasp-no-memory", in_harder_worlds=False),
    Ablation("nothing shared by all contexts", _priors(gs=NONE)),
    Ablation("no effects of their own in a context", _priors(gc=NONE, gq=NONE)),
    Ablation("choices and switches like other knobs (gq 0)", _priors(gq=NONE)),
    Ablation("nothing drifts with time", _priors(gt=NONE, vt=NONE), in_harder_worlds=False),
    Ablation("without the residual", _priors(vr=NONE)),
    Ablation("no effects of single levels", _priors(hot=NONE)),
    Ablation("no hyperparameter steps", ((model.Climb, "moved", lambda self, _slope: self),)),
    Ablation(
        "all rows trusted",
        (
            (gp_family, "SURPRISING", 1e300),
            (gp_family, "trusted", lambda squares, *_: np.ones_like(squares)),
            (model, "suspects", lambda y, *_: np.zeros(len(y), dtype=bool)),
        ),
    ),
    Ablation("repeats are rows of their own", ((gp_family, "SAME_CONTEXT", 2.0),)),
    Ablation("at most 50 rows", ((gp_family, "MOST_ROWS", 50),), in_harder_worlds=False),
    Ablation("the default never runs first", ((gp_family, "BASELINE_SHARE", -1.0),)),
    Ablation("no harm expected away from the default", ((gp_knobs, "HARM", 0.0), (gp_knobs, "BOWL", 0.0))),
    Ablation("no candidate moves several knobs", ((search, "SEVERAL", 0), (search, "ELSEWHERE", 0))),
    Ablation("nothing is worth knowing", _visits(0.0)),
    Ablation("knowledge pays for 10 visits", _visits(10.0)),
    Ablation("knowledge pays for 200 visits", _visits(200.0)),
    Ablation("the value of one look only", ((value, "LOOKS", np.array([1.0])),)),
    Ablation("normal tails of what a look may show", ((value, "weighted_nodes", _normal_nodes),)),
)
FAMILIES = {
    name: {ablation.name: ablation for ablation in group}
    for name, group in (("quadratic", QUADRATIC), ("discrete", GAUSSIAN_PROCESS))
}
