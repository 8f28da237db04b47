import numpy as np
import pytest

from rasp_tuner import Categorical, Float, Int, Tuner
from rasp_tuner.engine.evidence import log_mean
from rasp_tuner.engine.family import Choice, Forecast, Trial
from rasp_tuner.engine.gate import EvidenceGate, Mixture
from rasp_tuner.engine.quadratic.family import QuadraticFamily
from rasp_tuner.errors import SnapshotError


class Fixed:
    """A family of two experts that hold the same true everywhere, and remember what they were told."""

    experts = ("low", "high")

    def __init__(self, means=(0.0, 1.0), weights=(0.5, 0.5), point=0.5):
        self.means, self.weights, self.point = np.array(means), np.array(weights), point
        self.told = []

    noise = 0.25

    def believe(self, _context):
        return self

    def predict(self, points):
        mean = self.weights @ self.means
        return np.full(len(points), mean), np.full(len(points), 0.5 + self.weights @ self.means**2 - mean**2)

    def choose(self, _rng):
        return Choice(np.array([self.point]), f"fixed {self.point}", 0.0, 0.0)

    def best(self):
        return np.array([self.point])

    def forecast(self, point, y):
        mean, variance = self.predict(point[None])
        return Forecast(float(mean[0]), float(variance[0]), self.log_densities(y))

    def log_densities(self, y):
        return -((y - self.means) ** 2)

    def similar(self):
        return np.ones(1)

    def learn(self, trial, belief, forecast):
        self.told.append((trial, belief, forecast))

    def reweigh(self, weights):
        self.told.append(weights)

    def state(self):
        return {"means": self.means}

    def restore(self, state):
        self.means = state["means"]


def test_a_mixture_has_the_moments_of_a_mixture():
    mixture = Mixture((Fixed(), Fixed((4.0, 4.0), (1.0, 0.0))), np.array([0.75, 0.25]))
    assert mixture.weights == pytest.approx([0.375, 0.375, 0.25, 0.0])
    means, variances = mixture.predict(np.zeros((3, 1)))
    mean, variance = 0.375 + 1.0, 0.5 + 0.375 * (1.0 + 0.0) + 0.25 * 16.0 - (0.375 + 1.0) ** 2
    assert means == pytest.approx(np.full(3, mean))
    assert variances == pytest.approx(np.full(3, variance))
    choice = mixture.choose(np.random.default_rng(0))  # whoever chose, all say what they expect
    assert (choice.mean, choice.variance) == pytest.approx((mean, variance))
    assert mixture.noise == pytest.approx(0.25)
    forecast = mixture.forecast(np.zeros(1), 0.0)
    assert (forecast.mean, forecast.variance) == pytest.approx((mean, variance))
    assert forecast.log_densities == pytest.approx([0.0, -1.0, -16.0, -16.0])  # of every expert
    log_density = log_mean(forecast.log_densities, mixture.weights)
    assert log_density == pytest.approx(np.log(0.75 * (0.5 + 0.5 * np.exp(-1.0)) + 0.25 * np.exp(-16.0)))


def test_densities_are_finite_where_all_the_weight_is_on_what_was_impossible():
    class Sure(Fixed):
        def log_densities(self, _y):
            return np.array([-2000.0, 0.0])

    belief = EvidenceGate([Sure(weights=(1.0, 0.0))], [0.0]).believe(np.zeros(0))
    assert np.isfinite(log_mean(belief.forecast(np.zeros(1), 0.0).log_densities, belief.weights))


def test_families_choose_by_their_share_and_the_larger_one_recommends():
    mixture, rng = Mixture((Fixed(point=0.1), Fixed(point=0.9)), np.array([0.8, 0.2])), np.random.default_rng(0)
    chosen = [float(mixture.choose(rng)[0][0]) for _ in range(1000)]
    assert 0.75 < chosen.count(0.1) / 1000 < 0.85
    assert mixture.best().tolist() == [0.1]


def score(gate, y=0.0):
    """Weigh the families by an answer y."""
    belief = gate.believe(np.zeros(0))
    gate.score(belief, belief.forecast(np.zeros(1), y))


