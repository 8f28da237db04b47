"""The Gaussian process in compiled code and in NumPy: the same model, in random spaces and on random rows."""

from typing import NamedTuple

import numpy as np
import pytest

from rasp_tuner import Bool, Categorical, Float, Int
from rasp_tuner.contexts.context_metric import ContextMetric
from rasp_tuner.engine.family import Prices
from rasp_tuner.engine.gp import knobs as knobs_module
from rasp_tuner.engine.gp import native_gp
from rasp_tuner.engine.gp.belief import GpBelief
from rasp_tuner.engine.gp.bill import HindsightBill
from rasp_tuner.engine.gp.knobs import Knobs
from rasp_tuner.engine.gp.model import (
    GT,
    LEVEL_VARIANCE,
    NOISE_FACTORS,
    S2,
    VT,
    Climb,
    Fit,
    Repeats,
    Rows,
    Targets,
    ThetaPrior,
    Weights,
    climbed,
    covariance,
    fitted,
    native_pass,
    numpy_pass,
    solve,
    taken,
)  # fmt: skip
from rasp_tuner.engine.gp.posterior import ContextPosterior
from rasp_tuner.engine.gp.rows import ROW_ARRAYS, StoredRows
from rasp_tuner.engine.gp.search import best_point, snapped
from rasp_tuner.engine.kernel import native
from rasp_tuner.space import Space

pytestmark = pytest.mark.skipif(not native.available(), reason=f"the native kernel is {native.why_not()}")

KINDS = (
    lambda _: Float(-2.0, 5.0),
    lambda rng: Int(0, int(rng.integers(2, 8))),  # few levels
    lambda rng: Int(1, int(rng.integers(12, 60))),  # many
    lambda _: Bool(),
    lambda rng: Categorical([f"c{i}" for i in range(int(rng.integers(3, 6)))]),
)
REPEATS = np.array([3.0, 0.02, 0.5])
RULES = ["k1 + k2 <= 30", "k0 <= 4 or not k3"]
CASES = [
    *((seed, context_dim, False) for seed in range(6) for context_dim in (0, 2)),
    *((seed, 2, True) for seed in range(1, 4)),
]


def fit_of(knobs, rows, metric, theta, level):
    """By compiled code from a table of stored rows, or in NumPy."""
    if knobs.tables is None:
        return fitted(knobs, rows, metric, theta, level, REPEATS)
    stored, none = StoredRows(knobs.dim, rows.contexts.shape[1], 1, len(rows.y)), np.zeros(len(rows.y))
    names = {**rows._asdict(), "losses": rows.y[:, None], "failed": none, "own": none}
    stored.restore({name: names[name] for name in ROW_ARRAYS})
    return taken(knobs, stored, metric, theta, level, np.ones(1), REPEATS)


class World(NamedTuple):
    """The same rows for both: `compiled` and `arrays` are the knobs that each sees."""

    compiled: Knobs
    arrays: Knobs
    points: np.ndarray
    contexts: np.ndarray
    y: np.ndarray
    counts: np.ndarray
    trust: np.ndarray
    times: np.ndarray
    theta: np.ndarray
    prior: ThetaPrior

    def rows(self, knobs: Knobs) -> Rows:
        return Rows(
            self.points, knobs.features(self.points), self.contexts, self.y, self.counts, self.trust, self.times
        )

    def fit(self, knobs: Knobs, steps: int) -> tuple[Fit, Climb]:
        climb = Climb(self.theta, np.zeros_like(self.theta), np.zeros_like(self.theta), 0)
        rows, metric = self.rows(knobs), ContextMetric.of(self.contexts, len(self.contexts))
        climb, level, *_ = climbed(knobs, rows, metric, climb, self.prior, 0.0, steps, REPEATS)
        return fit_of(knobs, rows, metric, climb.theta, level), climb

    def here(self, knobs: Knobs) -> ContextPosterior:
        return ContextPosterior(self.fit(knobs, 0)[0], np.full(self.contexts.shape[1], 0.3), len(self.y) + 1.0)

    def looks(self) -> np.ndarray:
        """Points to ask about: some rows, and others."""
        others = np.random.default_rng(1).random((12, self.arrays.dim))
        return np.concatenate([self.points[:3], snapped(self.arrays, others)])


