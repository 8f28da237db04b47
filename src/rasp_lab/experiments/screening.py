"""How far the screening of contexts can be trusted: the tables of docs/CONTEXT.md.

python -m rasp_lab.experiments.screening
    the paper's domains: is their context recognised within 100 steps?
    --noise      contexts that say nothing: how often is it said that they help?
    --time       seconds of CPU for a log of 300 rows

Each stream is the tuner's own run (agent rasp): parameters depend on the context and on what came before.
"""

import argparse
import time
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from unittest.mock import patch

import numpy as np
from joblib import Parallel, delayed

from rasp_lab.bench import agents, domains
from rasp_lab.bench.domains.base import ExperimentDomain
from rasp_lab.bench.domains.beyond import A2_OPTIMUM
from rasp_lab.bench.domains.schedules import recurring
from rasp_lab.bench.domains.synthetic import ADVERSARIAL_NOISE, correlated
from rasp_lab.bench.domains.target import Condition, TargetDomain, cube, squares
from rasp_tuner.base.numerics import Array
from rasp_tuner.context_report import ContextReport, screen, shifts

Series = Callable[[int, np.random.Generator], Array]  # horizon, generator -> [T, ...]
Log = tuple[Array, Array, Array]  # contexts [T, d_c], points [T, d], losses [T]


def played(domain: ExperimentDomain[object], seed: int, horizon: int) -> Log:
    """What a tuner's log would hold after a run."""
    agent = agents.create("rasp", domain.task(), seed)
    rows: tuple[list[Array], list[Array], list[float]] = ([], [], [])
    for step, omega in enumerate(domain.build_sequence(horizon, seed)):
        context = domain.context_fn(omega)
        id, point = agent.ask(context)
        metrics = domain.metric_fn(domain.theta(point), omega, np.random.default_rng([seed, step, 1]))
        agent.tell(id, metrics)
        for column, value in zip(rows, (context, point, next(iter(metrics.values()))), strict=True):
            column.append(value)
    return np.array(rows[0]), np.array(rows[1]), np.array(rows[2])


# Contexts that say nothing, and losses they say nothing about


def white(horizon: int, rng: np.random.Generator) -> Array:
    return rng.normal(size=(horizon, 3))


def slow(horizon: int, rng: np.random.Generator, memory: float = 0.9) -> Array:
    return correlated(rng.normal(size=(horizon + 100, 3)), memory, 1.0)[100:]


def blocks(horizon: int, rng: np.random.Generator, width: int = 3) -> Array:
    """Four situations in blocks of 5 to 20 steps, seen through a little noise."""
    centres = rng.normal(size=(4, width))
    return centres[recurring(horizon, 4, 5, 20, rng)] + 0.1 * rng.normal(size=(horizon, width))


def fixed(horizon: int, _: np.random.Generator) -> Array:
    return np.tile(A2_OPTIMUM, (horizon, 1))


def wandering(horizon: int, rng: np.random.Generator) -> Array:
    return np.clip(A2_OPTIMUM + 0.03 * np.cumsum(rng.normal(size=(horizon, 5)), axis=0), 0.0, 1.0)


def switching(horizon: int, rng: np.random.Generator) -> Array:
    """Four optima of its own, in blocks of 10 to 30 steps."""
    return rng.uniform(0.15, 0.85, size=(4, 5))[recurring(horizon, 4, 10, 30, rng)]


CONTEXTS: dict[str, Series] = {
    "white": white,
    "slow (memory 0.9)": slow,
    "slow (memory 0.98)": partial(slow, memory=0.98),
    "blocks of random length": blocks,
    "blocks, 768 dimensions": partial(blocks, width=768),
}
OPTIMA: dict[str, Series] = {"fixed": fixed, "wandering": wandering, "switching": switching}


def unrelated(context: Series, optimum: Series) -> TargetDomain:
    """A loss whose optimum moves, or not, regardless of the context."""

    def stream(horizon: int, rng: np.random.Generator) -> list[Condition]:
        pairs = zip(context(horizon, rng), optimum(horizon, rng), strict=True)
        return [Condition(seen, target) for seen, target in pairs]

    return TargetDomain("unrelated", cube(5), "loss", squares(np.ones(5)), ADVERSARIAL_NOISE, stream)


