"""PromptMemory: context keys with the best parameters and the soft prompt of each (paper, Section PromptMemory).

symbol    shape     meaning
keys      [M, d_c]  context k_i a slot was opened in
best      [M, d]    historical best parameters theta*_i, in the unit box
errors    [M]       the error e those reached
prompts   [M, d_p]  soft prompt p_i, zero at birth
"""

from collections.abc import Mapping

import numpy as np

from rasp_tuner.base.checks import number, whole
from rasp_tuner.base.numerics import LARGEST, MOMENTUM, Array, RunningEMA, entropy, logistic, softmax
from rasp_tuner.base.state_checks import MOMENTS, MOST_SAMPLES, Field, broken, checked
from rasp_tuner.contexts.distance import euclidean
from rasp_tuner.errors import InvalidSpace, InvalidValue
from rasp_tuner.paper.surrogate import Retrieval


class PromptMemory:
    """At most `size` slots, first in first out; `retrieve` never changes anything."""

    def __init__(
        self,
        dim: int,
        context_dim: int,
        prompt_dim: int,
        *,
        size: int = 200,
        top_k: int = 3,
        temperature: float = 1.0,
        novelty_threshold: float = 0.7,
        momentum: float = MOMENTUM,
    ) -> None:
        self.size = whole("size", size, 1, 1_000_000, InvalidSpace)
        self.top_k = whole("top_k", top_k, 1, 1_000_000, InvalidSpace)
        self.temperature = number("temperature", temperature, InvalidSpace)
        if self.temperature <= 0.0:
            raise InvalidSpace(f"temperature must be positive, got {self.temperature!r}")
        self.novelty_threshold = novelty_threshold
        self.keys = np.zeros((size, context_dim))
        self.best = np.zeros((size, dim))
        self.errors = np.zeros(size)
        self.prompts = np.zeros((size, prompt_dim))
        self.opened = 0  # slots ever opened; slot i holds the latest one with index = i modulo size
        self.distance_ema = RunningEMA(momentum)

    def __len__(self) -> int:
        return min(self.opened, self.size)

    def retrieve(self, context: Array) -> Retrieval:
        """The top-K nearest slots, their softmax weights, and what they say together."""
        if context.shape != self.keys.shape[1:]:
            raise InvalidValue(f"context must have shape {self.keys.shape[1:]}, got {context.shape}")
        count = len(self)
        if count == 0:
            return Retrieval(
                context=context,
                slots=(),
                weights=np.zeros(0),
                prompts=np.zeros((0, self.prompts.shape[1])),
                prompt=np.zeros(self.prompts.shape[1]),
                hint=None,
                nearest=float("inf"),
                novelty=1.0,
                confidence=0.0,
                entropy=0.0,
            )
        away = euclidean(self.keys[:count], context)
        nearest = np.argsort(away, kind="stable")[: self.top_k]  # ties go to the lower index: same answer everywhere
        weights = softmax(-away[nearest] / self.temperature)
        prompts = self.prompts[nearest]  # a copy: later updates do not reach into this answer
        closest = float(away[nearest[0]])
        return Retrieval(
            context=context,
            slots=tuple(nearest.tolist()),
            weights=weights,
            prompts=prompts,
            prompt=weights @ prompts,
            hint=np.clip(weights @ self.best[nearest], 0.0, 1.0),
            nearest=closest,
            novelty=logistic(self.distance_ema.peek(closest)),
            confidence=float(weights.max()),
            entropy=entropy(weights),
        )

    def write(self, seen: Retrieval, point: Array, error: float) -> None:
        """Open a slot if the context is new; otherwise keep `point` if it is the nearest slot's best so far."""
        if point.shape != self.best.shape[1:]:
            raise InvalidValue(f"point must have shape {self.best.shape[1:]}, got {point.shape}")
        if seen.slots:
            self.distance_ema.observe(seen.nearest)
        if seen.novelty > self.novelty_threshold or not seen.slots:
            slot = self.opened % self.size
            self.opened += 1
            self.keys[slot], self.best[slot], self.errors[slot], self.prompts[slot] = seen.context, point, error, 0.0
        elif error < self.errors[seen.slots[0]]:
            self.best[seen.slots[0]], self.errors[seen.slots[0]] = point, error

    def write_prompts(self, seen: Retrieval, prompts: Array) -> None:
        """Replace the prompts [K, d_p] of the retrieved slots."""
        self.prompts[list(seen.slots)] = prompts

    def best_known(self, seen: Retrieval) -> Array | None:
        """The best parameters tried in the nearest slot; None while memory is empty."""
        return self.best[seen.slots[0]].copy() if seen.slots else None

    def state(self) -> dict[str, Array]:
        count = len(self)
        return {
            "keys": self.keys[:count],
            "best": self.best[:count],
            "errors": self.errors[:count],
            "prompts": self.prompts[:count],
            "opened": np.array(float(self.opened)),
            "distance": self.distance_ema.moments,
        }

    def restore(self, state: Mapping[str, Array]) -> None:
        fields = {
            "keys": Field(("n", self.keys.shape[1]), -LARGEST, LARGEST),
            "best": Field(("n", self.best.shape[1]), 0.0, 1.0),
            "errors": Field(("n",), 0.0, 1.0),
            "prompts": Field(("n", self.prompts.shape[1]), -LARGEST, LARGEST),
            "opened": Field((), 0.0, MOST_SAMPLES, whole=True),
            "distance": MOMENTS,
        }
        read = checked(state, fields, {"n": range(self.size + 1)})
        opened, count = int(read["opened"]), len(read["errors"])
        if min(opened, self.size) != count:
            raise broken(
                state, "opened", f"be the number of slots, {count}, or more once there are {self.size}", opened
            )
        self.opened = opened
        for name in ("keys", "best", "errors", "prompts"):
            getattr(self, name)[:count] = read[name]
        self.distance_ema.moments = read["distance"]
