"""Every registered agent keeps the public contract, but for the exemptions named here; and it notices who does not."""

import numpy as np
import pytest

from rasp_lab.bench.agents import AGENTS, OF_PAPER_PAGE, create
from rasp_lab.bench.agents.random import RandomSearch
from rasp_lab.bench.checks import RULES, ContractBroken, Subject, check_agent, memory_is_bounded, usual_task

SLOW = {  # steps that leave the initial design, and no more
    **{"gp-ucb": 8, "turbo": 13, "botorch": 6, "tpe": 16},
    **{"rasp-paper-trained": 6, "rasp-paper-always-slow": 8},  # which train their networks at every step
}
ALIKE = {"gp-ucb-0.25", "gp-ucb-0.5", "gp-ucb-1"}  # the same code as gp-ucb
DETERMINISTIC = {"static", "ra-gd"}
UNMEASURED = {  # agents whose memory is not measured here over the 600 steps of that rule, and why
    **dict.fromkeys(("gp-ucb", "turbo", "botorch"), "minutes; keeps a window of 200 runs"),
    "tpe": "a minute; keeps every run once, by its nature, which a test below counts",
    **dict.fromkeys(
        ("rasp", "rasp-no-memory", "rasp-paper", "rasp-paper-no-memory", "rasp-paper-mlp"),
        "tests/contract measures both presets over thousands of steps",
    ),
    **dict.fromkeys(OF_PAPER_PAGE, "the arrays of preset paper, and two more"),
}


CASES = [
    (name, rule)
    for name in sorted(set(AGENTS) - ALIKE)
    for rule in RULES
    if not (rule is memory_is_bounded and name in UNMEASURED)
]


def as_param(name, rule):
    return pytest.param(name, rule, id=f"{name}-{rule.__name__}")


@pytest.mark.parametrize(("name", "rule"), [as_param(name, rule) for name, rule in CASES])
def test_agents_keep_the_contract(name, rule):
    factory = lambda task, seed: create(name, task, seed)  # noqa: E731
    rule(Subject(name, factory, usual_task(), SLOW.get(name, 20), name in DETERMINISTIC))


@pytest.mark.parametrize("name", sorted(ALIKE))
def test_other_kappas_reach_their_agent(name):
    assert create(name, usual_task(), 0).kappa == float(name.removeprefix("gp-ucb-"))


def test_tpe_keeps_a_run_once_and_an_unanswered_ask_not_at_all():
    agent = create("tpe", usual_task(), 0)
    for step in range(15):
        id, _ = agent.ask(np.zeros(3))
        if step % 3:
            agent.tell(id, {"loss": float(step)})
    assert len(agent._study.trials) == 10


class Outside(RandomSearch):
    def ask(self, context):
        id, point = super().ask(context)
        return id, point + 1.0


class Unsnapped(RandomSearch):
    def ask(self, context):
        id, point = super().ask(context)
        return id, np.clip(point + 1e-3, 0.0, 1.0)


class LearnsByAsking(RandomSearch):
    seen = 0.0

    def suggest(self, context):
        self.seen += float(context.sum())
        return np.abs(np.sin(self.seen + self.rng.uniform(size=self.dim)))


class Unseeded(RandomSearch):
    def __init__(self, task, seed):
        super().__init__(task, seed)
        self.rng = np.random.default_rng()


class SameAlways(RandomSearch):
    def __init__(self, task, seed):
        super().__init__(task, 0)


class Global(RandomSearch):
    def suggest(self, context):
        np.random.uniform()  # noqa: NPY002
        return super().suggest(context)


class Hoarder(RandomSearch):
    def learn(self, run, loss):
        self.hoard = [*getattr(self, "hoard", []), np.zeros(10_000)]


class Careless(RandomSearch):
    def tell(self, id, metrics):
        """Takes anything."""


@pytest.mark.parametrize(
    ("factory", "says"),
    [
        (Outside, "unit box"),
        (Unsnapped, "legal"),
        (LearnsByAsking, "ask never learns"),
        (Unseeded, "the same seed"),
        (SameAlways, "different seeds"),
        (Global, "global random state"),
        (Hoarder, "memory grows"),
        (Careless, "unknown or answered"),
    ],
)
def test_the_contract_notices(factory, says):
    with pytest.raises(ContractBroken, match=says) as caught:
        check_agent(factory)
    assert factory.__name__ in str(caught.value)
