"""What each part of preset `default` is worth: regret relative to the static default, with one thing changed at a time.

Run: python benchmarks/ablations.py                what each part is worth: nine synthetic domains, A2 and H1, T = 100
     python benchmarks/ablations.py --robust       outliers, noise, a second metric, other units, useless context
     python benchmarks/ablations.py --switching    switching costs on the domains whose regimes come back
     python benchmarks/ablations.py --guard        never much worse than the default?
     python benchmarks/ablations.py --streams      the tabular streams, whose knobs are mixed and whose default is good
     python benchmarks/ablations.py --leaders      which expert ends up leading, and from which step on
                                                   (as the domains are, or under --condition, one of those of --robust)

An ablation is a list of replacements: (where, name, instead), made for one run and undone after it. The product has no
flags for them. An expert is removed by a prior score of minus infinity; its minimiser is no candidate then, either.
"""

import argparse
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from unittest.mock import patch

import numpy as np

from rasp_tuner.bench import agents, domains
from rasp_tuner.bench.agents.rasp import Rasp
from rasp_tuner.bench.analysis.metrics import geometric_mean
from rasp_tuner.bench.domains.base import ExperimentDomain, Task
from rasp_tuner.bench.domains.wrappers import MixedPolarity, Outliers, Wrapper
from rasp_tuner.bench.runner.protocol import Cell, Row, play
from rasp_tuner.engine.evidence import Evidence
from rasp_tuner.engine.family import Choice
from rasp_tuner.engine.quadratic import belief as bowls
from rasp_tuner.engine.quadratic import family as quadratic
from rasp_tuner.engine.quadratic import moving_optimum as linear
from rasp_tuner.engine.quadratic.belief import Bowls
from rasp_tuner.engine.quadratic.family import Quadratic

A2, H1 = domains.BEYOND
ALL = (*domains.SYNTHETIC, *domains.BEYOND)
BLIND, RECENT, WIDE, NARROW, MOVING = range(5)  # rows of the experts' scores [L + 1, R]
COSTS = (0.1, 0.3, 1.0)  # of a change of settings, times the static default's mean regret of one step
GUARD = 0.1  # share of the default's loss

Replacement = tuple[object, str, object]


@dataclass(frozen=True)
class Ablation:
    """One thing changed: what is replaced, which agent plays."""

    name: str
    replacements: tuple[Replacement, ...] = ()
    agent: str = "rasp"


# What ablations put in the place of methods


def _rescored(change: Callable[[Evidence], None]) -> Replacement:
    """Every fresh family Q with its evidence changed."""
    usual = Quadratic.__init__

    def fresh(self: Quadratic, *arguments: object) -> None:
        usual(self, *arguments)
        change(self.evidence)

    return Quadratic, "__init__", fresh


def _without(*experts: int, noises: tuple[int, ...] = ()) -> tuple[Replacement, ...]:
    """Experts whose prior score is minus infinity; the mean of the others' minimisers stands where theirs were."""
    usual = Bowls._centres

    def remove(evidence: Evidence) -> None:
        prior = evidence.prior.reshape(-1, quadratic.R)
        prior[list(experts)] = -np.inf
        prior[:, list(noises)] = -np.inf
        evidence.scores = evidence.prior.copy()

    def centres(self: Bowls) -> np.ndarray:
        each = usual(self)
        each[:-1][self.weights == 0.0] = each[-1]
        return each

    return _rescored(remove), (Bowls, "_centres", centres)


def _forgetting(keep: float) -> Replacement:
    return _rescored(lambda evidence: setattr(evidence, "keep", keep))


def _uniform() -> Replacement:
    def flatten(evidence: Evidence) -> None:
        evidence.prior[:] = 0.0
        evidence.scores = evidence.prior.copy()
        evidence.observe = lambda _densities: None  # type: ignore[method-assign]

    return _rescored(flatten)


def _top_one(self: Bowls) -> np.ndarray:
    weights = np.zeros(len(self.scores))
    alive = len(weights) if self.moving is not None else len(weights) - self.rivals
    weights[int(self.scores[:alive].argmax())] = 1.0
    return weights


def _after_tracking(change: Callable[[Quadratic, Bowls], None]) -> Replacement:
    usual = Quadratic._track

    def track(self: Quadratic, belief: Bowls) -> None:
        usual(self, belief)
        change(self, belief)

    return Quadratic, "_track", track


