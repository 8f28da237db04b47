"""Which parts a tuner is made of, and with which constants; nothing else.

A preset is a name and a table of constants: enough to be written into a snapshot and built again.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from rasp_tuner.core.checks import number, show
from rasp_tuner.core.numerics import MOMENTUM
from rasp_tuner.engine.context_gate import Screened
from rasp_tuner.engine.discrete.family import Discrete
from rasp_tuner.engine.engine import Engine
from rasp_tuner.engine.family import Family
from rasp_tuner.engine.gate import EvidenceGate
from rasp_tuner.engine.quadratic.family import Quadratic
from rasp_tuner.engine.quadratic.moving_optimum import WINDOW
from rasp_tuner.errors import InvalidSpace
from rasp_tuner.paper.adaptation import ANOMALY_THRESHOLD, DISAGREEMENT_THRESHOLD, HybridAdaptation, ReplayBuffer
from rasp_tuner.paper.algorithm import PaperStack
from rasp_tuner.paper.candidates import CandidatePolicy
from rasp_tuner.paper.composer import RealErrorComposer, RescoringComposer
from rasp_tuner.paper.load_experts import load_neural
from rasp_tuner.paper.memory import PromptMemory
from rasp_tuner.space import Layout
from rasp_tuner.types import Direction, Metric, Stack

Constants = Mapping[str, float]

PAPER: Constants = {
    # Table hyperparams
    "memory_size": 200,
    "top_k": 3,
    "temperature": 1.0,
    "novelty_threshold": 0.7,
    "prompt_dim": 32,
    "experts": 6,
    "hidden_1": 48,
    "hidden_2": 24,
    "gate_hidden": 48,
    "min_active": 2,
    "doubt_share": 0.55,
    "momentum": MOMENTUM,
    "stay": 0.65,
    "kappa": 2.0,
    "prompt_rate": 5e-3,
    "prompt_penalty": 1e-4,
    "full_rate": 1e-4,
    "anchor_penalty": 3e-4,
    "base_step": 0.15,
    # left open by the paper, chosen once
    "perturbations": 6,
    "replay_size": 256,
    "batch_size": 32,
    "full_steps": 5,
    "anomaly_threshold": ANOMALY_THRESHOLD,
    "disagreement_threshold": DISAGREEMENT_THRESHOLD,
}

DEFAULT: Constants = {
    "switching_cost": 0.0,  # in units of the target: of the metric, if there is one
    "guard": -1.0,  # share of the default's loss by which a suggestion may be worse; below 0: no guard
    "screen": 0.0,  # above 0: contexts have a say only once they have shown that they help
    "anomaly_threshold": 3.0,
    "disagreement_threshold": DISAGREEMENT_THRESHOLD,
    "momentum": MOMENTUM,
}

FEW = 3  # levels: a space where no knob has more is left to the family of discrete knobs
FAMILY_ODDS = 6.0  # nats between the families of an all-discrete and an all-continuous space, either way

_RANGES = {  # of constants that are not just any number from 0 up
    "temperature": (1e-9, 1e9),
    "novelty_threshold": (0.0, 1.0),
    "momentum": (1e-6, 1.0 - 1e-6),
    "stay": (0.0, 1.0),
    "doubt_share": (0.0, 1.0),
    "prompt_rate": (0.0, 1.0),
    "prompt_penalty": (0.0, 1.0),
    "full_rate": (0.0, 1.0),
    "anchor_penalty": (0.0, 1.0),
    "guard": (-1.0, 1e9),
    "switching_cost": (0.0, 1e300),
}


@dataclass(frozen=True)
class Preset:
    """A stack by name with its constants; build one with `paper(...)` or `default(...)`."""

    name: str
    constants: Constants

    def build(
        self, layout: Layout, context_dim: int, metrics: Mapping[str, Metric | Direction], rng: np.random.Generator
    ) -> Stack:
        return _BUILDERS[self.name](self.constants, layout, context_dim, metrics, rng)


def paper(**changes: float) -> Preset:
    """The paper's stack to the letter, with any constants of `PAPER` changed.

    >>> paper(base_step=0.25).constants["base_step"]
    0.25
    """
    return named("paper", changes)


def default(**changes: float) -> Preset:
    """What users get unless they ask otherwise."""
    return named("default", changes)


def named(name: object, changes: object = None) -> Preset:
    """The preset called `name`, with some constants changed; a typed error names the choices."""
    if not isinstance(name, str) or name not in _CONSTANTS:
        raise InvalidSpace(f"preset must be one of {list(NAMES)} or a Preset, got {show(name)}")
    constants = dict(_CONSTANTS[name])
    if changes is not None and not isinstance(changes, Mapping):
        raise InvalidSpace(f"preset constants must be a mapping, got {show(changes)}")
    for key, value in (changes or {}).items():
        if key not in constants:
            raise InvalidSpace(f"preset {name!r} has no constant {show(key)}; it has {list(constants)}")
        constants[key] = _like(constants[key], key, value)
    return Preset(name, constants)


def _like(usual: float, key: str, value: object) -> float:
    """`value` in its legal range, and whole where the usual one is."""
    given = number(f"preset constant {key!r}", value, InvalidSpace)
    whole = isinstance(usual, int)
    low, high = (1, 10_000) if whole else _RANGES.get(key, (0.0, 1e9))
    if not low <= given <= high or (whole and not given.is_integer()):
        kind = "a whole number" if whole else "a number"
        raise InvalidSpace(f"preset constant {key!r} must be {kind} from {low:g} to {high:g}, got {show(value)}")
    return int(given) if whole else given


def _build_paper(
    k: Constants, layout: Layout, context_dim: int, metrics: Mapping[str, Metric | Direction], rng: np.random.Generator
) -> Stack:
    dim, prompt_dim = len(layout.default), int(k["prompt_dim"])
    return PaperStack(
        composer=RealErrorComposer(metrics, k["momentum"]),
        memory=PromptMemory(
            dim,
            context_dim,
            prompt_dim,
            size=int(k["memory_size"]),
            top_k=int(k["top_k"]),
            temperature=k["temperature"],
            novelty_threshold=k["novelty_threshold"],
            momentum=k["momentum"],
        ),
        surrogate=load_neural().PromptMoE(
            dim,
            context_dim,
            prompt_dim,
            rng,
            experts=int(k["experts"]),
            hidden=(int(k["hidden_1"]), int(k["hidden_2"])),
            gate_hidden=int(k["gate_hidden"]),
            min_active=int(k["min_active"]),
            doubt_share=k["doubt_share"],
            prompt_rate=k["prompt_rate"],
            prompt_penalty=k["prompt_penalty"],
            full_rate=k["full_rate"],
            anchor_penalty=k["anchor_penalty"],
            full_steps=int(k["full_steps"]),
        ),
        policy=CandidatePolicy(
            base_step=k["base_step"], kappa=k["kappa"], stay=k["stay"], perturbations=int(k["perturbations"])
        ),
        adaptation=HybridAdaptation(k["anomaly_threshold"], k["disagreement_threshold"], k["momentum"]),
        replay=ReplayBuffer(dim, context_dim, int(k["replay_size"])),
        batch_size=int(k["batch_size"]),
    )


def _build_default(
    k: Constants, layout: Layout, context_dim: int, metrics: Mapping[str, Metric | Direction], _: np.random.Generator
) -> Stack:
    seeing = _engine(k, layout, context_dim, metrics)
    return Screened(seeing, _engine(k, layout, 0, metrics)) if k["screen"] > 0.0 and context_dim else seeing


def _engine(k: Constants, layout: Layout, context_dim: int, metrics: Mapping[str, Metric | Direction]) -> Engine:
    composer = RescoringComposer(metrics)
    families: list[Family] = []
    odds = []
    discrete = [levels is not None for levels in layout.levels]
    few = [levels is not None and len(levels) <= FEW for levels in layout.levels]
    share = sum(discrete) / len(discrete)
    if not all(few):
        families.append(Quadratic(layout.default, context_dim, len(composer.metrics)))
        odds.append(0.0)
    if any(discrete):
        window = 0 if families else WINDOW  # family Q keeps one
        families.append(Discrete(layout.levels, layout.unordered, layout.default, context_dim, window))
        odds.append(FAMILY_ODDS * (2.0 * share - 1.0))
    gate = EvidenceGate(families, odds)
    gate.reweigh(composer.weights)
    return Engine(
        composer,
        gate,
        HybridAdaptation(k["anomaly_threshold"], k["disagreement_threshold"], k["momentum"]),
        layout.default,
        switching_cost=k["switching_cost"],
        guard=k["guard"] if k["guard"] >= 0.0 else None,
    )


Builder = Callable[[Constants, Layout, int, Mapping[str, Metric | Direction], np.random.Generator], Stack]
_CONSTANTS: dict[str, Constants] = {"paper": PAPER, "default": DEFAULT}
NAMES = tuple(_CONSTANTS)
_BUILDERS: dict[str, Builder] = {"paper": _build_paper, "default": _build_default}