@pytest.fixture(params=CASES, ids=lambda case: f"seed{case[0]}-context{case[1]}{'-rules' * case[2]}")
def world(request, monkeypatch):
    seed, context_dim, ruled = request.param
    rng = np.random.default_rng(seed)
    kinds = [*KINDS, *rng.choice(np.array(KINDS, dtype=object), 3)] if seed else KINDS[3:]  # without any order at first
    knobs = {f"k{i}": kind(rng) for i, kind in enumerate(kinds)}
    if ruled:
        knobs["k9"] = Int(0, 40, when={"k3": True})
    space = Space(knobs, constraints=RULES if ruled else [])
    layout = space.layout(space.default if ruled else space.snap(rng.random(space.dim)))
    compiled = Knobs(layout)
    monkeypatch.setattr(knobs_module, "ready", lambda: False)
    arrays = Knobs(layout)
    n, prior = int(rng.integers(5, 30)), ThetaPrior.of(compiled.dim, context_dim)
    points = arrays.lawful(snapped(arrays, rng.random((n, arrays.dim))))
    points[0], points[-1] = arrays.default, points[1]
    return World(
        compiled, arrays, points, rng.normal(size=(n, context_dim)), 50.0 + 7.0 * rng.normal(size=n),
        rng.integers(1, 4, n).astype(float), rng.uniform(0.1, 1.0, n), rng.permutation(n).astype(float),
        prior.mean + 0.3 * rng.normal(size=len(prior.mean)), prior,
    )  # fmt: skip


def close(one, other, tolerance=1e-7):
    np.testing.assert_allclose(one, other, rtol=tolerance, atol=tolerance)


def evidence(world, theta, factor=1.0):
    """Log evidence of the rows, up to a constant, in NumPy: what slopes are of."""
    rows, weights = world.rows(world.arrays), Weights.of(theta, world.arrays, LEVEL_VARIANCE)
    z = ContextMetric.of(world.contexts, len(world.contexts)).z(world.contexts, weights.relevance)
    parts = covariance(weights, world.arrays, rows, z)
    targets = Targets.of(world.y, world.trust)
    usual = Weights.of(world.theta, world.arrays, LEVEL_VARIANCE).drifts[1]  # drift takes the size of effects as it is
    weights = weights._replace(drifts=(weights.drifts[0], usual * float(np.exp(theta[GT] - world.theta[GT]))))
    repeats = Repeats.of(REPEATS, targets.unit, weights)
    return solve(parts, rows, targets.y, repeats, factor * float(weights.h[S2]), weights.level).evidence


def one_pass(world, look, knobs, factors, climbs=True):
    weights = Weights.of(world.theta, knobs, LEVEL_VARIANCE)
    z = ContextMetric.of(world.contexts, len(world.contexts)).z(world.contexts, weights.relevance)
    priors = 0.1 * np.arange(len(factors))
    targets = Targets.of(world.y, world.trust)
    repeats = Repeats.of(REPEATS, targets.unit, weights)
    return look(knobs, world.rows(knobs), targets.y, repeats, z, weights, factors, priors, climbs)


def test_features_agree(world):
    for one, other in zip(world.compiled.features(world.looks()), world.arrays.features(world.looks()), strict=True):
        close(one, other, 1e-12)


@pytest.mark.parametrize("factors", [NOISE_FACTORS[:1], NOISE_FACTORS], ids=["one noise", "noises"])
def test_fits_agree(world, factors):
    one = one_pass(world, native_pass, world.compiled, factors)
    other = one_pass(world, numpy_pass, world.arrays, factors)
    assert one.factor == other.factor
    for name in ("scale", "alpha", "noises", "slope", "odd"):
        close(getattr(one, name), getattr(other, name), 1e-6)


def test_the_noise_of_greatest_evidence_wins(world):
    """Less its prior."""
    found = [evidence(world, world.theta, f) - 0.1 * i for i, f in enumerate(NOISE_FACTORS.tolist())]
    assert one_pass(world, native_pass, world.compiled, NOISE_FACTORS, climbs=False).factor == int(np.argmax(found))


