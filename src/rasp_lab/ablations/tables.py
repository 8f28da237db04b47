"""Every table of the page: ablations under one condition, and the engine as it is in harder worlds.

Regret is relative to the static default's: below one is better than never to move.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy import stats

from rasp_lab.ablations.conditions import A2, H1, QUIET, WRAPS, Condition
from rasp_lab.ablations.parts import FAMILIES, FULL
from rasp_lab.ablations.runs import Job, Runs, regret, steps, watched
from rasp_lab.bench import domains
from rasp_lab.bench.analysis.metrics import geometric_mean

COSTS = (0.1, 0.3, 1.0)  # of a change of settings, times the static default's mean regret of one step
GUARD = 0.1  # share of the default's loss
ROBUST = tuple(name for name in WRAPS if name != "noise of half the metric")
LEVEL = 0.05  # of the t-tests
LEAST_REGRET = 1e-12  # a run without any regret still has a logarithm

Table = list[list[str]]  # header first


@dataclass(frozen=True)
class Plan:
    """What is run of everything."""

    domains: tuple[str, ...]
    seeds: range
    horizon: int
    runs: Runs

    def job(self, world: str, seed: int, **changes: str) -> Job:
        return Job(world, seed, self.horizon, **changes)

    def regrets(self, names: Iterable[str], **changes: str) -> dict[str, np.ndarray]:
        """Cumulative regret [seeds] for each of some worlds."""
        names = list(names)
        jobs = [self.job(name, seed, **changes) for name in names for seed in self.seeds]
        found = np.array(self.runs(regret, jobs)).reshape(len(names), -1)
        return dict(zip(names, found, strict=True))

    @property
    def nine(self) -> list[str]:
        return [name for name in self.domains if name in domains.SYNTHETIC]


# Ablations


def worlds_of(plan: Plan, condition: Condition) -> list[str]:
    """Those of the condition's worlds that are asked for; tables and streams always are."""
    return [name for name in condition.worlds if name in plan.domains or name not in (*domains.SYNTHETIC, A2, H1)]


def parts_of(condition: Condition, only: str = "") -> list[str]:
    """The changes of one table, the full engine first."""
    quiet = condition.wrap == QUIET
    parts = FAMILIES[condition.family].values()
    return [p.name for p in parts if p.name == FULL or (only in p.name and (p.in_harder_worlds or quiet))]


def warm_up(plan: Plan, conditions: Sequence[Condition], only: str = "") -> None:
    """Run all ablations, seed by seed: stopped early, the seeds that are done are whole."""
    jobs = [
        plan.job(name, seed, ablation=part, family=condition.family, wrap=condition.wrap)
        for seed in plan.seeds
        for condition in conditions
        for part in parts_of(condition, only)
        for name in worlds_of(plan, condition)
    ]
    plan.runs(regret, jobs)


def ablations(plan: Plan, condition: Condition, only: str = "") -> Table:
    """One row for each change: regret, and how its logarithm differs from the full engine's."""
    table = [["part", "regret relative to static", "difference in log", "verdict"]]
    names, usual = worlds_of(plan, condition), None
    static = logs(plan.regrets(names, agent="static", wrap=condition.wrap))
    for part in parts_of(condition, only):
        own = logs(plan.regrets(names, ablation=part, family=condition.family, wrap=condition.wrap))
        usual = own if usual is None else usual
        ratio = f"{np.exp((own - static).mean()):.3f}"
        found = Difference.of(own - usual)
        table.append([part, ratio, "", ""] if part == FULL else [part, ratio, str(found), found.verdict])
    return table


def logs(regrets: Mapping[str, np.ndarray]) -> np.ndarray:
    """[worlds, seeds] logarithms of cumulative regret."""
    return np.log(np.maximum(np.array(list(regrets.values())), LEAST_REGRET))


@dataclass(frozen=True)
class Difference:
    """How much the log regret differs from the full engine's on the same seeds, a mean over these worlds."""

    mean: float
    error: float  # standard error over seeds; NaN for one seed
    half: float  # half-width of the interval of that test

    @classmethod
    def of(cls, gaps: np.ndarray) -> "Difference":
        """From gaps [worlds, seeds]. Runs in two worlds have nothing in common, so each world has its own variance over
        seeds, and the mean has the sum of all over the square of their number."""
        worlds, seeds = gaps.shape
        if seeds < 2:
            return cls(float(gaps.mean()), np.nan, np.nan)
        error = float(np.sqrt((gaps.var(axis=1, ddof=1) / seeds).sum())) / worlds
        return cls(float(gaps.mean()), error, error * float(stats.t.ppf(1.0 - LEVEL / 2.0, worlds * (seeds - 1))))

    def __str__(self) -> str:
        return f"{self.mean:+.3f} +- {'?' if np.isnan(self.error) else f'{self.error:.3f}'}"

    @property
    def verdict(self) -> str:
        """In words: whether the full engine is better, beyond what seeds explain (a t-test)."""
        if self.mean == 0.0 and not self.error > 0.0:
            return "no difference at all"
        if np.isnan(self.half):
            return "unknown: one seed"
        if abs(self.mean) <= self.half:
            return "no difference beyond luck"
        return "helps" if self.mean > 0.0 else "hurts"


