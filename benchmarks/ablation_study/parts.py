"""The parts of the engine that are taken away, one at a time.

An ablation is a list of replacements: (where, name, instead), made for one run and undone after it. The product has no
flags for them. An expert is removed by a prior score of minus infinity; its minimiser is no candidate then, either.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from rasp_tuner.engine import preset
from rasp_tuner.engine.discrete import belief, knobs
from rasp_tuner.engine.discrete.belief import DiscreteBelief
from rasp_tuner.engine.discrete.family import DiscreteFamily
from rasp_tuner.engine.evidence import Evidence
from rasp_tuner.engine.family import Choice, Family
from rasp_tuner.engine.gate import EvidenceGate
from rasp_tuner.engine.quadratic import belief as quadratic_belief
from rasp_tuner.engine.quadratic import family as quadratic
from rasp_tuner.engine.quadratic import moving_optimum, noise, prior
from rasp_tuner.engine.quadratic.belief import QuadraticBelief
from rasp_tuner.engine.quadratic.family import QuadraticFamily
from rasp_tuner.engine.quadratic.noise import TrackedNoise
from rasp_tuner.engine.quadratic.prior import SharedShape

BLIND, RECENT, WIDE, NARROW, MOVING = range(5)  # the experts' scores [L + 1]
FULL = "full engine"
ALL_OF_IT = 1e6  # odds, in nats, of a family that shall have all the weight
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


def _rescored(change: Callable[[Evidence], None]) -> Replacement:
    """Every fresh quadratic family with its evidence changed."""
    usual = QuadraticFamily.__init__

    def fresh(self: QuadraticFamily, *arguments: object) -> None:
        usual(self, *arguments)
        change(self.evidence)

    return QuadraticFamily, "__init__", fresh


def _without(*experts: int) -> tuple[Replacement, ...]:
    """Experts whose prior score is minus infinity; the mean of the others' minimisers stands where theirs were."""
    usual = QuadraticBelief._centres

    def remove(evidence: Evidence) -> None:
        evidence.prior[list(experts)] = -np.inf
        evidence.scores = evidence.prior.copy()

    def centres(self: QuadraticBelief) -> np.ndarray:
        each = usual(self)
        each[:-1][self.weights == 0.0] = each[-1]
        return each

    return _rescored(remove), (QuadraticBelief, "_centres", centres)


def _forgetting(keep: float) -> Replacement:
    return _rescored(lambda evidence: setattr(evidence, "keep", keep))


def _uniform() -> Replacement:
    def flatten(evidence: Evidence) -> None:
        evidence.prior[:] = 0.0
        evidence.scores = evidence.prior.copy()
        evidence.observe = lambda _densities: None  # type: ignore[method-assign]

    return _rescored(flatten)


def _leader_only(scores: np.ndarray) -> np.ndarray:
    weights = np.zeros(len(scores))
    weights[int(scores.argmax())] = 1.0
    return weights


def _gaussian(self: QuadraticFamily, context: np.ndarray) -> np.ndarray:
    wobbles, spreads = self.slots.gaps(context)
    kernels = np.ones((quadratic.L, self.slots.count))
    kernels[RECENT] = np.exp(-self.slots.ages / quadratic.RECENT_STEPS)
    kernels[WIDE] = np.exp(-wobbles / self.slots.reach)
    kernels[NARROW] = np.exp(-spreads / (2.0 * quadratic.NARROW_WIDTH**2))
    return kernels


# What all situations share


def _same_shape() -> Replacement:
    usual = SharedShape.track

    def track(self: SharedShape, *arguments: object) -> None:
        usual(self, *arguments)
        self.shape = np.ones(self.dim)

    return SharedShape, "track", track


def _estimated() -> Replacement:
    usual = QuadraticFamily._track

    def track(self: QuadraticFamily, belief: QuadraticBelief) -> None:
        usual(self, belief)
        if self.shared.curvature:
            (G, b, rest), _ = self._pool(self.slots.trust[:1])
            self.shared.curvature = self.shared.estimate(G[0], b[0], float(rest[0]), 0.0)
            self.shared.refresh()

    return QuadraticFamily, "_track", track