def test_the_family_that_predicts_better_counts_more():
    gate = EvidenceGate([Fixed((0.0, 0.0)), Fixed((3.0, 3.0))], [0.0, 0.0])
    assert gate.believe(np.zeros(0)).shares.tolist() == [0.5, 0.5]
    for _ in range(5):
        score(gate)
    assert gate.believe(np.zeros(0)).shares[0] > 0.9


def test_every_family_learns_with_its_own_belief_and_forecast():
    gate = EvidenceGate([Fixed((0.0, 0.0)), Fixed((3.0, 3.0))], [0.0, 0.0])
    belief = gate.believe(np.zeros(0))
    forecast = belief.forecast(np.zeros(1), 0.0)
    trials = [Trial(np.zeros(1), np.zeros(0), np.zeros(1), failed) for failed in (False, True)]
    gate.learn(trials[0], belief, forecast)
    gate.learn(trials[1], None, None)
    for i, family in enumerate(gate.families):
        told, then = family.told
        assert told == (trials[0], family, forecast.families[i])
        assert then == (trials[1], None, None)


def test_odds_are_not_forgotten():
    gate = EvidenceGate([Fixed(), Fixed()], [0.0, 2.0])
    for _ in range(200):
        score(gate)
    assert gate.believe(np.zeros(0)).shares[1] == pytest.approx(1.0 / (1.0 + np.exp(-2.0)))


def test_state_goes_to_each_family():
    gate, other = (EvidenceGate([Fixed((0.0, 0.0)), Fixed((3.0, 3.0))], [0.0, 0.0]) for _ in range(2))
    score(gate)
    gate.families[1].means = np.array([7.0, 8.0])
    other.restore(gate.state())
    assert other.families[1].means.tolist() == [7.0, 8.0]
    assert np.array_equal(other.believe(np.zeros(0)).shares, gate.believe(np.zeros(0)).shares)


@pytest.mark.parametrize("seed", range(3))
def test_on_a_context_of_pure_noise_the_experts_that_ignore_it_win(seed):
    tuner = Tuner({"x": Float(0.0, 1.0), "y": Float(0.0, 1.0)}, {"loss": "min"}, context=4, seed=seed)
    rng = np.random.default_rng(seed)
    for _ in range(100):
        s = tuner.ask(rng.normal(size=4))
        tuner.tell(s.id, {"loss": (s.params["x"] - 0.3) ** 2 + (s.params["y"] - 0.6) ** 2})
    why = tuner.explain(tuner.ask(rng.normal(size=4)).id)
    weights = dict.fromkeys(("history", "situation", "moves"), 0.0)  # what moves by nothing is blind too
    for weight, name in zip(why.gate, QuadraticFamily.experts, strict=True):
        weights[next(key for key in weights if key in name)] += weight
    assert weights["history"] > 0.75
    assert weights["situation"] < 0.1
    assert "history" in why.expert


@pytest.mark.parametrize("seed", range(3))
def test_without_noise_the_family_that_can_fit_the_answers_exactly_takes_over(seed):
    """One knob of two is discrete: both families start with half."""
    tuner = Tuner({"x": Float(0.0, 1.0), "n": Int(1, 4)}, {"loss": "min"}, seed=seed)
    for _ in range(25):
        s = tuner.ask()
        tuner.tell(s.id, {"loss": (s.params["x"] - 0.3) ** 2 + 0.1 * s.params["n"]})
    assert tuner.experts[-1] == "elites"
    assert tuner.explain(tuner.ask().id).gate[-1] > 0.9


def test_a_state_of_another_number_of_families_is_refused():
    two = EvidenceGate([Fixed((0.0, 0.0)), Fixed((3.0, 3.0))], [0.0, 0.0])
    for families in ([Fixed()], [Fixed(), Fixed(), Fixed()]):
        with pytest.raises(SnapshotError, match=r"'scores' must have the shape"):
            EvidenceGate(families, [0.0] * len(families)).restore(two.state())


def test_unordered_knobs_never_reach_the_quadratic_family():
    space = {"x": Float(0.0, 1.0), "c": Categorical(["a", "b", "c", "d"])}
    assert Tuner(space, {"loss": "min"}).experts == ("elites",)