# The engine as it is


def ratios(own: Mapping[str, np.ndarray], static: Mapping[str, np.ndarray]) -> dict[str, float]:
    """Mean regret over seeds relative to the static default's, by domain."""
    return {name: float(totals.mean() / static[name].mean()) for name, totals in own.items()}


def columns(row: Mapping[str, float], nine: Sequence[str]) -> list[str]:
    """Geometric mean, worst domain, A2 and H1."""
    worst = max(nine, key=lambda name: row[name], default=None)
    return [
        f"{geometric_mean(row[name] for name in nine):.3f}",
        "-" if worst is None else f"{row[worst]:.2f} {worst}",
        *(f"{row[name]:.3f}" if name in row else "-" for name in (A2, H1)),
    ]


def robust(plan: Plan, wraps: Iterable[str] = ROBUST) -> Table:
    table = [["condition", "agent", "geometric mean", "worst domain", "A2", "H1"]]
    for wrap in wraps:
        static = plan.regrets(plan.domains, wrap=wrap, agent="static")
        for agent in ("rasp", "rasp-no-memory"):
            own = plan.regrets(plan.domains, wrap=wrap, agent=agent)
            table.append([wrap, agent, *columns(ratios(own, static), plan.nine)])
    return table


def switching(plan: Plan) -> Table:
    table = [
        ["domain", "cost of a change", "told of it", "changes", "regret", "regret + cost x changes", "static: regret"]
    ]
    for name in (name for name in plan.domains if name in domains.RECURRING):
        static = plan.regrets([name], agent="static")[name].mean()
        for share in COSTS:
            cost = float(share * static / plan.horizon)
            for told in (False, True):
                agent = f"watched@{cost if told else 0.0!r}"
                found = plan.runs(watched, [plan.job(name, seed, agent=agent) for seed in plan.seeds])
                total, changes = np.mean([(run["regret"], run["changes"]) for run in found], axis=0)
                numbers = (f"{x:.2f}" for x in (total, total + cost * changes, static))
                price = f"{share:g} x {static / plan.horizon:.3f}"
                table.append([name, price, "yes" if told else "no", f"{changes:.0f}", *numbers])
    return table


def guard(plan: Plan) -> Table:
    share = f"steps more than {GUARD:.0%} worse than the default"
    table = [["guard", "geometric mean", "worst domain", "A2", "H1", share, "most of them on"]]
    for agent, shown in (("rasp", "none"), (f"rasp[guard={GUARD}]", f"{GUARD:g}")):
        worse, row = {}, {}
        for name in plan.domains:
            first = domains.create(name).space.dim + 2
            jobs = [plan.job(name, seed, agent=agent) for seed in plan.seeds]
            ours = plan.runs(steps, jobs)
            base = plan.runs(steps, [replace(job, agent="static") for job in jobs])
            loss, default = (np.array([run["loss"][first:] for run in runs]) for runs in (ours, base))
            worse[name] = float(np.mean(loss > (1.0 + GUARD) * default))
            row[name] = sum(sum(run["regret"]) for run in ours) / sum(sum(run["regret"]) for run in base)
        most = max(worse, key=lambda name: worse[name])
        mean = np.mean(list(worse.values()))
        table.append([shown, *columns(row, plan.nine), f"{mean:.1%}", f"{worse[most]:.1%} {most}"])
    return table


def streams(plan: Plan) -> Table:
    table = [["agent", *domains.STREAMS]]
    static = plan.regrets(domains.STREAMS, agent="static")
    for agent in ("rasp", f"rasp[guard={GUARD}]"):
        row = ratios(plan.regrets(domains.STREAMS, agent=agent), static)
        table.append([agent, *(f"{row[name]:.3f}" for name in domains.STREAMS)])
    return table


def leaders(plan: Plan, wrap: str = QUIET) -> Table:
    table = [["domain", "leads at the end", "seeds", "for good from step"]]
    for name in plan.domains:
        since: dict[str, list[int]] = {}
        for found in plan.runs(watched, [plan.job(name, s, wrap=wrap, agent="watched@0.0") for s in plan.seeds]):
            led = found["leaders"]
            others = [step for step, leader in enumerate(led, start=1) if leader != led[-1]]
            since.setdefault(led[-1], []).append(max(others, default=0) + 1)
        for leader, first in since.items():
            table.append([name, leader, str(len(first)), ", ".join(map(str, sorted(first)))])
    return table


def markdown(table: Table) -> str:
    header, *rows = table
    return "\n".join("| " + " | ".join(cells) + " |" for cells in (header, ["---"] * len(header), *rows))
