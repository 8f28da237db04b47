"""What each agent is for: the quadratic search, the contextual ones tell contexts apart, the oracle converges."""

import warnings

import numpy as np
import pytest

from rasp_lab.bench import domains
from rasp_lab.bench.agents import create, parse
from rasp_lab.bench.agents.gp import GaussianProcess, Likelihood
from rasp_lab.bench.agents.rasp import Rasp, count_weights, matched_mlp
from rasp_lab.bench.domains.base import ExperimentDomain, Task
from rasp_tuner import InvalidValue
from rasp_tuner.files import snapshot
from rasp_tuner.presets import named
from rasp_tuner.space import Categorical, Float, Int, Layout, Space
from rasp_tuner.types import Metric

CENTRE = np.array([0.2, 0.7])
PLAIN = Task(
    Space({"x": Float(0, 1, digits=12), "y": Float(0, 1, digits=12)}), {"m": Metric("min")}, 0, np.array([0.5, 0.5])
)


def search(name, steps, seed=0):
    """Losses [steps] of an agent on a bowl in two dimensions."""
    agent, losses = create(name, PLAIN, seed), []
    for _ in range(steps):
        id, point = agent.ask(np.zeros(0))
        losses.append(float(((point - CENTRE) ** 2).sum()))
        agent.tell(id, {"m": losses[-1]})
    return np.array(losses)


def test_cma_es_finds_the_minimum_of_a_bowl():
    assert search("cma-es", 300)[-10:].max() < 1e-6


def test_cma_es_starts_again_once_it_has_converged():
    assert search("cma-es", 1500)[-200:].max() > 1e-3


@pytest.mark.parametrize("name", ["gp-ucb", "gp-ucb-0.25", "tpe", "turbo", "botorch"])
def test_model_based_peers_beat_random_search_on_a_bowl(name):
    steps = 20 if name == "botorch" else 40
    assert search(name, steps)[-10:].mean() < 0.6 * search("random", steps)[-10:].mean()


