"""The contract of an agent, for anyone's agent: `check_agent(factory)` runs every rule and names the one that breaks.

>>> from rasp_lab.bench.agents.random import RandomSearch
>>> check_agent(RandomSearch, steps=10, growth=False)
"""

import sys
import tracemalloc
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from rasp_lab.bench.agents.base import Agent, Factory
from rasp_lab.bench.domains.base import Task
from rasp_tuner.base.numerics import Array
from rasp_tuner.errors import RaspError
from rasp_tuner.space import Categorical, Float, Int, Space
from rasp_tuner.types import Metric

MAX_GROWTH_BYTES = 2**20  # from step 300 to 600: room for a list of suggestions, not for a copy of each step


class ContractBroken(RaspError, AssertionError):
    """An agent breaks a rule of the contract; the message names both."""


def usual_task(context_dim: int = 3, metrics: Mapping[str, Metric] | None = None) -> Task:
    """One knob of each kind."""
    space = Space(
        {
            "x": Float(-2.0, 2.0),
            "rate": Float(1e-4, 1.0, log=True),
            "grid": Float(0.0, 1.0, step=0.25),
            "n": Int(1, 64, log=True),
            "kind": Categorical(["a", "b", "c"]),
        }
    )
    return Task(space, metrics or {"loss": Metric("min")}, context_dim, space.snap(np.full(space.dim, 0.5)))


@dataclass(frozen=True)
class Subject:
    """An agent under test."""

    name: str
    factory: Factory
    task: Task
    steps: int
    deterministic: bool

    def new(self, task: Task | None = None, seed: int = 0) -> Agent:
        return self.factory(task or self.task, seed)

    def require(self, holds: bool, rule: str) -> None:
        if not holds:
            raise ContractBroken(f"agent {self.name!r} breaks the contract: {rule}")

    def drive(
        self,
        agent: Agent,
        task: Task | None = None,
        steps: int | None = None,
        *,
        stream: int = 0,
        scale: float = 1.0,
    ) -> Array:
        """Ask and tell `steps` times on a noisy quadratic; every suggestion [steps, d], each found legal.

        The context is always the same array, overwritten after every ask: an agent must not keep it.
        """
        task = task or self.task
        rng = np.random.default_rng(stream)
        context, trace = np.empty(task.context_dim), []
        for step in range(self.steps if steps is None else steps):
            context[:] = rng.normal(size=task.context_dim) * 0.1 + step // 10 % 2
            id, point = agent.ask(context)
            context[:] = np.nan
            self.legal(task, id, point)
            trace.append(point.copy())
            agent.tell(id, metrics_at(task, point, rng, scale))
        return np.array(trace)

    def legal(self, task: Task, id: object, point: Array) -> None:
        self.require(isinstance(id, str), f"an id is a string, got {id!r}")
        self.require(point.shape == (task.space.dim,), f"a suggestion has shape [d], got {point.shape}")
        self.require(bool(np.all((point >= 0.0) & (point <= 1.0))), f"a suggestion lies in the unit box, got {point}")
        legal = np.array_equal(task.space.snap(point), point)
        self.require(legal, f"a suggestion is legal: it equals its snapped self, got {point}")


def metrics_at(task: Task, point: Array, rng: np.random.Generator, scale: float = 1.0) -> dict[str, float]:
    """A noisy quadratic around 0.3, negated for metrics where more is better."""
    loss = scale * (float(((point - 0.3) ** 2).sum()) + 0.01 * float(rng.normal()))
    return {name: loss if metric.direction == "min" else -loss for name, metric in task.metrics.items()}


def check_agent(
    factory: Factory,
    task: Task | None = None,
    *,
    name: str = "",
    steps: int = 30,
    deterministic: bool = False,
    growth: bool = True,
) -> None:
    """Run every rule; raises `ContractBroken` at the first that does not hold.

    factory        what `register` takes: called with a task and a seed, gives an agent
    task           to run the rules on that leave it open; one knob of each kind if absent
    steps          how long each run is; fewer for a slow agent, but enough to leave its initial design
    deterministic  the agent uses no randomness: seeds need not matter
    growth         also measure memory over 600 steps; switch it off for a slow agent
    """
    named = name or getattr(factory, "__name__", repr(factory))
    subject = Subject(named, factory, task or usual_task(), steps, deterministic)
    for rule in RULES if growth else RULES[:-1]:
        rule(subject)


def same_seed_same_trace(subject: Subject) -> None:
    first, second = (subject.drive(subject.new(seed=3)) for _ in range(2))
    subject.require(np.array_equal(first, second), "the same seed gives the same trace")


def seeds_matter(subject: Subject) -> None:
    if not subject.deterministic:
        first, second = (subject.drive(subject.new(seed=seed)) for seed in (3, 4))
        subject.require(not np.array_equal(first, second), "different seeds give different traces")


