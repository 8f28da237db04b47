"""`rasp-repaired`: the paper's architecture with the fewest changes that make it work (docs/PAPER.md).

Composer, prompt memory, Prompt-MoE, prompt-only and full updates, and the LCB over candidates are the paper's. What is
changed is a setting each, so that it can be taken back alone, as in rasp-repaired[rescored=0]; CHANGES has them all.

rescored     1: samples in replay and memory are scored again under today's moments: an old error and a new one mean the
             same then
closed_form  1: a full update solves the paper's L_full for the output layer of each expert, on all of the replay,
             instead of five steps of Adam. Experts that differ by their anchors alone disagree where there is no data
             (anchored ensembles). 0: the paper's networks and updates
full_always  1: a full update at every step; at ordinary ones prompts learn first, as in the paper
theta_scale  knobs count this much in the input of the networks and contexts 1, however many there are; 0: as they come
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

import numpy as np

from rasp_lab.bench.agents import paper_readings
from rasp_lab.bench.agents.paper_readings import OPEN_CHOICES, Reading, ReadingOptimizer
from rasp_lab.bench.domains.base import Task
from rasp_tuner.base.checks import number
from rasp_tuner.base.numerics import EPSILON, Array
from rasp_tuner.errors import InvalidSpace
from rasp_tuner.optimizer import preset as presets
from rasp_tuner.optimizer.optimizer import FAILED_ERROR, Asked, LearnResult, Repeats
from rasp_tuner.optimizer.preset import Metrics, PresetKind, Setting, Settings
from rasp_tuner.paper import PAPER
from rasp_tuner.paper.algorithm import PaperOptimizer
from rasp_tuner.paper.preset import KIND as PAPER_KIND
from rasp_tuner.paper.surrogate import Prediction, Retrieval, Surrogate, TrainingBatch
from rasp_tuner.space import Layout

NAME = "paper-repaired"
MOST_Z = 500.0  # beyond it a logistic is 0 or 1
MOST_SCALE = 100.0

CHANGES: Mapping[str, float] = {  # of constants and open choices; the paper's own: paper_readings and PAPER
    "ema_start": 2,
    "rescored": 1,
    "closed_form": 1,
    "theta_scale": 3.0,
    "full_always": 1,
    "top_k": 1,
    "stay": 0.0,
    "kappa": 0.5,
    "perturbations": 62,  # with the gradient step and the hint 64 candidates
}


class AnchoredMoE:
    """The paper's Prompt-MoE in NumPy, of which a full update solves the output layers; hidden layers and gate stay."""

    def __init__(self, dim: int, context_dim: int, k: Mapping[str, float], rng: np.random.Generator) -> None:
        self.dim, self.experts, self.k = dim, int(k["experts"]), k
        width = dim + context_dim + int(k["prompt_dim"])
        first, second, gate = (int(k[name]) for name in ("hidden_1", "hidden_2", "gate_hidden"))
        self.w1, self.b1 = _layer((self.experts, width, first), rng)
        self.w2, self.b2 = _layer((self.experts, first, second), rng)
        weights, bias = _layer((self.experts, second, 1), rng)
        self.out = self.anchor = np.concatenate([weights, bias], axis=1)[..., 0]  # [E, h + 1]; the last is the bias
        self.g1, self.c1 = _layer((width, gate), rng)
        self.g2, self.c2 = _layer((gate, self.experts), rng)
        self.shift, self.scale = np.zeros(width), np.ones(width)
        if k["theta_scale"]:
            self.shift[:dim] = 0.5
            self.scale[:dim] = k["theta_scale"] * math.sqrt(width / dim)
            self.scale[dim : dim + context_dim] = math.sqrt(width / max(context_dim, 1))

    def predict(self, points: Array, seen: Retrieval, doubt: float | None = None) -> Prediction:
        inputs = self._inputs(points, seen.context, seen.prompt)
        outputs, gate = self._outputs(self._hidden(inputs)[1]), self._gate(inputs)[1]
        if doubt is not None:
            gate = self._top(gate, doubt, seen.novelty)
        mean = (gate * outputs).sum(axis=1)
        return Prediction(mean, (gate * (outputs - mean[:, None]) ** 2).sum(axis=1), gate)

    def gradient(self, point: Array, seen: Retrieval) -> Array:
        return self._slope(point, seen)[1][: self.dim]

    def update_prompts_only(self, point: Array, seen: Retrieval, error: float) -> Array:
        """The paper's step: SGD on SmoothL1 and a penalty, for the retrieved prompts alone."""
        mean, slope = self._slope(point, seen)
        push = min(max(mean - error, -1.0), 1.0)  # the slope of SmoothL1
        own = push * np.outer(seen.weights, slope[len(slope) - seen.prompts.shape[1] :])
        moved: Array = seen.prompts - self.k["prompt_rate"] * (own + 2.0 * self.k["prompt_penalty"] * seen.prompts)
        return moved

    def update_full_emergency(self, batch: TrainingBatch) -> None:
        """Each expert's least mean squared error on the batch plus anchor penalty, by its output layer."""
        rows = np.hstack([batch.points, batch.contexts, batch.prompts])
        hidden = self._with_bias(self._hidden((rows - self.shift) * self.scale)[1])  # [E, n, h + 1]
        share = hidden.swapaxes(1, 2) / len(rows)
        rest = batch.errors[:, None] - hidden @ self.anchor[..., None]
        curvature = share @ hidden + self.k["anchor_penalty"] * np.eye(hidden.shape[2])
        self.out = self.anchor + np.linalg.solve(curvature, share @ rest)[..., 0]

    def state(self) -> dict[str, Array]:
        return {"out": self.out}

    def restore(self, state: Mapping[str, Array]) -> None:
        self.out = state["out"]

    def _inputs(self, points: Array, context: Array, prompt: Array) -> Array:
        tail = np.concatenate([context, prompt])
        rows = np.hstack([points, np.broadcast_to(tail, (len(points), len(tail)))])
        scaled: Array = (rows - self.shift) * self.scale
        return scaled

    def _hidden(self, inputs: Array) -> tuple[Array, Array]:
        """Both hidden layers of all experts, [E, n, 48] and [E, n, 24]."""
        first = np.maximum(inputs @ self.w1 + self.b1, 0.0)
        return first, np.maximum(first @ self.w2 + self.b2, 0.0)

    def _outputs(self, hidden: Array) -> Array:
        outputs: Array = (self._with_bias(hidden) @ self.out[..., None])[..., 0].T  # [n, E]
        return outputs

    @staticmethod
    def _with_bias(hidden: Array) -> Array:
        return np.concatenate([hidden, np.ones((*hidden.shape[:2], 1))], axis=2)

    def _gate(self, inputs: Array) -> tuple[Array, Array]:
        """The gate's hidden layer [n, 48] and its weights [n, E]."""
        hidden = np.maximum(inputs @ self.g1 + self.c1, 0.0)
        logits = hidden @ self.g2 + self.c2
        grown = np.exp(logits - logits.max(axis=1, keepdims=True))
        return hidden, grown / grown.sum(axis=1, keepdims=True)

    def _top(self, gate: Array, doubt: float, novelty: float) -> Array:
        """Adaptive top-k, as in the paper: the idle experts have no weight."""
        mix = self.k["doubt_share"] * doubt + (1.0 - self.k["doubt_share"]) * novelty
        least = min(self.k["min_active"], self.experts)
        idle = self.experts - round(least + (self.experts - least) * mix)
        kept = gate.copy()
        np.put_along_axis(kept, np.argsort(gate, axis=1)[:, :idle], 0.0, axis=1)
        active: Array = kept / kept.sum(axis=1, keepdims=True)
        return active

    def _slope(self, point: Array, seen: Retrieval) -> tuple[float, Array]:
        """The mixture's mean at a point, and its slope by the unscaled input [D]."""
        inputs = self._inputs(point[None], seen.context, seen.prompt)
        first, second = self._hidden(inputs)
        hidden, gate = self._gate(inputs)
        outputs, weights = self._outputs(second)[0], gate[0]
        mean = float(weights @ outputs)
        back = (self.w2 @ (self.out[:, :-1] * (second[:, 0] > 0.0))[..., None])[..., 0] * (first[:, 0] > 0.0)
        by_experts = weights @ (self.w1 @ back[..., None])[..., 0]
        by_gate = self.g1 @ ((self.g2 @ (weights * (outputs - mean))) * (hidden[0] > 0.0))
        slope: Array = (by_experts + by_gate) * self.scale
        return mean, slope


