"""What an exported policy really loses against its tuner, in worlds where the loss is known, beside what it says.

python -m rasp_lab.experiments.policy_loss
python -m rasp_lab.experiments.policy_loss --seeds 30 --leaves 4

All losses are shares of the tuner's own loss on fresh contexts, means over seeds. `said` and `bound` are the report's
mean and bound; `true` is the policy's loss less that of `recommend`; `within` is how often `true` is below `bound`.
"""

import argparse
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from rasp_tuner import Category, Float, Tuner
from rasp_tuner.policy.evaluate import params_of

FRESH = 200  # contexts on which both are compared
CONTEXT = {"load": "number", "region": Category(["eu", "us", "asia"])}
SHIFT = {"eu": 0.0, "us": 0.15, "asia": -0.15}

Loss = Callable[[Mapping[str, Any], Mapping[str, Any]], float]


def bowl(params: Mapping[str, Any], best: float) -> float:
    return 10.0 + 20.0 * float((params["x"] - best) ** 2 + (params["y"] - 0.3) ** 2)


WORLDS: dict[str, Loss] = {
    "two situations": lambda params, context: bowl(params, 0.8 if context["load"] > 0.5 else 0.2),
    "regions": lambda params, context: bowl(params, 0.5 + 2.0 * SHIFT[context["region"]]),
    "both": lambda params, context: bowl(params, (0.7 if context["load"] > 0.5 else 0.3) + SHIFT[context["region"]]),
    "a line": lambda params, context: bowl(params, 0.1 + 0.8 * context["load"]),
    "no context": lambda params, _: bowl(params, 0.7),
}


def drawn(rng: np.random.Generator) -> dict[str, Any]:
    return {"load": float(rng.random()), "region": str(rng.choice(list(SHIFT)))}


def measured(loss: Loss, seed: int, steps: int, leaves: int) -> tuple[float, float, float, float]:
    """Leaves, and the losses that the report says, bounds, and that are true, as shares."""
    rng = np.random.default_rng(seed)
    tuner = Tuner(
        {"x": Float(0.0, 1.0), "y": Float(0.0, 1.0)}, {"loss": "min"}, CONTEXT, {"x": 0.5, "y": 0.5}, seed=seed
    )
    for _ in range(steps):
        context = drawn(rng)
        suggestion = tuner.ask(context)
        tuner.tell(suggestion.id, {"loss": loss(suggestion.params, context) + 0.1 * rng.normal()})
    with tempfile.TemporaryDirectory() as folder:
        report = tuner.export(Path(folder) / "policy.json", leaves)
    fresh = [drawn(rng) for _ in range(FRESH)]
    own = np.mean([loss(tuner.recommend(context), context) for context in fresh])
    its = np.mean([loss(params_of(report.policy, context), context) for context in fresh])
    if report.loss is None or report.loss.mean_share is None or report.loss.bound_share is None:
        raise RuntimeError("a tuner of one positive metric must say what a policy loses")
    return report.leaves, report.loss.mean_share, report.loss.bound_share, float(its / own - 1.0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--leaves", type=int, default=16)
    options = parser.parse_args()
    print("| world | leaves | said | bound | true | within |")
    print("|---|---|---|---|---|---|")
    for name, loss in WORLDS.items():
        rows = np.array([measured(loss, seed, options.steps, options.leaves) for seed in range(options.seeds)])
        leaves, said, bound, true = rows.mean(axis=0)
        within = (rows[:, 3] <= rows[:, 2] + 1e-12).mean()
        print(f"| {name} | {leaves:.1f} | {said:.2%} | {bound:.2%} | {true:.2%} | {within:.0%} |", flush=True)


if __name__ == "__main__":
    main()
