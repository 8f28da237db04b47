"""The three tabular streams: mixed knobs, measured losses, a default that is good already.

A paired cell is the same stream with a control: the default trains beside every step, on the same batch.
"""

from rasp_lab.beds.bed import Bed, Measure, Options, Values
from rasp_lab.beds.loop import play, regret
from rasp_lab.bench import domains

STEPS = 100  # all batches once
PAIRED = ", paired"


def run(cell: str, seed: int, options: Options) -> Values:
    del options
    name = cell.removesuffix(PAIRED)
    paired = name != cell
    found = regret(play(domains.create(name), seed, STEPS, paired))
    return {f"regret / static{PAIRED if paired else ''}": found}


def cells(options: Options) -> list[str]:
    """Every stream, alone and paired."""
    del options
    return [name + kind for kind in ("", PAIRED) for name in domains.STREAMS]


BED = Bed(
    "streams",
    8,
    {"regret / static": Measure(wanted=1.01), f"regret / static{PAIRED}": Measure(wanted=0.9)},
    cells,
    run,
)