def _same_shape(self: Quadratic, _belief: Bowls) -> None:
    self._shape = np.ones(self.dim)


def _estimated(self: Quadratic, _belief: Bowls) -> None:
    if self._curvature:
        self._curvature = self._estimate(*self._pool(self.slots.trust[:1]))


def _without_probe() -> Replacement:
    usual = Bowls.choose

    def choose(self: Bowls, rng: np.random.Generator) -> Choice:
        if len(self.targets) >= 2:
            return usual(self, rng)
        twice = {name: np.repeat(getattr(self, name), 2, axis=0) for name in ("tried", "targets")}
        return usual(replace(self, kernels=np.repeat(self.kernels, 2, axis=1), **twice), rng)  # the only sample, twice

    return Bowls, "choose", choose


def _without_hint(self: Bowls) -> np.ndarray:
    return self._centres()[-1]


def _gaussian(self: Quadratic, context: np.ndarray) -> np.ndarray:
    wobbles, spreads = self.slots.gaps(context)
    kernels = np.ones((len(quadratic.LOCAL), self.slots.count))
    kernels[RECENT] = np.exp(-self.slots.ages / quadratic.RECENT)
    kernels[WIDE] = np.exp(-wobbles / self.slots.reach)
    kernels[NARROW] = np.exp(-spreads / (2.0 * quadratic.NEAR**2))
    return kernels