# Candidates and the choice among them


def _without_probe() -> Replacement:
    usual = QuadraticBelief.choose

    def choose(self: QuadraticBelief, rng: np.random.Generator) -> Choice:
        if len(self.targets) >= 2:
            return usual(self, rng)
        twice = {name: np.repeat(getattr(self, name), 2, axis=0) for name in ("tried", "targets")}
        return usual(replace(self, kernels=np.repeat(self.kernels, 2, axis=1), **twice), rng)  # the only sample, twice

    return QuadraticBelief, "choose", choose


def _without_hint(self: QuadraticBelief) -> np.ndarray:
    return self._centres()[-1]


NO_TRUST = (
    (QuadraticFamily, "_update_trust", lambda _self, _belief: None),
    (moving_optimum, "residual_trust", lambda squares, _scale: np.ones_like(squares)),
)
NO_LATE_RULE = (QuadraticFamily, "_trust_in_sample", lambda _self, _densities, _belief: 1.0)
NO_EARLY_RULE = (QuadraticFamily, "_recheck_early_samples", lambda _self: None)
NO_PIN = (QuadraticFamily, "_pin", lambda _self, mean, S, _level: (mean, S))


def _one_noise(variance: float) -> tuple[Replacement, ...]:
    """A noise that is told, in units of the curvature squared."""
    return ((TrackedNoise, "variances", property(lambda self: np.full(len(self.state()["scores"]), variance))),)


def _horizon(steps: float) -> tuple[Replacement, ...]:
    return ((quadratic_belief, "HORIZON_STEPS", steps),)


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
    _quiet_only("Gaussian instead of squared-Gaussian kernels", (QuadraticFamily, "_kernels", _gaussian)),
    _quiet_only("gate: uniform weights", _uniform()),
    Ablation("gate: only the leader has weight", ((quadratic, "softmax", _leader_only),)),
    _quiet_only("gate: no prior odds", (quadratic, "LOCAL_ODDS", 0.0)),
    _quiet_only("gate: forgetting 0.9", _forgetting(0.9)),
    _quiet_only("gate: forgetting 0.999", _forgetting(0.999)),
    Ablation("without outlier rule: trust by residual", NO_TRUST),
    Ablation("without outlier rule: one odd sample", (NO_LATE_RULE,)),
    Ablation("without outlier rule: look back at the first samples", (NO_EARLY_RULE,)),
    Ablation("without any outlier rule", (*NO_TRUST, NO_LATE_RULE, NO_EARLY_RULE)),
    _quiet_only("without the pinned level", NO_PIN),
    _quiet_only("without tracking the knobs' shape", _same_shape()),
    _quiet_only("curvature always estimated, never tracked", _estimated()),
    _quiet_only("nothing shared is tracked", (QuadraticFamily, "_track", lambda _self, _belief: None)),
    Ablation("curvature estimated under one noise: 0.01", ((prior, "NOISES", np.array([1e-2])),)),
    _quiet_only("curvature estimated without odds against large noises", (prior, "NOISE_ODDS", 0.0)),
    Ablation("noise not tracked: 0.0001", _one_noise(1e-4)),
    _quiet_only("noise not tracked: 0.01", *_one_noise(1e-2)),
    Ablation("noise not tracked: 0.1", _one_noise(1e-1)),
    _quiet_only("noise never forgotten", (noise, "KEEP", 1.0)),
    _quiet_only("moving optimum: no extra steps while young", (moving_optimum, "YOUNG_EXTRA_STEPS", 0)),
    _quiet_only("an observation is worth nothing", *_horizon(0.0)),
    _quiet_only("an observation is worth 3 steps", *_horizon(3.0)),
    Ablation("an observation is worth 30 steps", _horizon(30.0)),
    _quiet_only("without the first probe", _without_probe()),
    _quiet_only("without moves along the least known directions", (quadratic_belief, "DIRECTIONS", 0)),
    _quiet_only("without the best point tried", (QuadraticBelief, "_hint", _without_hint)),
    _quiet_only("memory of 48 slots", (quadratic, "SLOTS", 48)),
)