def followed(seed: int, horizon: int) -> Log:
    """A log in which a rule sets two of three parameters by the context; the loss is rugged, and theirs alone."""
    rng = np.random.default_rng([seed, 5])
    contexts = slow(horizon, rng, 0.8)[:, :2]
    set_by_rule = 1.0 / (1.0 + np.exp(-contexts)) + 0.03 * rng.normal(size=(horizon, 2))
    points = np.clip(np.column_stack([set_by_rule, rng.uniform(size=horizon)]), 0.0, 1.0)
    losses = np.sin(9.0 * points[:, 0]) + 2.0 * np.abs(points[:, 1] - 0.4) + (points[:, 0] > 0.6)
    return contexts, points, losses + 0.1 * rng.normal(size=horizon)


# Tables


def report_on(name: str, seed: int, horizon: int) -> ContextReport:
    return screen(*played(domains.create(name), seed, horizon))


def report_on_noise(context: str, optimum: str, seed: int, horizon: int) -> ContextReport:
    return screen(*played(unrelated(CONTEXTS[context], OPTIMA[optimum]), seed, horizon))


def report_on_rule(seed: int, horizon: int) -> ContextReport:
    return screen(*followed(seed, horizon))


def report_on_rule_unconditionally(seed: int, horizon: int) -> ContextReport:
    """With the whole context shifted, not only what parameters do not tell of it."""
    with patch.object(shifts, "explained_by_points", lambda _, x: np.zeros_like(x)):
        return screen(*followed(seed, horizon))


RULES = {
    "parameters set by the context": report_on_rule,
    "parameters set by the context, plain shifts": report_on_rule_unconditionally,
}


def tally(name: str, reports: Sequence[ContextReport]) -> None:
    found = Counter(report.verdict for report in reports)
    said = [f"{found[verdict] / len(reports):.1%}" for verdict in ("helps", "useless", "too little data")]
    leaks = sum("computed from its outcome" in warning for report in reports for warning in report.warnings)
    print("|", " | ".join([name, str(len(reports)), *said, f"{leaks / len(reports):.1%}"]), "|", flush=True)


def head(first: str) -> None:
    print(f"| {first} | streams | helps | useless | too little data | leakage suspected |\n|---|---|---|---|---|---|")


def time_reports(rows: int = 300) -> None:
    """Of a log in which the first of several features helps."""
    print("| features | seconds of CPU |\n|---|---|")
    for features in (1, 3, 8, 16):
        rng = np.random.default_rng(0)
        situation, points = np.array(recurring(rows, 2, 7, 15, rng)), rng.uniform(size=(rows, 3))
        contexts = rng.normal(size=(rows, features))
        contexts[:, 0] = situation + 0.1 * contexts[:, 0]
        losses = ((points - 0.2 - 0.6 * situation[:, None]) ** 2).sum(axis=1) + 0.02 * rng.normal(size=rows)
        begun = time.thread_time()
        screen(contexts, points, losses)
        print(f"| {features} | {time.thread_time() - begun:.1f} |", flush=True)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--streams", type=int, default=200, help="how many of each kind")
    parser.add_argument("--horizon", type=int, default=100, help="steps of each stream")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--only", default="", metavar="TEXT", help="rows whose name has this in it")
    section = parser.add_mutually_exclusive_group()
    section.add_argument("--noise", action="store_true", help="contexts that say nothing")
    section.add_argument("--time", action="store_true", help="how long it takes")
    given = parser.parse_args(arguments)
    seeds, parallel = range(given.streams), Parallel(n_jobs=given.jobs)
    if given.time:
        time_reports()
    elif given.noise:
        head("context; optimum of the loss")
        cases = [(context, optimum) for context in CONTEXTS for optimum in OPTIMA]
        for context, optimum in cases:
            if given.only in f"{context}; {optimum}":
                jobs = (delayed(report_on_noise)(context, optimum, seed, given.horizon) for seed in seeds)
                tally(f"{context}; {optimum}", parallel(jobs))
        for name, report in RULES.items():
            if given.only in name:
                tally(name, parallel(delayed(report)(seed, given.horizon) for seed in seeds))
    else:
        head("domain")
        for name in (*domains.PAPER, *domains.BEYOND):
            if given.only in name:
                tally(name, parallel(delayed(report_on)(name, seed, given.horizon) for seed in seeds))


if __name__ == "__main__":
    main()