def global_randomness_is_left_alone(subject: Subject) -> None:
    before = _global_states()
    subject.drive(subject.new())
    after = {name: state for name, state in _global_states().items() if name in before}
    subject.require(before == after, "global random state is left alone (numpy, torch)")


def ask_never_learns(subject: Subject) -> None:
    """Two agents with one history are asked about different contexts and not answered; then they must go on alike.

    Asking may move the random generator, so both are asked equally often; all that an ask could learn from is its
    context, and that differs.
    """
    traces = []
    for foreign in (0.0, 1.0):
        agent = subject.new()
        subject.drive(agent)
        for extra in range(2):
            agent.ask(np.full(subject.task.context_dim, foreign * (10.0 + extra)))
        traces.append(subject.drive(agent, steps=3, stream=1))
    subject.require(
        np.array_equal(traces[0], traces[1]), "ask never learns: unanswered asks leave no trace in later suggestions"
    )


def answers_in_any_order(subject: Subject) -> None:
    """Answers come late and shuffled, some fail, and every fifth suggestion is never answered."""
    agent, rng, waiting = subject.new(), np.random.default_rng(1), list[tuple[str, Array]]()
    for step in range(2 * subject.steps):
        id, point = agent.ask(rng.normal(size=subject.task.context_dim))
        subject.legal(subject.task, id, point)
        subject.require(id not in {known for known, _ in waiting}, "ids differ")
        if step % 5 != 4:
            waiting.append((id, point))
        if len(waiting) > 4:
            id, point = waiting.pop(int(rng.integers(len(waiting))))
            if step % 7 == 6:
                agent.tell_failed(id)
            else:
                agent.tell(id, metrics_at(subject.task, point, rng))


def an_answer_comes_once(subject: Subject) -> None:
    agent, rng = subject.new(), np.random.default_rng(2)
    id, point = agent.ask(np.zeros(subject.task.context_dim))
    metrics = metrics_at(subject.task, point, rng)
    agent.tell(id, metrics)
    refused = 0
    for unknown in (id, "never issued"):
        try:
            agent.tell(unknown, metrics)
        except (LookupError, ValueError):
            refused += 1
    subject.require(refused == 2, "an id that is unknown or answered raises a LookupError or a ValueError")


def failure_may_come_first(subject: Subject) -> None:
    agent = subject.new()
    for _ in range(3):
        id, point = agent.ask(np.zeros(subject.task.context_dim))
        subject.legal(subject.task, id, point)
        agent.tell_failed(id)
    subject.drive(agent)


def any_context_length(subject: Subject) -> None:
    for length in (0, 768):
        task = usual_task(length)
        subject.drive(subject.new(task), task)


def mixed_metrics(subject: Subject) -> None:
    task = usual_task(metrics={"loss": Metric("min"), "gain": Metric("max", 0.5)})
    subject.drive(subject.new(task), task)


def one_metric_to_be_raised(subject: Subject) -> None:
    """Turning the only metric around must change nothing at all."""
    traces = []
    for direction in ("min", "max"):
        task = usual_task(metrics={"m": Metric("min" if direction == "min" else "max")})
        traces.append(subject.drive(subject.new(task), task))
    subject.require(np.allclose(traces[0], traces[1]), "a metric to be raised is treated as its negative to be lowered")


def any_metric_scale(subject: Subject) -> None:
    for scale in (1e6, 0.0):
        subject.drive(subject.new(), scale=scale)


def memory_is_bounded(subject: Subject) -> None:
    agent = subject.new()
    tracemalloc.start()
    try:
        subject.drive(agent, steps=300)
        before = tracemalloc.get_traced_memory()[0]
        subject.drive(agent, steps=300, stream=1)
        grown = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    subject.require(
        grown < MAX_GROWTH_BYTES,
        f"from step 300 to 600 memory grows by less than {MAX_GROWTH_BYTES} bytes, got {grown}",
    )


RULES: tuple[Callable[[Subject], None], ...] = (
    same_seed_same_trace,
    seeds_matter,
    global_randomness_is_left_alone,
    ask_never_learns,
    answers_in_any_order,
    an_answer_comes_once,
    failure_may_come_first,
    any_context_length,
    mixed_metrics,
    one_metric_to_be_raised,
    any_metric_scale,
    memory_is_bounded,  # last: `growth` leaves it out
)


def _global_states() -> dict[str, object]:
    states: dict[str, object] = {"numpy": str(np.random.get_state())}  # noqa: NPY002
    if "torch" in sys.modules:
        states["torch"] = sys.modules["torch"].random.get_rng_state().numpy().tobytes()
    return states
