"""The constants of preset `paper`, and which parts they go to."""

from collections.abc import Mapping

import numpy as np

from rasp_tuner.base.checks import number, show
from rasp_tuner.base.numerics import MOMENTUM
from rasp_tuner.errors import InvalidSpace
from rasp_tuner.optimizer.metric_table import MetricTable
from rasp_tuner.optimizer.preset import Metrics, PresetKind, Settings
from rasp_tuner.paper.adaptation import ANOMALY_THRESHOLD, DISAGREEMENT_THRESHOLD, HybridAdaptation, ReplayBuffer
from rasp_tuner.paper.algorithm import PaperOptimizer
from rasp_tuner.paper.candidates import CandidatePolicy
from rasp_tuner.paper.composer import RealErrorComposer
from rasp_tuner.paper.load_experts import load_experts
from rasp_tuner.paper.memory import PromptMemory
from rasp_tuner.space import Layout

PAPER: Mapping[str, float] = {
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

MOST_PAPER_NUMBERS = 2**27  # that memory and replay may take: a gigabyte

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
}


def _check(key: str, value: object) -> float:
    """`value` in its legal range, and whole where the usual one is."""
    given = number(f"preset constant {key!r}", value, InvalidSpace)
    whole = isinstance(PAPER[key], int)
    low, high = (1, 10_000) if whole else _RANGES.get(key, (0.0, 1e9))
    if not low <= given <= high or (whole and not given.is_integer()):
        kind = "a whole number" if whole else "a number"
        raise InvalidSpace(f"preset constant {key!r} must be {kind} from {low:g} to {high:g}, got {show(value)}")
    return int(given) if whole else given


def _build(
    settings: Settings, layout: Layout, context_dim: int, metrics: Metrics, rng: np.random.Generator
) -> PaperOptimizer:
    for name, metric in MetricTable(metrics).metrics.items():
        if metric.scale == "log":
            raise InvalidSpace(
                f"metrics[{name!r}]: preset 'paper' knows no scale 'log'; take preset 'default', or tell the logarithm"
            )
        if metric.limit is not None:
            raise InvalidSpace(f"metrics[{name!r}]: preset 'paper' knows no limits; take preset 'default'")
    k = {name: float(value or 0.0) for name, value in settings.items()}
    dim, prompt_dim = len(layout.default), int(k["prompt_dim"])
    room = int(k["memory_size"] + k["replay_size"]) * (dim + context_dim + prompt_dim)
    if room > MOST_PAPER_NUMBERS:
        raise InvalidSpace(f"memory_size and replay_size take {room:,} numbers here, more than {MOST_PAPER_NUMBERS:,}")
    return PaperOptimizer(
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
        surrogate=load_experts().PromptMoE(
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


def _least_numbers(settings: Settings, layout: Layout, context_dim: int) -> int:
    """Of all weights, and of what they are anchored to."""
    experts, first, second, gate, prompt = (
        int(settings[name] or 0) for name in ("experts", "hidden_1", "hidden_2", "gate_hidden", "prompt_dim")
    )
    width = len(layout.default) + context_dim + prompt
    return 2 * (experts * (width * first + first * second + second) + width * gate + gate * experts)


KIND = PresetKind(PAPER, _check, _build, _least_numbers)