def _with_disagreement() -> Replacement:
    usual = Bowls._weigh

    def weigh(self: Bowls, u: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        mean, _, variance = usual(self, u)
        return mean, variance, variance

    return Bowls, "_weigh", weigh


NO_JUDGE = (
    (Quadratic, "_judge", lambda _self, _belief: None),
    (linear, "_trust", lambda squares, _noise: np.ones_like(squares)),
)
NO_CREDIT = (Quadratic, "_credit", lambda _self, _densities, _belief: 1.0)
NO_PIN = (Quadratic, "_pin", lambda _self, mean, S, _level: (mean, S))
NEVER_SLOW = "rasp[anomaly_threshold=1e9,disagreement_threshold=1e9]"

ABLATIONS = {
    ablation.name: ablation
    for ablation in (
        Ablation("default"),
        Ablation("without expert: recent history", _without(RECENT)),
        Ablation("without expert: situations like this one (wide kernel)", _without(WIDE)),
        Ablation("without expert: the most similar situations (narrow kernel)", _without(NARROW)),
        Ablation("without expert: moving optimum", _without(MOVING)),
        Ablation("without both kernels", _without(WIDE, NARROW)),
        Ablation("blind expert only", _without(RECENT, WIDE, NARROW, MOVING)),
        Ablation("contexts hidden (agent rasp-no-memory)", agent="rasp-no-memory"),
        Ablation("Gaussian instead of squared-Gaussian kernels", ((Quadratic, "_kernels", _gaussian),)),
        Ablation("gate: uniform weights", (_uniform(),)),
        Ablation("gate: only the leader counts", ((Bowls, "weights", property(_top_one)),)),
        Ablation("gate: no prior odds", ((quadratic, "LOCAL_ODDS", 0.0), (quadratic, "NOISE_ODDS", 0.0))),
        Ablation("gate: forgetting 0.9", (_forgetting(0.9),)),
        Ablation("gate: forgetting 0.999", (_forgetting(0.999),)),
        Ablation("without robust weights (trust)", NO_JUDGE),
        Ablation("without the rule for false measurements", (NO_CREDIT,)),
        Ablation("without either", (*NO_JUDGE, NO_CREDIT)),
        Ablation("without the pinned level", (NO_PIN,)),
        Ablation("without tracking the knobs' shape", (_after_tracking(_same_shape),)),
        Ablation("curvature always estimated, never tracked", (_after_tracking(_estimated),)),
        Ablation("nothing shared is tracked", ((Quadratic, "_track", lambda _self, _belief: None),)),
        Ablation("one noise only: the small one", _without(noises=(1, 2))),
        Ablation("one noise only: the middle one", _without(noises=(0, 2))),
        Ablation("one noise only: the large one", _without(noises=(0, 1))),
        Ablation("two noises: without the large one", _without(noises=(2,))),
        Ablation("moving optimum: no more steps while young", ((linear, "MORE", 0),)),
        Ablation("moving optimum: half the variance of its slopes", ((linear, "SLOPES", 0.5 * linear.SLOPES),)),
        Ablation("trust and moving optimum: looked at in every step", ((quadratic, "SETTLED", np.inf),)),
        Ablation("kappa 0", ((bowls, "KAPPA", 0.0),)),
        Ablation("kappa 0.35", ((bowls, "KAPPA", 0.35),)),
        Ablation("kappa 1.4", ((bowls, "KAPPA", 1.4),)),
        Ablation("LCB counts the experts' disagreement", (_with_disagreement(),)),
        Ablation("without the first probe", (_without_probe(),)),
        Ablation("without draws", ((bowls, "DRAWS", 0),)),
        Ablation("without moves along the least known directions", ((bowls, "DIRECTIONS", 0),)),
        Ablation("without the hint", ((Bowls, "_hint", _without_hint),)),
        Ablation("without the slow path", agent=NEVER_SLOW),
        Ablation("memory of 48 slots", ((quadratic, "SLOTS", 48),)),
    )
}


# Conditions under which `--robust` looks


class Louder(Wrapper):
    """The domain's own noise, `factor` times as large; a domain without noise stays without."""

    def __init__(self, inner: ExperimentDomain, factor: float) -> None:
        super().__init__(inner, "louder")
        self._factor = factor

    def metric_fn(self, theta: np.ndarray, omega: object, rng: np.random.Generator) -> dict[str, float]:
        loss = self.true_loss(theta, omega)  # of every synthetic domain the one metric is the loss plus noise
        return {name: loss + self._factor * (y - loss) for name, y in self.inner.metric_fn(theta, omega, rng).items()}


class Units(Wrapper):
    """Metrics in other units: `scale * y + offset`."""

    def __init__(self, inner: ExperimentDomain, scale: float, offset: float) -> None:
        super().__init__(inner, "units")
        self._scale, self._offset = scale, offset

    def metric_fn(self, theta: np.ndarray, omega: object, rng: np.random.Generator) -> dict[str, float]:
        return {name: self._scale * y + self._offset for name, y in self.inner.metric_fn(theta, omega, rng).items()}


CONDITIONS: dict[str, Callable[[ExperimentDomain], ExperimentDomain]] = {
    "as they are": lambda domain: domain,
    "one answer in ten is an outlier": Outliers,
    "ten times the domain's own noise": lambda domain: Louder(domain, 10.0),
    "a second metric of the other polarity": MixedPolarity,
    "metric x 1000 + 500": lambda domain: Units(domain, 1000.0, 500.0),
}


# Running


@dataclass(frozen=True)
class Job:
    """One run: which ablation under which condition on which domain."""

    domain: str
    seed: int
    horizon: int
    ablation: str = "default"
    condition: str = "as they are"
    agent: str = ""  # instead of the ablation's


def run(job: Job) -> list[Row]:
    """The steps of one run; whatever was replaced for it is put back."""
    ablation = ABLATIONS[job.ablation]
    world = CONDITIONS[job.condition](domains.create(job.domain))
    with ExitStack() as stack:
        for where, name, instead in ablation.replacements:
            stack.enter_context(patch.object(where, name, instead))
        return list(play(Cell(job.domain, job.agent or ablation.agent, job.seed, job.horizon), world))


def regret(job: Job) -> float:
    return sum(row.regret for row in run(job))


def mapped(work: Callable[[Job], object], jobs: Sequence[Job], processes: int) -> dict[Job, object]:
    """What `work` makes of each job."""
    if processes == 1:
        return {job: work(job) for job in jobs}
    from joblib import Parallel, delayed

    return dict(zip(jobs, Parallel(n_jobs=processes)(delayed(work)(job) for job in jobs), strict=True))


@dataclass(frozen=True)
class Plan:
    """What is run of everything."""

    domains: tuple[str, ...]
    seeds: range
    horizon: int
    processes: int

    def regrets(self, usual: Job, names: Iterable[str]) -> dict[str, np.ndarray]:
        """Cumulative regret [seeds] for each domain of `names`, of a job like `usual`."""
        jobs = {name: [replace(usual, domain=name, seed=seed) for seed in self.seeds] for name in names}
        found = mapped(regret, [job for each in jobs.values() for job in each], self.processes)
        return {name: np.array([found[job] for job in each]) for name, each in jobs.items()}

    def job(self, **changes: str) -> Job:
        return Job("", 0, self.horizon, **changes)

    @property
    def nine(self) -> list[str]:
        return [name for name in self.domains if name in domains.SYNTHETIC]


def ratios(own: Mapping[str, np.ndarray], static: Mapping[str, np.ndarray]) -> dict[str, float]:
    """Mean regret over seeds relative to the static default's, by domain."""
    return {name: float(totals.mean() / static[name].mean()) for name, totals in own.items()}


def by_seed(own: Mapping[str, np.ndarray], static: Mapping[str, np.ndarray], nine: Sequence[str]) -> np.ndarray:
    """Geometric mean over the nine, of each seed alone."""
    return np.exp(np.mean([np.log(own[name] / static[name]) for name in nine], axis=0)) if nine else np.full(1, np.nan)


# Tables


def columns(row: Mapping[str, float], nine: Sequence[str]) -> list[str]:
    """Geometric mean, worst domain, A2 and H1."""
    worst = max(nine, key=lambda name: row[name], default=None)
    return [
        f"{geometric_mean(row[name] for name in nine):.3f}",
        "-" if worst is None else f"{row[worst]:.2f} {worst}",
        *(f"{row[name]:.3f}" if name in row else "-" for name in (A2, H1)),
    ]


def line(cells: Iterable[str]) -> None:
    print("| " + " | ".join(cells) + " |", flush=True)


def head(*names: str) -> None:
    line(names)
    line(["---"] * len(names))


def print_ablations(plan: Plan, only: str) -> None:
    head("ablation", "geometric mean", "worst domain", "A2", "H1", "change of the mean +- its standard error")
    static = plan.regrets(plan.job(agent="static"), plan.domains)
    usual = None
    for name in ABLATIONS:
        if name != "default" and not re.search(only, name):
            continue
        own = plan.regrets(plan.job(ablation=name), plan.domains)
        seeds = by_seed(own, static, plan.nine)
        usual = seeds if usual is None else usual
        change = seeds - usual
        error = change.std(ddof=1) / np.sqrt(len(change)) if len(change) > 1 else np.nan
        cells = columns(ratios(own, static), plan.nine)
        line([name, *cells, "" if name == "default" else f"{change.mean():+.3f} +- {error:.3f}"])


def print_robust(plan: Plan, conditions: Iterable[str]) -> None:
    head("condition", "agent", "geometric mean", "worst domain", "A2", "H1")
    for condition in conditions:
        static = plan.regrets(plan.job(condition=condition, agent="static"), plan.domains)
        for agent in ("rasp", "rasp-no-memory"):
            own = plan.regrets(plan.job(condition=condition, agent=agent), plan.domains)
            line([condition, agent, *columns(ratios(own, static), plan.nine)])


class Watched(Rasp):
    """RASP that counts how often its settings change, and remembers which expert led."""

    def __init__(self, task: Task, seed: int, settings: Mapping[str, float]) -> None:
        super().__init__(task, seed, settings=settings)
        self.changes, self._before, self._ids = 0, None, []

    def ask(self, context: np.ndarray) -> tuple[str, np.ndarray]:
        id, point = super().ask(context)
        self.changes += self._before is not None and not np.array_equal(point, self._before)
        self._before = point
        self._ids.append(id)
        return id, point

    def leaders(self) -> list[str]:
        """The expert that counted most at each step after the first, whatever its noise."""
        return [self.tuner.explain(id).expert.split(" (")[0] for id in self._ids[1:]]


def watched(job: Job, cost: float = 0.0) -> tuple[float, Watched]:
    """Regret of one run with a switching cost, and the agent after it."""
    made: list[Watched] = []

    def build(task: Task, seed: int) -> Watched:
        made.append(Watched(task, seed, {"switching_cost": cost}))
        return made[-1]

    with patch.dict(agents.AGENTS):
        agents.register("watched", build)
        total = regret(replace(job, agent="watched"))
    return total, made[0]


def print_switching(plan: Plan) -> None:
    head("domain", "cost of a change", "told of it", "changes", "regret", "regret + cost x changes", "static: regret")
    for name in (name for name in plan.domains if name in domains.RECURRING):
        static = plan.regrets(plan.job(agent="static"), [name])[name].mean()
        for share in COSTS:
            cost = share * static / plan.horizon
            for told in (False, True):
                jobs = [replace(plan.job(), domain=name, seed=seed) for seed in plan.seeds]
                found = [watched(job, cost if told else 0.0) for job in jobs]
                total, changes = np.mean([(total, agent.changes) for total, agent in found], axis=0)
                numbers = (f"{x:.2f}" for x in (total, total + cost * changes, static))
                price = f"{share:g} x {static / plan.horizon:.3f}"
                line([name, price, "yes" if told else "no", f"{changes:.0f}", *numbers])


def print_guard(plan: Plan) -> None:
    share = f"steps more than {GUARD:.0%} worse than the default"
    head("guard", "geometric mean", "worst domain", "A2", "H1", share, "most of them on")
    jobs = [replace(plan.job(agent="static"), domain=name, seed=seed) for name in plan.domains for seed in plan.seeds]
    static = mapped(run, jobs, plan.processes)
    for agent, shown in (("rasp", "none"), (f"rasp[guard={GUARD}]", f"{GUARD:g}")):
        own = mapped(run, [replace(job, agent=agent) for job in jobs], plan.processes)
        worse, row = {}, {}
        for name in plan.domains:
            first = domains.create(name).space.dim + 2
            here = [job for job in jobs if job.domain == name]
            steps = [pair for job in here for pair in zip(own[replace(job, agent=agent)], static[job], strict=True)]
            worse[name] = np.mean([ours.loss > (1.0 + GUARD) * base.loss for ours, base in steps if ours.step >= first])
            row[name] = sum(ours.regret for ours, _ in steps) / sum(base.regret for _, base in steps)
        most = max(worse, key=lambda name: worse[name])
        mean = np.mean(list(worse.values()))
        line([shown, *columns(row, plan.nine), f"{mean:.1%}", f"{worse[most]:.1%} {most}"])


def print_streams(plan: Plan) -> None:
    head("agent", *domains.STREAMS)
    static = plan.regrets(plan.job(agent="static"), domains.STREAMS)
    for agent in ("rasp", f"rasp[guard={GUARD}]"):
        row = ratios(plan.regrets(plan.job(agent=agent), domains.STREAMS), static)
        line([agent, *(f"{row[name]:.3f}" for name in domains.STREAMS)])


def print_leaders(plan: Plan, condition: str) -> None:
    head("domain", "leads at the end", "seeds", "for good from step")
    for name in plan.domains:
        since: dict[str, list[int]] = {}
        for seed in plan.seeds:
            leaders = watched(replace(plan.job(condition=condition), domain=name, seed=seed))[1].leaders()
            others = [step for step, leader in enumerate(leaders, start=1) if leader != leaders[-1]]
            since.setdefault(leaders[-1], []).append(max(others, default=0) + 1)
        for leader, steps in since.items():
            line([name, leader, str(len(steps)), ", ".join(map(str, sorted(steps)))])


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=5, help="how many")
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--domains", nargs="+", choices=ALL, default=ALL, metavar="DOMAIN")
    parser.add_argument("--horizon", type=int, default=100, help="steps of each run")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--only", default="", metavar="PATTERN", help="ablations whose name has this in it")
    parser.add_argument("--condition", choices=CONDITIONS, help="only this one of --robust; also for --leaders")
    section = parser.add_mutually_exclusive_group()
    section.add_argument("--robust", action="store_true", help="harder versions of the domains instead of ablations")
    section.add_argument("--switching", action="store_true", help="switching costs instead of ablations")
    section.add_argument("--guard", action="store_true", help="the guard instead of ablations")
    section.add_argument("--streams", action="store_true", help="the three tabular streams instead of ablations")
    section.add_argument("--leaders", action="store_true", help="the leading experts instead of ablations")
    given = parser.parse_args(arguments)
    seeds = range(given.first_seed, given.first_seed + given.seeds)
    plan = Plan(tuple(given.domains), seeds, given.horizon, given.jobs)
    print(
        f"Cumulative regret relative to the static default: T = {plan.horizon}, seeds {seeds[0]} to {seeds[-1]}; the"
        " geometric mean and the worst domain are over the nine synthetic ones.\n"
    )
    if given.robust:
        print_robust(plan, [given.condition] if given.condition else CONDITIONS)
    elif given.switching:
        print_switching(plan)
    elif given.guard:
        print_guard(plan)
    elif given.streams:
        print_streams(plan)
    elif given.leaders:
        print_leaders(plan, given.condition or "as they are")
    else:
        print_ablations(plan, given.only)


if __name__ == "__main__":
    main()