def _layer(shape: tuple[int, ...], rng: np.random.Generator) -> tuple[Array, Array]:
    reach = 1.0 / math.sqrt(shape[-2])  # as the paper's networks start
    return rng.uniform(-reach, reach, shape), rng.uniform(-reach, reach, (*shape[:-2], 1, shape[-1]))


@dataclass(frozen=True, slots=True)
class RescoredOptimizer(ReadingOptimizer):
    """Keeps what was told, so that all errors are of today's scale; a failure stays as bad as errors get."""

    values: Array  # [replay, metrics]; NaN of what failed
    best_values: Array  # [slots, metrics]
    rescored: bool
    whole_replay: bool  # whether a full update takes all of it
    full_always: bool  # whether it runs at every step, after the prompts have learned at an ordinary one

    def scores(self, values: Array) -> Array:
        """Composed errors [n] of metrics [n, metrics] under today's moments, which stay."""
        total = np.zeros(len(values))
        for column, (name, ema) in zip(values.T, self.composer.emas.items(), strict=True):
            metric = self.composer.metrics[name]
            z = np.clip((column - ema.mean) / (math.sqrt(ema.var) + EPSILON), -MOST_Z, MOST_Z)
            total += metric.weight / (1.0 + np.exp(-z if metric.direction == "min" else z))
        return total / sum(metric.weight for metric in self.composer.metrics.values())

    def tell(
        self,
        context: Array,
        point: Array,
        metrics: Mapping[str, float],
        rng: np.random.Generator,
        asked: Asked | None = None,
        stopped: bool = False,
        repeats: Repeats | None = None,
    ) -> LearnResult:
        if not self.rescored or stopped or repeats is not None:  # the paper's refuses the latter two
            return PaperOptimizer.tell(self, context, point, metrics, rng, asked, stopped, repeats)
        row = self.replay.added % len(self.values)
        self.values[row] = list(self.composer.check(metrics).values())
        self.composer.compose(metrics)  # moves the moments
        self.replay.errors[:] = np.nan_to_num(self.scores(self.values), nan=FAILED_ERROR)
        self.memory.errors[:] = self.scores(self.best_values)
        opened, before = self.memory.opened, self.memory.errors.copy()
        outcome = self.tell_error(context, point, float(self.replay.errors[row]), rng)
        if self.memory.opened > opened:
            self.best_values[opened % self.memory.size] = self.values[row]
        else:
            self.best_values[before != self.memory.errors] = self.values[row]
        return outcome

    def tell_failed(
        self, context: Array, point: Array, rng: np.random.Generator, asked: Asked | None = None
    ) -> LearnResult:
        self.values[self.replay.added % len(self.values)] = np.nan
        return PaperOptimizer.tell_failed(self, context, point, rng, asked)

    def tell_error(self, context: Array, point: Array, error: float, rng: np.random.Generator) -> LearnResult:
        outcome = PaperOptimizer.tell_error(self, context, point, error, rng)
        if self.full_always and outcome.path == "fast":
            self.surrogate.update_full_emergency(self._batch(rng))
        return outcome

    def _batch(self, rng: np.random.Generator) -> TrainingBatch:
        """As in the paper, or all of the replay, each sample with the prompt of its nearest slot today."""
        if not self.whole_replay:
            return PaperOptimizer._batch(self, rng)
        n, memory = len(self.replay), self.memory
        contexts, keys = self.replay.contexts[:n], memory.keys[: len(memory)]
        prompts = np.zeros((n, memory.prompts.shape[1]))
        if len(keys):
            squares = (keys**2).sum(axis=1) - 2.0 * contexts @ keys.T  # up to what is the same for all keys
            prompts = memory.prompts[squares.argmin(axis=1)]
        return TrainingBatch(self.replay.points[:n], contexts, prompts, self.replay.errors[:n])

    @classmethod
    def of(
        cls,
        built: PaperOptimizer,
        surrogate: Surrogate | None = None,
        *,
        rescored: bool = True,
        whole_replay: bool = False,
        full_always: bool = False,
    ) -> Self:
        """The stages of `built`, with another surrogate if one is given."""
        metrics = len(built.composer.emas)
        return cls(
            built.composer,
            built.memory,
            surrogate or built.surrogate,
            built.policy,
            built.adaptation,
            built.replay,
            built.batch_size,
            values=np.zeros((len(built.replay.errors), metrics)),
            best_values=np.zeros((built.memory.size, metrics)),
            rescored=rescored,
            whole_replay=whole_replay,
            full_always=full_always,
        )


