"""How often `rasp tune` claims a gain where knobs do nothing: it should never.

    python -m rasp_lab.find.no_effect                 # 160 studies, a few minutes
    python -m rasp_lab.find.no_effect --studies 40 --noise 0.3

A study has four knobs, 60 steps and one to three inputs; its cost is noise with heavy tails. Everything is as in
`rasp_tuner.tune.tune`: search, play-off, pairs.
"""

import argparse
import tempfile
from collections import Counter
from pathlib import Path

import numpy as np

from rasp_tuner import Bool, Categorical, Int
from rasp_tuner.space import Knob, Params
from rasp_tuner.tune import TuneResult, tune

KNOBS: dict[str, Knob | str] = {
    "threads": Int(1, 8),
    "codec": Categorical(["a", "b", "c", "d"]),
    "fast": Bool(),
    "size": Int(16, 4096, log=True),
}
DEFAULT: Params = {"threads": 4, "codec": "a", "fast": False, "size": 256}
INPUTS = ("small", "medium", "large")


def study(seed: int, noise: float) -> TuneResult:
    rng = np.random.default_rng([seed, 9])

    def work(input: str, **settings: object) -> dict[str, float]:
        del settings
        return {"cost": (1.0 + INPUTS.index(input)) * float(np.exp(noise * rng.standard_t(5)))}

    inputs = INPUTS[: 1 + seed % 3]
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "study"
        return tune(
            work, KNOBS, {"cost": "min"}, default=DEFAULT, inputs=inputs, steps=60, seed=seed, out=out, quiet=True
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--studies", type=int, default=160)
    parser.add_argument("--noise", type=float, default=0.05, help="deviation of the logarithm of the cost, roughly")
    args = parser.parse_args()
    outcomes: Counter[str] = Counter()
    changed = 0
    for seed in range(args.studies):
        result = study(seed, args.noise)
        outcomes[result.verdict.outcome] += 1
        changed += any(found.use != DEFAULT for found in result.situations)
        if result.verdict.outcome == "better":
            print(f"study {seed}: {result.verdict.words}")
    claimed = outcomes["better"]
    print(f"{claimed} of {args.studies} studies claim a gain; {changed} would change a setting; {dict(outcomes)}")


if __name__ == "__main__":
    main()
