"""Many situations that return: does it still know the settings of one that it left two hundred steps ago?

Six knobs with four values each. Every value has an effect that all situations share, and a larger one of their own; the
level of a situation is its own, too. A situation lasts 15 steps, then another is drawn.
"""

import math

import numpy as np

from rasp_lab.beds.bed import Bed, Measure, Options, Values
from rasp_tuner import Categorical, Int, Tuner
from rasp_tuner.space import Knob

KNOBS, VALUES = 6, "abcd"
SHARED, OWN = 0.125, 0.2  # deviations of effects, in logarithms
BLOCK_STEPS = 15
STEPS = {12: 900, 30: 1500}  # by the number of situations
NOISE = 0.05
DEFAULT = 1  # of every knob: its second value


def run(cell: str, seed: int, options: Options) -> Values:
    """Regret over that of the default: in all, and in the last third."""
    del options
    count = int(cell.split()[0])
    rng = np.random.default_rng([seed, 0x51])
    effects = SHARED * rng.normal(size=(1, KNOBS, 4)) + OWN * rng.normal(size=(count, KNOBS, 4))
    effects -= effects.min(axis=2, keepdims=True)  # the best of each is 0
    levels, contexts = rng.uniform(0.0, 1.0, count), rng.normal(size=(count, 4))
    space: dict[str, Knob] = {f"k{j}": Int(0, 3) if j % 2 else Categorical(list(VALUES)) for j in range(KNOBS)}
    default = {name: DEFAULT if isinstance(knob, Int) else VALUES[DEFAULT] for name, knob in space.items()}
    tuner = Tuner(space, {"ms": "min"}, contexts.shape[1], default, seed=seed)
    regrets, usual, now = [], [], 0
    for step in range(STEPS[count]):
        if step % BLOCK_STEPS == 0:
            now = int(rng.integers(count))
        suggestion = tuner.ask(contexts[now] + 0.03 * rng.normal(size=4))
        values = [VALUES.index(v) if isinstance(v, str) else int(str(v)) for v in suggestion.params.values()]
        regrets.append(float(effects[now, np.arange(KNOBS), values].sum()))
        usual.append(float(effects[now, :, DEFAULT].sum()))
        tuner.tell(suggestion.id, {"ms": math.exp(levels[now] + regrets[-1] + NOISE * rng.normal())})
    late = -len(usual) // 3
    return {
        f"{cell}: regret / static": sum(regrets) / sum(usual),
        f"{cell}: last third": sum(regrets[late:]) / sum(usual[late:]),
    }


CELLS = [f"{count} situations" for count in STEPS]
BED = Bed(
    "situations",
    4,
    {f"{cell}: {line}": Measure("mean", worst="run") for cell in CELLS for line in ("regret / static", "last third")},
    lambda _: CELLS,
    run,
)