# The discrete family


def _constants(**changed: float | tuple[float, ...]) -> tuple[Replacement, ...]:
    """Every fresh discrete family with other constants."""
    usual = DiscreteFamily.__init__

    def fresh(self: DiscreteFamily, *arguments: object) -> None:
        usual(self, *arguments, **changed)

    return ((DiscreteFamily, "__init__", fresh),)


def _family_odds(nats: float) -> tuple[Replacement, ...]:
    """Odds for the discrete family beside the quadratic one, whatever the space."""

    def gate(families: Sequence[Family], odds: Sequence[float]) -> EvidenceGate:
        return EvidenceGate(families, [0.0, nats] if len(families) == 2 else odds)

    return ((preset, "EvidenceGate", gate),)


def _no_additive(self: DiscreteBelief, *_: object) -> np.ndarray:
    return np.zeros((0, self._fit.knobs.dim))


DISCRETE = (
    Ablation(FULL),
    Ablation("discrete family only", _family_odds(ALL_OF_IT)),
    Ablation("quadratic family only", _family_odds(-ALL_OF_IT)),
    Ablation("no prior odds between the families", _family_odds(0.0), in_harder_worlds=False),
    Ablation("contexts hidden (agent rasp-no-memory)", agent="rasp-no-memory", in_harder_worlds=False),
    Ablation("kernel: without main effects", _constants(va=NONE), in_harder_worlds=False),
    Ablation("kernel: without the rugged term", _constants(vp=NONE), in_harder_worlds=False),
    Ablation("kernel: nothing shared by all contexts (rho 0)", _constants(rho=NONE), in_harder_worlds=False),
    Ablation("kernel: no hyperparameter steps", ((DiscreteFamily, "_climb", lambda _self, _gradient, _noise: None),)),
    Ablation("kernel: Gaussian instead of Student-t noise", _constants(freedom=1e9)),
    Ablation("without the prior slope away from the default", ((knobs, "DISTANCE_SLOPE", 0.0),)),
    Ablation("without compression of bad values", _constants(warp=1e9)),
    Ablation("without merging equal points", _constants(similar=2.0)),
    Ablation("equal points averaged for ever", _constants(memory=1e9), in_harder_worlds=False),
    Ablation("capacity of 50 rows", _constants(capacity=50), in_harder_worlds=False),
    Ablation("candidates: without mutations", _constants(mutants=0), in_harder_worlds=False),
    Ablation("candidates: without crossovers", _constants(crossovers=0), in_harder_worlds=False),
    Ablation(
        "candidates: without main effects", ((DiscreteBelief, "_additive", _no_additive),), in_harder_worlds=False
    ),
    Ablation("mutations: all knobs alike", ((knobs, "FOCUSED_SHARE", 0.0),), in_harder_worlds=False),
    Ablation("mutations: none goes back to the default", _constants(home=0.0), in_harder_worlds=False),
    Ablation("choice: least mean, nothing is worth knowing", _constants(horizon=0.0)),
    Ablation("choice: knowledge pays for 10 steps", _constants(horizon=10.0)),
    Ablation("choice: knowledge pays for 200 steps", _constants(horizon=200.0)),
    Ablation("choice: the value of one look only", ((belief, "LOOKS", (1.0,)),)),
    Ablation("choice: no first look at every knob", ((DiscreteBelief, "_first_look", lambda *_: None),)),
    Ablation("rows forget after 8 samples", _constants(memory=8.0)),
)
FAMILIES = {
    name: {ablation.name: ablation for ablation in group}
    for name, group in (("quadratic", QUADRATIC), ("discrete", DISCRETE))
}