def test_slopes_are_those_of_the_evidence(world):
    """Together with what repeats say."""
    found, step = one_pass(world, native_pass, world.compiled, NOISE_FACTORS[:1]), 1e-4
    weights, unit = Weights.of(world.theta, world.compiled, LEVEL_VARIANCE), Targets.of(world.y, world.trust).unit
    slope = found.slope.copy()
    slope[[S2, VT, GT]] += Repeats.of(REPEATS, unit, weights).slope(float(weights.h[S2]), found.scale)
    for i in range(len(world.theta)):
        if world.theta[i] < -30.0:  # a share of nothing
            continue
        up, down = world.theta.copy(), world.theta.copy()
        up[i], down[i] = up[i] + step, down[i] - step
        difference = (evidence(world, up) - evidence(world, down)) / (2.0 * step)
        assert slope[i] == pytest.approx(difference, rel=1e-3, abs=1e-4), i


def test_steps_of_the_hyperparameters_agree(world):
    (one, climbed), (other, also) = world.fit(world.compiled, 2), world.fit(world.arrays, 2)
    close(climbed.theta, also.theta, 1e-6)
    assert one.scale == pytest.approx(other.scale)
    close(one.spare(), other.spare(), 1e-5)


def test_means_and_covariances_agree(world):
    one, other, points = world.here(world.compiled), world.here(world.arrays), world.looks()
    close(one.kc, other.kc, 1e-9)
    mean, covariances = one.joint(points)
    close(mean, other.mean(points))
    for a, b in zip((mean, covariances), other.joint(points), strict=True):
        close(a, b, 1e-6)


def test_means_and_variances_alone_are_those_of_the_covariance(world):
    points = world.looks()
    for knobs in (world.compiled, world.arrays):
        here = world.here(knobs)
        mean, covariances = here.joint(points)
        alone, variance = here.marginal(points)
        assert alone == pytest.approx(mean, rel=1e-12, abs=1e-12)
        close(variance, covariances.diagonal(), 1e-9)
    one, other = (world.here(knobs).effects_mean(points) for knobs in (world.compiled, world.arrays))
    close(one, other, 1e-6)


def test_the_posterior_is_that_of_the_textbook(world):
    """Both parts follow from the covariance of rows and points alone."""
    here, points = world.here(world.arrays), world.looks()
    fit, n, m = here.fit, len(world.y), len(points)
    both = Rows(
        np.concatenate([world.points, points]),
        world.arrays.features(np.concatenate([world.points, points])),
        np.concatenate([world.contexts, np.full((m, world.contexts.shape[1]), 0.3)]),
        np.zeros(n + m), np.ones(n + m), np.ones(n + m), np.concatenate([world.times, np.full(m, n + 1.0)]),
    )  # fmt: skip
    whole = covariance(fit.weights, world.arrays, both, fit.metric.z(both.contexts, fit.weights.relevance)).whole
    rows = whole[:n, :n] + np.diag(fit.noises + 1e-8 * fit.weights.level)
    across = np.linalg.solve(rows, whole[:n, n:])
    rest = (world.y - fit.center) / fit.scale - both.features.mean[:n]
    mean, covariances = world.here(world.compiled).joint(points)
    close(mean, both.features.mean[n:] + rest @ across, 1e-5)
    close(covariances, whole[n:, n:] - whole[n:, :n] @ across, 1e-5)


@pytest.mark.parametrize("barred", [0, 3])
def test_the_best_points_agree(world, barred):
    """One compiled call, and the same in NumPy; no other start leads lower."""
    one, other = world.here(world.compiled), world.here(world.arrays)
    bars = {row.tobytes() for row in world.points[1 : 1 + barred]} - {world.arrays.default_key}
    found, also = best_point(one, bars), best_point(other, bars)
    if found is None:
        assert also is None
        return
    assert found.tobytes() not in bars
    close(found, also, 1e-5)
    assert float(other.mean(found[None])[0]) <= float(other.mean(world.arrays.default[None])[0]) + 1e-9


def test_nothing_is_best_where_all_ends_are_barred(world):
    for knobs in (world.compiled, world.arrays):
        here = world.here(knobs)
        every, left = set(), best_point(here, set())
        while left is not None and len(every) < 200:
            every.add(left.tobytes())
            left = best_point(here, every)
        assert left is None


