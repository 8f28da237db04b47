"""The three tabular streams: mixed knobs, measured losses, a default that is good already."""

from rasp_lab.beds.bed import Bed, Measure, Options, Values
from rasp_lab.beds.loop import play, regret
from rasp_lab.bench import domains

STEPS = 100  # all batches once


def run(cell: str, seed: int, options: Options) -> Values:
    del options
    return {"regret / static": regret(play(domains.create(cell), seed, STEPS))}


BED = Bed("streams", 8, {"regret / static": Measure()}, lambda _: domains.STREAMS, run)
