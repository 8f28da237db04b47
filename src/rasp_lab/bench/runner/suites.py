"""Named sets of cells: what `rasp bench --suite NAME` runs."""

from collections.abc import Sequence

from rasp_lab.bench.domains import BEYOND, PAPER, STREAMS, WORLDS
from rasp_lab.bench.domains.worlds import is_world, world_seeds
from rasp_lab.bench.runner.protocol import Cell, plan
from rasp_tuner.base.checks import show
from rasp_tuner.errors import InvalidValue

WORLD_STEPS = dict.fromkeys(WORLDS, 80) | {
    "W_Drift": 160,  # 80 before the change, 80 after it
    "W_Categorical": 160,
    "W_Mixed": 160,
    "W_Near": 300,
    "W_Scales": 300,
    "W_Choices": 300,  # dozens of choices
}
SUITES: dict[str, tuple[tuple[tuple[str, ...], int], ...]] = {  # name -> (domains, horizon), ...
    "paper": ((PAPER, 100),),
    "long": ((PAPER, 1000),),
    "streams": ((STREAMS, 100),),
    "beyond": ((BEYOND, 100),),
    "all": (((*PAPER, *BEYOND, *STREAMS), 100), ((*PAPER, *BEYOND), 1000)),  # docs/RESULTS.md, under the rules below
    "sensitivity": ((PAPER, 100),),
    "worlds": tuple((tuple(name for name in WORLDS if WORLD_STEPS[name] == steps), steps) for steps in (80, 160, 300)),
}

# Suite "all" alone: a thousand steps of a peer that needs more than 50 ms a step cost hours and show little more
SLOW = ("gp-ucb", "gp-ucb-0.25", "gp-ucb-0.5", "gp-ucb-1", "turbo", "botorch")  # one seed at T = 1,000; run last
SLOW_SEEDS = 1
SHORT, LONG = 100, 1000

# The worlds of docs/RESULTS.md: those who are peers there, and how many worlds of each kind they meet
WORLD_AGENTS = ("static", "random", "cma-es", "warm-cma-es", "tpe", "vw-cats", "rasp", "rasp-paper")
SLOW_WORLD_AGENTS = ("gp-ucb-0.25", "turbo", "botorch")  # GP-UCB with its best kappa
WORLDS_A_SEED = 2  # for each seed that the other domains get
SLOW_WORLDS = 2
SLOW_KINDS = ("W_Discrete-0.3", "W_Mixed")  # all kinds would take hours

# Appendix C: one constant at a time around the paper's defaults. It names no range for doubt_share, its 0.55, and no
# sizes but 200 and beyond. On the nine domains 25, 50, 200 and 400 slots give the same 100 steps (seed 0).
SWEEPS: dict[str, tuple[float, ...]] = {
    "top_k": (1, 3, 5),
    "temperature": (0.5, 1.0, 2.0),
    "novelty_threshold": (0.5, 0.7, 0.85),
    "doubt_share": (0.25, 0.55, 0.85),
    "stay": (0.5, 0.65, 0.8),
    "memory_size": (5, 10, 200, 400),
}


def sensitivity_agents() -> list[str]:
    """The paper's stack with one constant changed, by name; and the static default to relate to."""
    return ["static", *(f"rasp-paper[{name}={value:g}]" for name, values in SWEEPS.items() for value in values)]


def world_cells(seeds: int) -> list[Cell]:
    """The runs on random worlds beside `seeds` seeds of the other domains; slow agents meet few of them."""
    slow = cells("worlds", SLOW_WORLD_AGENTS, SLOW_WORLDS)
    return cells("worlds", WORLD_AGENTS, WORLDS_A_SEED * seeds) + [c for c in slow if c.domain in SLOW_KINDS]


def cells(
    suite: str,
    agents: Sequence[str],
    seeds: int,
    horizon: int | None = None,
    *,
    domains: Sequence[str] = (),
    harder: str = "",
    half: str = "report",
    first_seed: int = 0,
) -> list[Cell]:
    """The plan of a suite, or of several with commas between, domain by domain.

    horizon  replaces the suite's own
    domains  replace the suite's own
    harder   a way to make every domain harder, as in outliers+delay=3
    half     of the seeds of worlds: "develop" to choose constants on, "report" to report on
    first_seed  of domains that are no worlds: their seeds are this one and those after it
    """
    if domains:
        made = _planned(_all_harder(domains, harder), agents, seeds, horizon or SHORT, half, first_seed)
    else:
        named = [name.strip() for name in suite.split(",")]
        made = [cell for name in named for cell in _of_suite(name, agents, seeds, horizon, harder, half, first_seed)]
    return list(dict.fromkeys(made))  # one horizon for all may name a cell twice


def _of_suite(
    suite: str, agents: Sequence[str], seeds: int, horizon: int | None, harder: str, half: str, first_seed: int
) -> list[Cell]:
    if suite not in SUITES:
        raise InvalidValue(f"no suite {show(suite)}; there are {list(SUITES)}")
    chosen = sensitivity_agents() if suite == "sensitivity" else agents
    made = [
        cell
        for domains, steps in SUITES[suite]
        for cell in _planned(_all_harder(domains, harder), chosen, seeds, horizon or steps, half, first_seed)
    ]
    if suite == "all":
        made = [cell for cell in made if _is_worth_its_time(cell)]
        made.sort(key=lambda cell: cell.agent in SLOW)  # so that a page can be written long before they end
    return made


def _planned(
    domains: Sequence[str], agents: Sequence[str], count: int, horizon: int, half: str, first_seed: int
) -> list[Cell]:
    """Every agent on every domain with `count` seeds from `first_seed` on, and of worlds the first ones of the half."""
    of_half, seeds = world_seeds(count, half), range(first_seed, first_seed + count)
    return [
        cell for domain in domains for cell in plan([domain], agents, of_half if is_world(domain) else seeds, horizon)
    ]


def _all_harder(domains: Sequence[str], harder: str) -> list[str]:
    return [f"{name}+{harder}" if harder else name for name in domains]


def _is_worth_its_time(cell: Cell) -> bool:
    return cell.horizon < LONG or cell.agent not in SLOW or cell.seed < SLOW_SEEDS
