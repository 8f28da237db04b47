"""The paper's nine domains: plain, with noise of half the metric, with one outlier in ten answers."""

from rasp_lab.beds.bed import Bed, Measure, Options, Values
from rasp_lab.beds.loop import negative_log_density, play, regret
from rasp_lab.bench import domains

STEPS, MANY_STEPS = 100, 1000
WAYS = {"plain": "", "noise": "+noise=0.5", "outliers": "+outliers"}


def cells(options: Options) -> list[str]:
    ways = [*WAYS, *(["long"] if options.long else [])]
    return [f"{way}/{name}" for way in ways for name in domains.SYNTHETIC]


def run(cell: str, seed: int, options: Options) -> Values:
    del options
    way, _, name = cell.partition("/")
    if way == "long":
        return {"regret / static, T = 1000": regret(play(domains.create(name), seed, MANY_STEPS))}
    done = play(domains.create(name + WAYS[way]), seed, STEPS)
    if way == "plain":
        return {"regret / static": regret(done), "negative log density": negative_log_density(done)}
    return {f"regret / static, {way}": regret(done)}


BED = Bed(
    "domains",
    8,
    {
        "regret / static": Measure(wanted=0.185),
        "regret / static, noise": Measure(wanted=0.5),
        "regret / static, outliers": Measure(),
        "negative log density": Measure("mean", wanted=0.0),
        "regret / static, T = 1000": Measure(),
    },
    cells,
    run,
)