def test_a_rule_that_fails_is_not_swallowed(monkeypatch):
    """Compiled code asks for the rules of the space, and cannot pass on what they raise."""
    space = Space({"a": Int(0, 9), "b": Int(0, 9)}, constraints=["a + b <= 12"])
    knobs = Knobs(space.layout(space.default))
    prior, points = ThetaPrior.of(2, 0), snapped(knobs, np.random.default_rng(0).random((6, 2)))
    rows = Rows(points, knobs.features(points), np.zeros((6, 0)), np.arange(6.0), *np.ones((2, 6)), np.arange(6.0))
    fit = fit_of(knobs, rows, ContextMetric.of(np.zeros((6, 0)), 6), prior.mean, LEVEL_VARIANCE)
    here = ContextPosterior(fit, np.zeros(0), 7.0)
    assert best_point(here, set()) is not None
    monkeypatch.setattr(space.rules, "lawful", lambda _: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        best_point(here, set())
    with pytest.raises(ZeroDivisionError):
        GpBelief(here, set(), np.ones(2), False).choose(np.random.default_rng(0))


def test_a_long_context_has_room(world, monkeypatch):
    """Compiled code turns contexts around in the memory that it is lent, also where it needs no slopes."""
    long, asked, lent = 300, [], native_gp.scratch
    monkeypatch.setattr(native_gp, "scratch", lambda size: asked.append(size) or lent(size))
    n = len(world.y)
    theta = ThetaPrior.of(world.compiled.dim, long).mean
    longer = world._replace(contexts=np.random.default_rng(2).normal(size=(n, long)), theta=theta)
    one_pass(longer, native_pass, world.compiled, NOISE_FACTORS[:1], climbs=False)
    assert asked[-1] >= 7 * n * n + n * long


@pytest.mark.parametrize("is_log", [False, True], ids=["linear", "log"])
def test_bills_agree(world, is_log):
    prices, own = Prices(is_log, True, 2.0, 1e-300, 10.0, 3.0), np.arange(len(world.y)) % 4.0
    one, other = world.here(world.compiled), world.here(world.arrays)
    bill, also = HindsightBill(one.fit, own, prices), HindsightBill(other.fit, own, prices)
    for name in ("spent", "earned", "variance"):
        assert getattr(bill, name) == pytest.approx(getattr(also, name), rel=1e-5, abs=1e-6)
    assert bill.spent + bill.earned > 0.0
    for point in world.looks():
        assert bill.covariance(one, point) == pytest.approx(also.covariance(other, point), rel=1e-4, abs=1e-5)


@pytest.mark.parametrize("barred", [0, 3])
def test_choices_agree(world, barred):
    """One compiled call, and the same in NumPy."""
    bars, reached = {row.tobytes() for row in world.points[1 : 1 + barred]}, np.full(world.arrays.dim, 0.7)
    bars.discard(world.arrays.default_key)
    for seed in range(3):
        found = [
            GpBelief(world.here(knobs), bars, reached, False).choose(np.random.default_rng(seed))
            for knobs in (world.compiled, world.arrays)
        ]
        assert found[0].source == found[1].source
        close(found[0].point, found[1].point, 1e-5)
        close(found[0].mean, found[1].mean, 1e-5)
        close(found[0].variance, found[1].variance, 1e-4)
        assert found[0].point.tobytes() not in bars


def test_what_is_expected_of_a_point_does_not_depend_on_who_asks(world):
    """Of the choice, of a pair and among many: the same bits, so that a restored tuner goes on alike."""
    here = world.here(world.compiled)
    belief, again = (GpBelief(here, set(), np.ones(world.arrays.dim), False) for _ in range(2))
    choice = belief.choose(np.random.default_rng(0))
    assert belief.forecast(choice.point, 50.0)[:2] == again.forecast(choice.point, 50.0)[:2]
    assert belief.against(choice.point, world.arrays.default) == again.against(choice.point, world.arrays.default)
    mean, covariances = here.joint(world.looks())
    for i, point in enumerate(world.looks()):
        alone = here.joint(np.stack([point, world.looks()[0]]))
        assert (alone[0][0], *alone[1][0].tolist()) == (mean[i], covariances[i, i], covariances[i, 0])
