"""Which runs the page of the paper needs, those first that its first tables are made of."""

from collections.abc import Iterable, Mapping, Sequence

from rasp_lab.bench.agents.paper_repaired import CHANGES
from rasp_lab.bench.domains import PAPER, STREAMS, SYNTHETIC
from rasp_lab.bench.runner.protocol import Cell
from rasp_tuner.paper import PAPER as CONSTANTS

HORIZON = 100  # the paper's T
SEEDS = 10
PEERS = ("cma-es", "gp-ucb", "gp-ucb-0.25")  # the paper's two; GP-UCB also with its best kappa
COMPOSED = ("cma-es[composed=1]", "gp-ucb[composed=1]")  # fed the composed error, as the paper says
REPAIRED = "rasp-repaired"
CHOSEN_ON = SYNTHETIC[::2]  # domains 1, 3, 5, 7 and 9: the changes of REPAIRED were chosen there, on even seeds

READINGS: Mapping[str, str] = {  # agent -> what is read otherwise
    "rasp-paper": "to the letter",
    "rasp-paper-first-value": "moving averages start at the first value",
    "rasp-paper-always-slow": "the slow path at every step",
    "rasp-paper-trained": "trained: corrected averages, z > 1, 20 inner steps, rates x 10, kappa 0.5, 64 candidates",
    "rasp-paper-no-surrogate": "no surrogate: one of the same candidates at random",
    REPAIRED: "repaired (below)",
}
_BRIDGE = "rasp_lab.paper.bridge:"
BRIDGE: Mapping[str, tuple[str, str]] = {  # agent -> component, what takes its place
    "rasp-paper": ("", "preset `paper`"),
    f"{_BRIDGE}one_scale": ("composer", "one scale for all samples, old and new"),
    f"{_BRIDGE}all_samples": ("memory", "every sample kept; the hint is the best one in a like situation"),
    f"{_BRIDGE}quadratics": ("prompts and experts", "sums and quadratics, all of one weight"),
    f"{_BRIDGE}gate": ("gate", "weights by how well experts forecast"),
    f"{_BRIDGE}choice": ("choice", "the engine's candidates and score"),
    "rasp": ("budget", "preset `default`"),
}

BRIDGE_OF_ENGINE = dict(list(BRIDGE.items())[2:])  # with the row that the first of the engine is relative to
OF_ENGINE = frozenset(list(BRIDGE)[3:])  # whose runs are of no use once the engine has changed
BESIDE = ("static", "random", "cma-es", list(BRIDGE)[2], "gp-ucb")  # what their rows are relative to


def taken_back() -> dict[str, str]:
    """Agent -> the change of REPAIRED that it lacks."""
    usual = {**CONSTANTS, **dict.fromkeys(CHANGES, 0.0), **CONSTANTS}
    return {f"{REPAIRED}[{name}={usual[name]:g}]": name for name in CHANGES}


def odd(seeds: int) -> list[int]:
    """The seeds that nothing was chosen on."""
    return list(range(1, seeds, 2)) or [1]


def cells(seeds: int = SEEDS) -> list[Cell]:
    """All runs; slow agents have the odd seeds alone."""
    every, few = list(range(seeds)), odd(seeds)
    made = [
        *_cells(SYNTHETIC, ("static", "cma-es", REPAIRED), few),
        *_cells(SYNTHETIC, ("static", *BRIDGE), every),
        *_cells(SYNTHETIC, ("rasp-paper-no-surrogate", "rasp-paper-first-value"), few),
        *_cells(SYNTHETIC, ("gp-ucb-0.25", "gp-ucb"), few),
        *_cells(SYNTHETIC, ("rasp-paper-trained", "rasp-paper-always-slow"), few),
        *_cells(STREAMS, ("static", "random", "cma-es", "rasp-paper", "rasp", REPAIRED, "gp-ucb"), few),
        *_cells(PAPER, ("static", "random", "cma-es", "rasp-paper", "rasp-paper-no-memory", "rasp", REPAIRED), few),
        *_cells(PAPER[len(SYNTHETIC) :], ("gp-ucb",), few),
        *_cells(SYNTHETIC, list(taken_back()), few),
        *_cells(SYNTHETIC, COMPOSED, few),
    ]
    return list(dict.fromkeys(made))


def engine_cells(seeds: int = SEEDS) -> list[Cell]:
    """The runs that depend on the engine, and those that their rows are relative to; ours first, the slow ones last."""
    order = ["static", *sorted(OF_ENGINE), *BESIDE[1:]]
    return sorted((cell for cell in cells(seeds) if cell.agent in order), key=lambda cell: order.index(cell.agent))


def _cells(domains: Iterable[str], agents: Sequence[str], seeds: Sequence[int]) -> list[Cell]:
    """Seed by seed, so that what is finished early is whole for some seeds."""
    each = list(domains)
    return [Cell(domain, agent, seed, HORIZON) for seed in seeds for agent in agents for domain in each]
