"""PromptMoE: six small networks under a softmax gate, conditioned on a soft prompt (paper, Section Prompt-MoE).

symbol  shape         meaning
x       [n, D]        input [theta~; c; p], D = d + d_c + d_p
W_l     [E, in, out]  layer l of all experts at once: one batched product instead of a loop over experts
pi      [n, E]        gate weights
v       [n]           disagreement sum_e pi_e (e_e - e)^2

All arithmetic is float64: the networks are tiny, and gradients can be checked against finite differences.
"""

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from rasp_tuner.base.numerics import EPSILON, LARGEST, Array
from rasp_tuner.base.state_checks import Field, checked
from rasp_tuner.paper.surrogate import Prediction, Retrieval, TrainingBatch

# torch.optim's Adam would stall the first emergency for seconds while it loads the compiler it may need
ADAM_MEAN, ADAM_SQUARE = 0.9, 0.999


@contextmanager
def _own_settings() -> Iterator[None]:
    """The same arithmetic whatever the caller set: gradients on, and one thread, so sums do not depend on the cores."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with torch.inference_mode(False), torch.enable_grad():
            yield
    finally:
        torch.set_num_threads(threads)


class PromptMoE:
    """The paper's surrogate behind the `Surrogate` protocol; `rng` draws the weights as torch's layers would."""

    @_own_settings()
    def __init__(
        self,
        dim: int,
        context_dim: int,
        prompt_dim: int,
        rng: np.random.Generator,
        *,
        experts: int = 6,
        hidden: tuple[int, int] = (48, 24),
        gate_hidden: int = 48,
        min_active: int = 2,
        doubt_share: float = 0.55,
        prompt_rate: float = 5e-3,
        prompt_penalty: float = 1e-4,
        full_rate: float = 1e-4,
        anchor_penalty: float = 3e-4,
        full_steps: int = 5,
    ) -> None:
        self.dim = dim
        self.experts = experts
        self.min_active = min(min_active, experts)
        self.doubt_share = doubt_share
        self.prompt_rate = prompt_rate
        self.prompt_penalty = prompt_penalty
        self.full_rate = full_rate
        self.anchor_penalty = anchor_penalty
        self.full_steps = full_steps
        width = dim + context_dim + prompt_dim
        self.weights: dict[str, Tensor] = {
            **_layer("expert1", (experts, width, hidden[0]), rng),
            **_layer("expert2", (experts, hidden[0], hidden[1]), rng),
            **_layer("expert3", (experts, hidden[1], 1), rng),
            **_layer("gate1", (width, gate_hidden), rng),
            **_layer("gate2", (gate_hidden, experts), rng),
        }
        self.anchor = {name: weight.clone() for name, weight in self.weights.items()}

    def active_experts(self, doubt: float, novelty: float) -> int:
        """k_t = round(k_min + (k_max - k_min) eta_t), with k_max = E."""
        mix = self.doubt_share * doubt + (1.0 - self.doubt_share) * novelty  # Eq. eta_mix: 0.55 u_t + 0.45 nu_t
        return round(self.min_active + (self.experts - self.min_active) * mix)

    @_own_settings()
    def predict(self, points: Array, seen: Retrieval, doubt: float | None = None) -> Prediction:
        with torch.inference_mode():
            outputs, gate = self._forward(_rows(_tensor(points), seen.context, _tensor(seen.prompt)))
            if doubt is not None:
                gate = _top(gate, self.active_experts(doubt, seen.novelty))
            mean, variance = _mixture(outputs, gate)
            return Prediction(mean.numpy(), variance.numpy(), gate.numpy())

    @_own_settings()
    def gradient(self, point: Array, seen: Retrieval) -> Array:
        theta = _tensor(point)[None].requires_grad_()
        mean, _ = _mixture(*self._forward(_rows(theta, seen.context, _tensor(seen.prompt))))
        slope: Array = torch.autograd.grad(mean[0], theta)[0][0].numpy()
        return slope

    @_own_settings()
    def update_prompts_only(self, point: Array, seen: Retrieval, error: float) -> Array:
        """One SGD step on SmoothL1(e^, e) + lambda sum_j |p_j|^2; gradients reach the retrieved prompts only."""
        prompts = _tensor(seen.prompts).requires_grad_()
        pooled = _tensor(seen.weights) @ prompts
        mean, _ = _mixture(*self._forward(_rows(_tensor(point)[None], seen.context, pooled)))
        loss = functional.smooth_l1_loss(mean, _tensor(np.array([error])))
        slope = torch.autograd.grad(loss + self.prompt_penalty * prompts.square().sum(), prompts)[0]
        moved: Array = (prompts - self.prompt_rate * slope).detach().numpy()
        return moved if np.all(np.abs(moved) < LARGEST) else seen.prompts  # contexts near 1e100 overflow: stay put

    @_own_settings()
    def update_full_emergency(self, batch: TrainingBatch) -> None:
        """A few Adam steps on MSE + anchor for experts and gate; moments start fresh, so no hidden state is kept."""
        rows = torch.cat([_tensor(batch.points), _tensor(batch.contexts), _tensor(batch.prompts)], dim=1)
        targets = _tensor(batch.errors)
        means = [torch.zeros_like(weight) for weight in self.weights.values()]
        squares = [torch.zeros_like(weight) for weight in self.weights.values()]
        for step in range(1, self.full_steps + 1):
            slopes = self._full_slopes(rows, targets)
            if not all(bool((slope.abs() < LARGEST).all()) for slope in slopes):
                return  # contexts near 1e100 overflow: stay put rather than lose the weights
            for weight, slope, mean, square in zip(self.weights.values(), slopes, means, squares, strict=True):
                mean.lerp_(slope, 1.0 - ADAM_MEAN)
                square.lerp_(slope.square(), 1.0 - ADAM_SQUARE)
                spread = (square / (1.0 - ADAM_SQUARE**step)).sqrt_() + EPSILON
                weight.sub_(self.full_rate / (1.0 - ADAM_MEAN**step) * mean / spread)

    def _full_slopes(self, rows: Tensor, targets: Tensor) -> tuple[Tensor, ...]:
        """Gradients of L_full = MSE + lambda_anchor sum |w - w_anchor|^2 by the weights, in their order."""
        leaves = {name: weight.detach().requires_grad_() for name, weight in self.weights.items()}
        mean, _ = _mixture(*self._forward(rows, leaves))
        loss = (mean - targets).square().mean()
        for weight, anchor in zip(leaves.values(), self.anchor.values(), strict=True):
            loss = loss + self.anchor_penalty * (weight - anchor).square().sum()
        return torch.autograd.grad(loss, list(leaves.values()))

    def state(self) -> dict[str, Array]:
        return {
            **{name: weight.numpy() for name, weight in self.weights.items()},
            **{f"anchor.{name}": weight.numpy() for name, weight in self.anchor.items()},
        }

    def restore(self, state: Mapping[str, Array]) -> None:
        own = {**self.weights, **{f"anchor.{name}": weight for name, weight in self.anchor.items()}}
        read = checked(state, {name: Field(tuple(weight.shape), -LARGEST, LARGEST) for name, weight in own.items()}, {})
        for name, weight in own.items():
            weight.copy_(torch.from_numpy(read[name]))

    def _forward(self, rows: Tensor, weights: Mapping[str, Tensor] | None = None) -> tuple[Tensor, Tensor]:
        """Expert outputs and gate weights, both [n, E], for inputs [n, D]; under other weights if given."""
        w = self.weights if weights is None else weights
        hidden = torch.relu(rows @ w["expert1.w"] + w["expert1.b"])  # [E, n, 48]
        hidden = torch.relu(torch.baddbmm(w["expert2.b"], hidden, w["expert2.w"]))  # [E, n, 24]
        outputs = torch.baddbmm(w["expert3.b"], hidden, w["expert3.w"])[:, :, 0].T  # [n, E]
        gate = torch.relu(rows @ w["gate1.w"] + w["gate1.b"]) @ w["gate2.w"] + w["gate2.b"]
        return outputs, torch.softmax(gate, dim=1)


def _layer(name: str, shape: tuple[int, ...], rng: np.random.Generator) -> dict[str, Tensor]:
    reach = 1.0 / math.sqrt(shape[-2])  # torch's own default for a linear layer
    bias = (*shape[:-2], 1, shape[-1])
    return {
        f"{name}.w": torch.from_numpy(rng.uniform(-reach, reach, shape)),
        f"{name}.b": torch.from_numpy(rng.uniform(-reach, reach, bias)),
    }


def _tensor(array: Array) -> Tensor:
    return torch.tensor(array, dtype=torch.float64, device="cpu")  # copies: shares no storage with the caller


def _rows(points: Tensor, context: Array, prompt: Tensor) -> Tensor:
    tail = torch.cat([_tensor(context), prompt]).expand(len(points), -1)
    return torch.cat([points, tail], dim=1)


def _mixture(outputs: Tensor, gate: Tensor) -> tuple[Tensor, Tensor]:
    mean = (gate * outputs).sum(dim=1)
    return mean, (gate * (outputs - mean[:, None]).square()).sum(dim=1)


def _top(gate: Tensor, active: int) -> Tensor:
    """The `active` largest weights of each row, renormalised; the rest are zero."""
    kept = torch.topk(gate, active, dim=1)
    sparse = torch.zeros_like(gate).scatter(1, kept.indices, kept.values)
    return sparse / sparse.sum(dim=1, keepdim=True)
