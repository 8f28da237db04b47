"""RASP: the library itself behind the agent interface, and the paper's ablations of it."""

from collections.abc import Mapping
from functools import partial

import numpy as np

from rasp_lab.bench.domains.base import Task
from rasp_tuner.base.numerics import Array
from rasp_tuner.engine.preset import DEFAULT
from rasp_tuner.paper import PAPER
from rasp_tuner.presets import named
from rasp_tuner.tuner import BUDGET, Tuner


class Rasp:
    """A `Tuner` on the task's space, metrics and default; `settings` change constants of the preset.

    They are numbers, as in `rasp[quadratic=1]`; what is on or off in the preset is on unless it is 0.

    >>> flash = partial(Rasp, preset="paper", settings={"base_step": 0.25})  # as the paper runs Flash and ISP
    """

    def __init__(
        self,
        task: Task,
        seed: int,
        *,
        preset: str = "default",
        settings: Mapping[str, float] | None = None,
        masked: bool = False,
        budget: float | None = BUDGET,
    ) -> None:
        self.task = task
        self.masked = masked
        own = {name: bool(x) if isinstance(DEFAULT.get(name), bool) else x for name, x in (settings or {}).items()}
        self.tuner = Tuner(
            task.space.knobs,
            task.metrics,
            task.context_dim or None,
            task.space.from_unit(task.default),
            preset=named(preset, {**(task.paper_constants if preset != "default" else {}), **own}),
            seed=seed,
            budget=budget,
        )

    def ask(self, context: Array) -> tuple[str, Array]:
        suggestion = self.tuner.ask(self._seen(context))
        return suggestion.id, self.task.space.to_unit(suggestion.params)

    def recommend(self, context: Array) -> Array:
        """The point [d] that would be served in this context without exploring."""
        return self.task.space.to_unit(self.tuner.recommend(self._seen(context)))

    def tell(self, id: str, metrics: Mapping[str, float]) -> None:
        self.tuner.tell(id, metrics)

    def tell_failed(self, id: str) -> None:
        self.tuner.tell_failed(id)

    def expectation(self, id: str) -> dict[str, float | None]:
        """The composed error as believed when `id` was suggested, its deviation, and what came back if it did."""
        why = self.tuner.explain(id)
        return {"predicted": why.predicted, "deviation": why.deviation, "error": why.error}

    def _seen(self, context: Array) -> Array | None:
        if not self.task.context_dim:
            return None
        return np.zeros_like(context) if self.masked else context


paper = partial(Rasp, preset="paper")
no_memory = partial(Rasp, masked=True)  # NoMemory-RASP: all contexts are zero
paper_no_memory = partial(Rasp, preset="paper", masked=True)


def paper_mlp(task: Task, seed: int, settings: Mapping[str, float] | None = None) -> Rasp:
    """One network of about as many weights as the paper's six experts and gate together, in their place.

    A single expert cannot disagree with itself: its variance is always zero, so the LCB is the plain mean (kappa has
    no effect) and only anomalous errors can start a full update.
    """
    changes = {**matched_mlp(task.space.dim, task.context_dim), **(settings or {})}
    return Rasp(task, seed, preset="paper", settings=changes)


def matched_mlp(dim: int, context_dim: int) -> dict[str, float]:
    """Constants of the paper preset with one expert whose weights number within 2% of the original's."""
    usual = PAPER
    width = dim + context_dim + usual["prompt_dim"]
    target = count_weights(width, usual)

    def shape(hidden: int) -> dict[str, float]:
        return {"experts": 1, "min_active": 1, "gate_hidden": 1, "hidden_1": hidden, "hidden_2": hidden // 2}

    best = min(range(2, 1000), key=lambda hidden: abs(count_weights(width, {**usual, **shape(hidden)}) - target))
    return shape(best)


def count_weights(width: int | float, k: Mapping[str, float]) -> float:
    """Weights and biases of a `PromptMoE` with inputs of this width and the constants `k`."""
    expert = (width + 1) * k["hidden_1"] + (k["hidden_1"] + 1) * k["hidden_2"] + k["hidden_2"] + 1
    return k["experts"] * expert + (width + 1) * k["gate_hidden"] + (k["gate_hidden"] + 1) * k["experts"]