@pytest.mark.parametrize("name", ["warm-cma-es", "gp-ucb-0.5", "vw-cats"])
def test_contextual_peers_keep_regimes_apart(name):
    """Two contexts with opposite optima in turns; later visits must be good at once in both."""
    steps = {"warm-cma-es": 1200, "gp-ucb-0.5": 50, "vw-cats": 3000}[name]
    task = Task(PLAIN.space, PLAIN.metrics, 2, PLAIN.default)
    agent, rng, losses = create(name, task, 1), np.random.default_rng(0), []
    for step in range(steps):
        regime = step // 5 % 2
        id, point = agent.ask(regime + 0.01 * rng.normal(size=2))
        losses.append(float(((point - (0.2 + 0.6 * regime)) ** 2).sum()))
        agent.tell(id, {"m": losses[-1]})
    compromise = 2 * 0.3**2  # the best one point can do for both
    assert np.mean(losses[-steps // 4 :]) < 0.5 * compromise
    if name == "warm-cma-es":
        assert len(agent.regimes) == 2


def wavy(x, rng):
    return np.sin(5.0 * x[:, 0]) + 0.3 * x[:, 1] + 0.05 * rng.normal(size=len(x))


def test_the_gaussian_process_is_scikit_learns():
    from sklearn.gaussian_process import GaussianProcessRegressor
    from sklearn.gaussian_process.kernels import ConstantKernel, Matern, WhiteKernel

    rng = np.random.default_rng(0)
    x = rng.uniform(size=(40, 3))
    y = wavy(x, rng)
    kernel = ConstantKernel(1.0, (1e-3, 1e3)) * Matern(np.ones(3), (1e-2, 1e2), nu=2.5) + WhiteKernel(1e-2, (1e-5, 1e1))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a length scale at its bound, as the third should be
        model = GaussianProcessRegressor(kernel, normalize_y=True).fit(x, y)
    points = rng.uniform(size=(7, 3))
    expected, deviation = model.predict(points, return_std=True)
    mean, covariance = GaussianProcess(x, y, 3).predict(points)
    np.testing.assert_allclose(mean, expected, rtol=1e-3)
    noise = y.std() ** 2 * model.kernel_.k2.noise_level
    np.testing.assert_allclose(covariance.diagonal() + noise, deviation**2, rtol=1e-2)


def test_the_slope_of_the_likelihood_is_exact_and_one_length_scale_may_serve_many_coordinates():
    rng = np.random.default_rng(0)
    x = rng.uniform(size=(12, 4))
    own = (x.T[:, :, None] - x.T[:, None]) ** 2
    tied = np.stack([own[0], own[1:].sum(axis=0)])
    likelihood, all_own = (Likelihood(gaps, wavy(x, np.random.default_rng(1))) for gaps in (tied, own))
    theta = np.log([0.8, 0.3, 0.7, 0.05])
    value, slope = likelihood(theta)
    assert all_own(theta[[0, 1, 2, 2, 2, 3]])[0] == pytest.approx(value)
    for i in range(4):
        step = 1e-5 * np.eye(4)[i]
        numeric = (likelihood(theta + step)[0] - likelihood(theta - step)[0]) / 2e-5
        assert slope[i] == pytest.approx(numeric, rel=1e-5)


def test_equal_rows_without_noise_have_no_likelihood():
    gaps = np.zeros((1, 3, 3))
    value, slope = Likelihood(gaps, np.array([1.0, 0.0, 2.0]))(np.log([1e7, 1.0, 1e-12]))
    assert value == np.inf
    assert not slope.any()


def test_many_contexts_that_do_not_matter_do_not_hide_what_does():
    rng = np.random.default_rng(0)
    theta, context = rng.uniform(size=(100, 2)), rng.normal(size=(100, 300))
    loss = ((theta - CENTRE) ** 2).sum(axis=1)
    x = np.hstack([theta, context])
    guess, _ = GaussianProcess(x[:60], loss[:60], 3).predict(x[60:])
    assert np.mean((guess - loss[60:]) ** 2) < 0.2 * np.mean((loss[:60].mean() - loss[60:]) ** 2)


def test_the_slope_of_the_lower_bound_is_exact():
    rng = np.random.default_rng(0)
    x = rng.uniform(size=(20, 3))
    gp = GaussianProcess(x, 1e3 * np.sin(3.0 * x[:, 0]) + x[:, 1] + rng.normal(size=20), 3)
    point = rng.uniform(size=3)
    value, slope = gp.lower_bound(point, 2.0, 2)
    mean, covariance = gp.predict(point[None])
    assert value == pytest.approx(mean[0] - 2.0 * np.sqrt(covariance[0, 0]))
    for i in range(2):
        step = 1e-5 * np.eye(3)[i]
        numeric = (gp.lower_bound(point + step, 2.0, 2)[0] - gp.lower_bound(point - step, 2.0, 2)[0]) / 2e-5
        assert slope[i] == pytest.approx(numeric, rel=1e-4)


def test_turbo_shrinks_its_region_after_failures_and_then_starts_anew():
    agent, lengths = create("turbo", PLAIN, 0), []
    for step in range(45):
        id, _ = agent.ask(np.zeros(0))
        agent.tell(id, {"m": float(step)})  # never better than the first
        lengths.append(agent.length)
    assert lengths[3:9] == [0.8] * 4 + [0.4] * 2  # 2 d = 4 initial points, then 4 failures
    assert min(lengths) == pytest.approx(0.8 * 0.5**6)
    assert lengths[-1] > min(lengths)


@pytest.mark.parametrize(("dim", "context_dim"), [(1, 0), (5, 3), (10, 10), (8, 768)])
def test_the_single_mlp_has_as_many_weights_as_the_mixture(dim, context_dim):
    usual, width = named("paper").constants, dim + context_dim + 32
    target = count_weights(width, usual)
    matched = count_weights(width, {**usual, **matched_mlp(dim, context_dim)})
    assert matched == pytest.approx(target, rel=0.02)
    built = named("paper").build(Layout.continuous(dim), context_dim, {"m": "min"}, np.random.default_rng(0)).surrogate
    assert sum(weight.numel() for weight in built.weights.values()) == target


def test_rasp_tells_what_it_predicted_and_takes_settings():
    agent = Rasp(PLAIN, 0, preset="paper", settings={"base_step": 0.25})
    assert snapshot.decode(agent.tuner.to_bytes())[0]["preset"]["constants"]["base_step"] == 0.25
    first, point = agent.ask(np.zeros(0))
    np.testing.assert_array_equal(point, PLAIN.default)
    assert agent.expectation(first) == {"predicted": None, "deviation": None, "error": None}
    agent.tell(first, {"m": 1.0})
    second, _ = agent.ask(np.zeros(0))
    before = agent.expectation(second)
    assert before["error"] is None
    assert before["deviation"] > 0.0
    agent.tell(second, {"m": 1.0})
    assert agent.expectation(second) == {**before, "error": agent.tuner.explain(second).error}


def test_agents_take_settings_by_name():
    assert parse("static") == ("static", {})
    agent = create("rasp-paper[base_step=0.25,top_k=1]", PLAIN, 0)
    constants = snapshot.decode(agent.tuner.to_bytes())[0]["preset"]["constants"]
    assert (constants["base_step"], constants["top_k"]) == (0.25, 1)
    for wrong in ("rasp-paper[", "rasp-paper[top_k]", "rasp-paper[top_k=x]", "nobody[top_k=1]"):
        with pytest.raises(InvalidValue, match=r"no agent|must be numbers"):
            parse(wrong)


def test_what_is_on_or_off_is_a_number_in_an_agents_name():
    for name, quadratic in (("rasp[quadratic=0]", False), ("rasp[quadratic=1]", True)):
        constants = snapshot.decode(create(name, PLAIN, 0).tuner.to_bytes())[0]["preset"]["constants"]
        assert constants["quadratic"] is quadratic


def test_the_papers_own_changes_for_a_domain_reach_its_stack_alone():
    task = domains.create("8_Server_Flash_Crowd").task()
    steps = [
        snapshot.decode(create(name, task, 0).tuner.to_bytes())[0]["preset"]["constants"].get("base_step")
        for name in ("rasp-paper", "rasp", "rasp-paper[base_step=0.3]")
    ]
    assert steps == [0.25, None, 0.3]


def test_rasp_without_memory_does_not_see_the_context():
    traces = []
    for shift in (0.0, 5.0):
        agent, trace = create("rasp-no-memory", Task(PLAIN.space, PLAIN.metrics, 2, PLAIN.default), 0), []
        for step in range(20):
            id, point = agent.ask(np.full(2, shift * step))
            agent.tell(id, {"m": float(((point - CENTRE) ** 2).sum())})
            trace.append(point)
        traces.append(trace)
    np.testing.assert_array_equal(*traces)


class TwoBowls(ExperimentDomain[int]):
    """omega is the regime; a bowl with its own minimum in each, ten times steeper in y."""

    name = "two bowls"
    metrics = {"m": Metric("min")}  # noqa: RUF012
    context_dim = 1

    def __init__(self, knobs=None):
        self.space = Space(knobs or {"x": Float(-4.0, 4.0, digits=12), "y": Float(0.0, 2.0, digits=12)})

    def build_sequence(self, horizon, seed):
        return [step // 20 % 2 for step in range(horizon)]

    def context_fn(self, omega):
        return np.array([float(omega)])

    def metric_fn(self, theta, omega, rng):
        return {"m": self.true_loss(theta, omega)}

    def true_loss(self, theta, omega):
        return float((theta[0] - 1.0 - omega) ** 2 + 10.0 * (theta[1] - 0.5) ** 2)

    def minimum(self, omega):
        return 0.0

    def regime(self, omega):
        return omega


def play(domain, steps):
    agent, losses = create("ra-gd", domain.task(), 0), []
    for omega in domain.build_sequence(steps, 0):
        agent.reveal(domain, omega)
        id, point = agent.ask(domain.context_fn(omega))
        losses.append(domain.true_loss(domain.theta(point), omega))
        agent.tell(id, {"m": losses[-1]})
    return np.array(losses)


def test_ra_gd_converges_geometrically_and_goes_on_where_it_was():
    losses = play(TwoBowls(), 80)
    assert np.all(losses[5:20] <= 0.9 * losses[4:19] + 1e-12)
    assert losses[20] > 0.1  # a regime it has never been in
    assert losses[40] <= losses[19]
    assert losses[60] <= losses[39]
    assert losses[79] < 1e-6


def test_ra_gd_moves_whole_knobs_by_levels_and_leaves_categories_alone():
    domain = TwoBowls({"x": Int(-4, 4), "y": Float(0.0, 2.0, step=0.25), "kind": Categorical(["a", "b"])})
    losses = play(domain, 40)
    assert losses[19] == 0.0
    assert losses[39] == 0.0


def test_tpe_takes_ordered_choices():
    levels = ["low", "medium", "high", "highest"]
    space = Space({"level": Categorical(levels, ordered=True)})
    agent = create("tpe", Task(space, {"m": Metric("min")}, 0, space.to_unit({"level": "low"})), 0)
    costs = []
    for _ in range(40):
        asked, point = agent.ask(np.empty(0))
        costs.append(3.0 - levels.index(space.from_unit(point)["level"]))
        agent.tell(asked, {"m": costs[-1]})
    assert costs[0] == 3.0
    assert sum(costs[20:]) < 10.0
