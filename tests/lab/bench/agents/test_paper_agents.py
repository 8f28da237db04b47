"""Readings of the paper, its repaired stack and the bridge to the engine: what each of them changes, and no more."""

import numpy as np
import pytest

from rasp_lab.bench import domains
from rasp_lab.bench.agents import create
from rasp_lab.bench.agents.paper_readings import CorrectedEMA, FirstValueEMA, Reading
from rasp_lab.bench.agents.paper_repaired import CHANGES, AnchoredMoE
from rasp_lab.bench.agents.rasp import Rasp
from rasp_lab.bench.domains.base import Task
from rasp_lab.bench.runner.protocol import Cell, play
from rasp_lab.paper.bridge import AllSamples
from rasp_tuner import InvalidSpace, InvalidValue, SnapshotError, Tuner
from rasp_tuner.base.numerics import RunningEMA
from rasp_tuner.optimizer.preset import named
from rasp_tuner.paper import PAPER
from rasp_tuner.paper.surrogate import Retrieval, TrainingBatch
from rasp_tuner.space import Float, Layout, Space
from rasp_tuner.types import Metric
from tests.later import Later

experts = Later("rasp_tuner.paper.experts")

SPACE = Space({"a": Float(0.0, 1.0), "b": Float(0.0, 1.0)})
TASK = Task(SPACE, {"m": Metric("min")}, 1, np.full(2, 0.5))


