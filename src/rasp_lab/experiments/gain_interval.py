"""How often the interval of `Tuner.versus_default()`, by forecast, holds the truth, where the default's loss is known.

python -m rasp_lab.experiments.gain_interval
python -m rasp_lab.experiments.gain_interval --seeds 30 --steps 400

The error is the gain less the true one; both it and the interval's half width are shares of what the default would
have come to, means over seeds.
"""

import argparse
import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from rasp_tuner import Categorical, Float, Tuner
from rasp_tuner.space import Knob

Loss = Callable[[Mapping[str, Any], int, int], float]
THREE: dict[str, Knob] = {f"x{i}": Float(0.0, 1.0) for i in range(3)}
ONE: dict[str, Knob] = {"x0": Float(0.0, 1.0), "mode": Categorical(["a", "b", "c"])}
SITUATION_STEPS = 10  # after which the other situation comes


def worlds(seed: int) -> Iterator[tuple[str, dict[str, Knob], Loss]]:
    """Names, knobs and losses, by settings, situation and step."""
    best = np.random.default_rng(seed).uniform(0.1, 0.9, (2, 3))

    def away(params: Mapping[str, Any], situation: int, moved: float = 0.0) -> float:
        return sum((params[name] - best[situation, i] - moved) ** 2 for i, name in enumerate(params) if name[0] == "x")

    yield "smooth", THREE, lambda params, k, _: 10.0 + 20.0 * away(params, k)
    yield "drift", THREE, lambda p, k, step: 10.0 + 0.02 * step + 20.0 * away(p, k, 0.1 * math.sin(step / 40))
    yield "flat", THREE, lambda _, k, __: 10.0 + 5.0 * k
    yield "choices", ONE, lambda p, k, _: 10.0 + 8.0 * away(p, k) + {"a": 3.0, "b": 0.0, "c": 6.0 * k}[p["mode"]]


def played(knobs: dict[str, Knob], loss: Loss, seed: int, steps: int, noise: float) -> tuple[float, bool, float]:
    """Error of the gain, whether its interval holds the truth, and half of that interval's width."""
    rng = np.random.default_rng(seed + 1)
    default = {name: knob.from_unit(0.5) if isinstance(knob, Float) else "a" for name, knob in knobs.items()}
    tuner, usual, came = Tuner(knobs, {"loss": "min"}, ["situation"], default, seed=seed), [], []
    for step in range(steps):
        situation = step // SITUATION_STEPS % 2
        suggestion = tuner.ask([float(situation)])
        came.append(loss(suggestion.params, situation, step) + noise * rng.normal())
        tuner.tell(suggestion.id, {"loss": came[-1]})
        usual.append(loss(default, situation, step))
    found = tuner.versus_default()
    if found is None or found.gain is None or found.gain.low is None or found.gain.high is None:
        return 0.0, True, math.inf
    truth = 1.0 - sum(came) / sum(usual)
    if tuner.scales["loss"] == "log":
        truth = 1.0 - math.exp(float(np.mean(np.log(np.array(came) / np.array(usual)))))
    gain = found.gain
    return abs(gain.value - truth), gain.low <= truth <= gain.high, 0.5 * (gain.high - gain.low)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--seeds", type=int, default=12)
    parser.add_argument("--steps", type=int, default=200)
    options = parser.parse_args()
    print(f"{'world':10}{'noise':>6}{'error':>9}{'held':>7}{'width':>8}")
    for noise in (0.3, 2.0):
        for i, (name, _, _) in enumerate(worlds(0)):
            runs = []
            for seed in range(options.seeds):
                _, knobs, loss = list(worlds(seed))[i]
                runs.append(played(knobs, loss, seed, options.steps, noise))
            error, held, half = np.array(runs).T
            print(f"{name:10}{noise:6.1f}{error.mean():9.1%}{held.mean():7.0%}{half.mean():8.1%}")


if __name__ == "__main__":
    main()