OWN = {"rescored": 0, "closed_form": 0, "theta_scale": 0.0, "full_always": 0}


def _check(key: str, value: object) -> Setting:
    if key not in OWN:
        return paper_readings.check_choice(key, value)
    given, most = number(f"setting {key!r}", value, InvalidSpace), MOST_SCALE if key == "theta_scale" else 1.0
    if not 0.0 <= given <= most:
        raise InvalidSpace(f"setting {key!r} must be a number from 0 to {most:g}, got {given!r}")
    return given


def _build(
    settings: Settings, layout: Layout, context_dim: int, metrics: Metrics, rng: np.random.Generator
) -> RescoredOptimizer:
    k = {name: float(value or 0.0) for name, value in settings.items()}
    built = paper_readings.build(settings, layout, context_dim, metrics, rng)
    surrogate = AnchoredMoE(len(layout.default), context_dim, k, rng) if k["closed_form"] else None
    return RescoredOptimizer.of(
        built,
        surrogate,
        rescored=bool(k["rescored"]),
        whole_replay=surrogate is not None,
        full_always=bool(k["full_always"]),
    )


presets.register(
    NAME,
    lambda: PresetKind({**PAPER, **OPEN_CHOICES, **OWN}, _check, _build, PAPER_KIND.least_numbers),
)


def repaired(task: Task, seed: int, *, settings: Mapping[str, float] | None = None) -> Reading:
    return Reading(task, seed, reading=CHANGES, settings=settings, preset=NAME)