def drive(agent, steps=25, seed=0):
    """Ids and points of steps in two situations that take turns, each a bowl."""
    rng, ids, points = np.random.default_rng(seed), [], []
    for step in range(steps):
        regime = float(step // 5 % 2)
        id, point = agent.ask(np.array([regime]))
        agent.tell(id, {"m": float(((point - 0.3 - 0.4 * regime) ** 2).sum() + 0.01 * rng.normal())})
        ids.append(id)
        points.append(point)
    return ids, np.array(points)


def test_a_reading_that_changes_nothing_is_the_paper_bit_for_bit():
    cells = [
        Cell("8_Server_Flash_Crowd", name, 1, 30) for name in ("rasp-paper", "rasp-paper-first-value[ema_start=0]")
    ]
    ours, theirs = ([row.loss for row in play(cell)] for cell in cells)
    assert ours == theirs  # with the paper's own base step of that domain


def test_averages_start_where_their_reading_says():
    values, momentum = [7.0, 9.0, 4.0], 0.97
    first, corrected, plain = FirstValueEMA(momentum), CorrectedEMA(momentum), RunningEMA(momentum)
    assert [first.peek(7.0), first.observe(7.0), first.mean, first.var] == [0.0, 0.0, 7.0, 1.0]
    plain.mean = 7.0
    assert first.observe(9.0) == plain.observe(9.0)
    scores = [corrected.observe(value) for value in values]
    weights = momentum ** np.arange(2, -1, -1)
    assert corrected.mean == pytest.approx(np.average(values, weights=weights))
    assert scores[0] == 0.0
    assert scores[1] == pytest.approx(1.4, abs=0.1)  # of two values, whatever they are
    assert corrected.peek(5.0) == corrected.peek(5.0)
    for ema in (first, corrected):
        with pytest.raises(InvalidValue, match="finite"):
            ema.observe(float("nan"))


@pytest.mark.parametrize("name", ["rasp-paper-first-value", "rasp-repaired"])
def test_a_snapshot_of_a_reading_is_refused(name):
    with pytest.raises(SnapshotError):
        Tuner.from_bytes(create(name, TASK, 0).tuner.to_bytes())


def test_without_a_surrogate_the_choice_does_not_depend_on_it():
    points = [drive(create(f"rasp-paper-no-surrogate[kappa={kappa}]", TASK, 3))[1] for kappa in (0, 5)]
    assert np.array_equal(*points)
    agent = create("rasp-paper-no-surrogate", TASK, 3)
    sources = {agent.tuner.explain(id).source for id in drive(agent, 60)[0][1:]}
    assert sources == {"gradient", "perturbation", "hint"}


def test_the_slow_path_runs_at_every_step_where_it_is_asked_for():
    agent = create("rasp-paper-always-slow", TASK, 0)
    assert {agent.tuner.explain(id).path for id in drive(agent, 8)[0]} == {"slow"}
    usual = create("rasp-paper", TASK, 0)
    assert {usual.tuner.explain(id).path for id in drive(usual, 8)[0]} == {"fast"}


def test_settings_of_readings_are_checked():
    for name, value in (
        ("ema_start", 3),
        ("ema_start", 0.5),
        ("rescored", 2),
        ("theta_scale", -1),
        ("closed_form", "x"),
    ):
        with pytest.raises(InvalidSpace, match=name):
            named("paper-repaired", {name: value})
    assert named("paper-repaired", CHANGES).constants["stay"] == 0.0
    assert Reading(TASK, 0, reading={"ema_start": 1.0}).tuner  # a reading of one's own


def retrieval(prompts, weights, context):
    weights = np.array(weights)
    return Retrieval(context, tuple(range(len(weights))), weights, prompts, weights @ prompts, None, 0.0, 0.5, 1.0, 0.0)


@pytest.fixture
def pair():
    """The paper's networks and those of `repaired`, with the same weights, and something retrieved."""
    rng = np.random.default_rng(1)
    paper = experts.PromptMoE(3, 2, 32, np.random.default_rng(0))
    own = AnchoredMoE(3, 2, {**PAPER, "theta_scale": 0.0}, np.random.default_rng(0))
    assert np.array_equal(own.w1, paper.weights["expert1.w"].numpy())
    return paper, own, retrieval(rng.normal(size=(2, 32)), [0.7, 0.3], np.array([0.4, -1.0]))


def test_the_repaired_networks_are_the_papers(pair):
    paper, own, seen = pair
    points = np.random.default_rng(2).random((5, 3))
    for doubt in (None, 0.1, 0.9):
        one, other = paper.predict(points, seen, doubt), own.predict(points, seen, doubt)
        for field in ("mean", "variance", "gate"):
            np.testing.assert_allclose(getattr(one, field), getattr(other, field), atol=1e-12)
    np.testing.assert_allclose(paper.gradient(points[0], seen), own.gradient(points[0], seen), atol=1e-12)
    for error in (0.0, 1.0):
        moved = [net.update_prompts_only(points[0], seen, error) for net in (paper, own)]
        np.testing.assert_allclose(*moved, atol=1e-12)


def test_a_full_update_is_the_least_of_the_papers_loss():
    rng = np.random.default_rng(3)
    net = AnchoredMoE(3, 2, {**PAPER, "theta_scale": 3.0}, rng)
    batch = TrainingBatch(rng.random((20, 3)), rng.normal(size=(20, 2)), np.zeros((20, 32)), rng.random(20))
    net.update_full_emergency(batch)
    rows = (np.hstack([batch.points, batch.contexts, batch.prompts]) - net.shift) * net.scale

    def losses(out):
        hidden = net._with_bias(net._hidden(rows)[1])
        fit = ((hidden @ out[..., None])[..., 0] - batch.errors) ** 2
        return fit.mean(axis=1) + PAPER["anchor_penalty"] * ((out - net.anchor) ** 2).sum(axis=1)

    least = losses(net.out)
    for _ in range(20):
        assert np.all(losses(net.out + 0.01 * rng.normal(size=net.out.shape)) > least)
    far, near = (
        net.predict(points, retrieval(np.zeros((1, 32)), [1.0], batch.contexts[0])).variance.mean()
        for points in (rng.random((20, 3)) + 3.0, batch.points[:1])
    )
    assert far > 5.0 * near  # experts disagree where there is no data


def test_errors_are_scored_again_under_todays_moments():
    agent = create("rasp-repaired", TASK, 0)
    drive(agent, 12)
    optimizer = agent.tuner._optimizer
    ema = optimizer.composer.emas["m"]
    values = optimizer.values[:12, 0]
    expected = 1.0 / (1.0 + np.exp(-(values - ema.mean) / (np.sqrt(ema.var) + 1e-8)))
    np.testing.assert_allclose(optimizer.replay.errors[:12], expected)
    slots = len(optimizer.memory)
    assert set(optimizer.best_values[:slots, 0]) <= set(values)
    id, _ = agent.ask(np.zeros(1))
    agent.tell_failed(id)
    drive(agent, 1)
    assert optimizer.replay.errors[12] == 1.0


def test_repaired_learns_what_the_paper_does_not():
    regret = {}
    for name in ("static", "rasp-paper", "rasp-repaired"):
        regret[name] = sum(row.regret for row in play(Cell("5_Switching_LQR", name, 0, 60)))
    assert regret["rasp-repaired"] < 0.6 * regret["static"] < regret["rasp-paper"]


def test_every_step_of_the_bridge_runs_and_repeats():
    for step in ("one_scale", "all_samples", "quadratics", "gate", "choice"):
        name = f"rasp_lab.paper.bridge:{step}"
        one, other = (drive(create(name, TASK, 0), 12)[1] for _ in range(2))
        assert np.array_equal(one, other)
        assert np.array_equal(one[0], TASK.default)
        assert np.all((one >= 0.0) & (one <= 1.0))


def test_the_bridge_takes_up_the_engines_parts():
    name = "rasp_lab.paper.bridge:"
    kept = create(f"{name}all_samples", TASK, 0)
    drive(kept, 10)
    optimizer = kept.tuner._optimizer
    assert isinstance(optimizer.memory, AllSamples)
    assert len(optimizer.memory) == 10
    assert optimizer.replay.errors[:10].mean() == pytest.approx(0.5)
    here = [i for i in range(10) if optimizer.memory.keys[i, 0] == 1.0]
    best = here[int(np.argmin(optimizer.memory.errors[here]))]
    assert np.array_equal(optimizer.memory.retrieve(np.ones(1)).hint, optimizer.memory.best[best])
    weights = {}
    for step in ("quadratics", "gate"):
        agent = create(f"{name}{step}", TASK, 0)
        drive(agent, 20)
        with agent._gate():
            weights[step] = agent.tuner._optimizer.believe(np.zeros(1)).weights
    assert np.ptp(weights["quadratics"]) < 1e-6 < np.ptp(weights["gate"])
    assert create(f"{name}choice", TASK, 0).tuner.budget() is None
    assert Rasp(TASK, 0).tuner._preset.constants["budget"] is not None


def test_peers_can_be_fed_the_composed_error():
    task = domains.create("4_Wafer_Etching_Drift").task()
    for name in ("cma-es", "gp-ucb"):
        heard = []
        for composed in (0, 1):
            agent = create(f"{name}[composed={composed}]", task, 0)
            agent.learn = lambda _run, loss, heard=heard: heard.append(loss)
            id, _ = agent.ask(np.zeros(1))
            agent.tell(id, {next(iter(task.metrics)): 3.0})
        assert heard[0] == 3.0
        assert 0.5 < heard[1] < 1.0


def test_layouts_with_one_knob_and_no_context_build():
    built = named("paper-repaired", CHANGES).build(Layout.continuous(1), 0, {"m": "min"}, np.random.default_rng(0))
    proposal = built.propose(np.zeros(0), np.array([0.5]), np.random.default_rng(0))
    assert proposal.point.shape == (1,)
