"""ContextShield: raw contexts stay outside, geometry stays inside, and what noise gives away is counted."""

import struct

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rasp_tuner import (
    BudgetSpent,
    Categorical,
    ContextShield,
    Float,
    GaussianNoise,
    InvalidSpace,
    InvalidValue,
    PrivacyBudget,
    SnapshotError,
    Tuner,
)
from rasp_tuner.files import snapshot
from rasp_tuner.privacy import epsilon_of, rho_of

KEY = "a key of more than sixteen bytes"
RANGES = {"q": (0.0, 1000.0), "k": (-1.0, 1.0), "m": (5.0, 6.0)}
TASK = {"space": {"x": Float(0.0, 1.0)}, "metrics": {"ms": "min"}, "context": list(RANGES)}
CANARY = 424.12345678901
finite = st.floats(-1e3, 1e3)


def run(tuner, count, seed=0):
    rng, seen = np.random.default_rng(seed), []
    for _ in range(count):
        busy = rng.uniform() < 0.5
        context = {"q": 800.0 if busy else CANARY, "k": float(rng.uniform(-1, 1)), "m": 5.5}
        s = tuner.ask(context)
        tuner.tell(s.id, {"ms": (s.params["x"] - (0.8 if busy else 0.2)) ** 2})
        seen.append(s.params)
    return seen


@settings(max_examples=50)
@given(st.lists(finite, min_size=3, max_size=3), st.lists(finite, min_size=3, max_size=3))
def test_a_turned_context_keeps_distances_and_nothing_else(a, b):
    plain, turned = ContextShield(RANGES), ContextShield(RANGES, key=KEY)
    near = np.linalg.norm(plain.encode(a) - plain.encode(b))
    assert np.linalg.norm(turned.encode(a) - turned.encode(b)) == pytest.approx(near, rel=1e-9, abs=1e-9)
    assert turned(a) == turned(dict(zip(RANGES, a, strict=True)))
    assert turned(a) == ContextShield(RANGES, key=KEY.encode())(a)
    assert not np.allclose(turned.encode(a), ContextShield(RANGES, key=KEY + "!").encode(a))


def test_a_projection_keeps_lengths_on_average():
    ranges = [(-1.0, 1.0)] * 40
    x = np.random.default_rng(0).normal(size=40)
    sizes = []
    for i in range(200):
        shield = ContextShield(ranges, key=f"{KEY} {i}", dim=10)
        sizes.append(np.sum((shield.encode(x) - shield.encode(np.zeros(40))) ** 2))
    assert len(shield(x)) == 10
    assert np.mean(sizes) == pytest.approx(np.sum(x**2), rel=0.1)


def test_neither_snapshot_nor_key_holds_a_raw_context(tmp_path):
    def holds(tuner):
        tuner.ask({"q": CANARY, "k": 0.5, "m": 5.5})  # waits in the ledger
        data = tuner.to_bytes()
        return struct.pack("<d", CANARY) in data or str(CANARY).encode() in data or KEY.encode() in data

    raw, tuner = Tuner(**TASK), Tuner(**TASK, shield=ContextShield(RANGES, key=KEY))
    run(raw, 20)
    run(tuner, 20)
    assert holds(raw)
    assert not holds(tuner)
    tuner.save(tmp_path / "t")
    loaded = Tuner.load(tmp_path / "t", shield=ContextShield(RANGES, key=KEY))
    assert run(loaded, 40, 1) == run(tuner, 40, 1)
    assert loaded.recommend({"q": 800.0, "k": 0.0, "m": 5.5})["x"] == pytest.approx(0.8, abs=0.1)
    with pytest.raises(SnapshotError, match="another shield"):
        Tuner.load(tmp_path / "t", shield=ContextShield(RANGES, key=KEY + "!"))
    with pytest.raises(SnapshotError, match=r"give it, as in Tuner.load\(path, shield=...\)"):
        Tuner.load(tmp_path / "t")
    raw.save(tmp_path / "raw")
    with pytest.raises(SnapshotError, match="without a shield"):
        Tuner.load(tmp_path / "raw", shield=ContextShield(RANGES, key=KEY))


@given(st.floats(1e-3, 1e3), st.floats(1e-12, 0.5))
def test_rho_and_epsilon_are_inverse(epsilon, delta):
    assert epsilon_of(rho_of(epsilon, delta), delta) == pytest.approx(epsilon, rel=1e-9)


def test_noise_has_the_deviation_its_epsilon_asks_for():
    noise = GaussianNoise(2.0, 1e-5, seed=0)
    shield = ContextShield(RANGES, noise=noise)
    sigma = 2.0 * np.sqrt(3.0) / np.sqrt(2.0 * rho_of(2.0, 1e-5))
    assert noise.sigma(3) == pytest.approx(sigma)
    drawn = np.array([shield.encode([500.0, 0.0, 5.5]) for _ in range(4_000)])
    assert drawn.std() == pytest.approx(sigma, rel=0.03)
    assert abs(drawn.mean()) < 4.0 * sigma / np.sqrt(drawn.size)
    far = shield.encode_readonly([1e30, 0.0, 5.5])  # however far out, it counts as the edge
    assert np.linalg.norm(far) == pytest.approx(np.sqrt(3.0))
    narrow = GaussianNoise(2.0, 1e-5, radius=0.5, seed=0)
    assert narrow.sigma(3) == pytest.approx(sigma * 0.5 / np.sqrt(3.0))


def test_two_worlds_are_as_hard_to_tell_apart_as_promised():
    """The exact delta of a Gaussian at the epsilon promised, of the two contexts farthest apart, is below delta."""
    from math import erf, sqrt

    def normal(x):
        return 0.5 * (1.0 + erf(x / sqrt(2.0)))

    for epsilon in (0.1, 1.0, 8.0):
        ratio = 2.0 * np.sqrt(3.0) / GaussianNoise(epsilon, 1e-6).sigma(3)  # distance over sigma
        exact = normal(ratio / 2 - epsilon / ratio) - np.exp(epsilon) * normal(-ratio / 2 - epsilon / ratio)
        assert exact <= 1e-6


def test_a_budget_counts_refuses_and_survives_a_save(tmp_path):
    def shielded(**limit):
        return ContextShield(RANGES, key=KEY, noise=GaussianNoise(0.5, budget=PrivacyBudget(3.0), **limit))

    shield = shielded()
    tuner = Tuner(**TASK, shield=shield)
    context = {"q": 1.0, "k": 0.0, "m": 5.5}
    budget = shield.noise.budget
    while epsilon_of(budget.rho + shield.noise.rho, 1e-6) <= 3.0 and len(tuner.pending) < 50:
        tuner.ask(context)
    with pytest.raises(BudgetSpent, match=r"epsilon=3, delta=1e-06 is spent"):
        tuner.ask(context)
    count = len(tuner.pending)
    assert budget.spent <= 3.0 < epsilon_of((count + 1) * shield.noise.rho, 1e-6)
    assert 30 <= count <= 36  # under naive composition it would be 6
    before = tuner.to_bytes()
    with pytest.raises(BudgetSpent):
        tuner.observe(context, {"x": 0.5}, {"ms": 1.0})
    tuner.recommend(context)
    tuner.check_context(context)
    assert tuner.to_bytes() == before
    tuner.save(tmp_path / "t")
    again = shielded()
    with pytest.raises(BudgetSpent):
        Tuner.load(tmp_path / "t", shield=again).ask(context)
    assert again.noise.budget.rho == budget.rho
    header, arrays = snapshot.decode(before)
    untouched = shielded()
    with pytest.raises(SnapshotError, match="learned must be a whole number"):
        Tuner.from_bytes(snapshot.encode({**header, "learned": -1}, arrays), shield=untouched)
    assert untouched.noise.budget.rho == 0.0


def test_a_snapshot_of_long_contexts_that_a_shield_made_short_is_taken(tmp_path):
    ranges = {f"c{i}": (0.0, 1.0) for i in range(400)}
    space = {"x": Categorical(["a", "b"])}
    shield = ContextShield(ranges, key=KEY, dim=2)
    tuner = Tuner(space, {"ms": "min"}, list(ranges), shield=shield)
    tuner.save(tmp_path / "t")
    Tuner.load(tmp_path / "t", shield=ContextShield(ranges, key=KEY, dim=2))


def test_a_log_is_noised_once():
    shield = ContextShield(RANGES, noise=GaussianNoise(1.0, budget=PrivacyBudget(1e6)))
    records = [
        {"context": {"q": 1.0 + i, "k": 0.0, "m": 5.5}, "params": {"x": 0.5}, "metrics": {"ms": i}} for i in range(9)
    ]
    Tuner.from_log(records, **TASK, shield=shield)
    assert shield.noise.budget.rho == pytest.approx(9 * shield.noise.rho)


@pytest.mark.parametrize(
    ("build", "said"),
    [
        (lambda: ContextShield(RANGES, key="short"), "at least 16 bytes"),
        (lambda: ContextShield({"q": (1.0, 1.0)}), "low < high"),
        (lambda: ContextShield({"q": 1.0}), r"must be \(low, high\)"),
        (lambda: ContextShield(RANGES, dim=2), "needs a key"),
        (lambda: ContextShield(RANGES, key=KEY, dim=4), "dim must be"),
        (lambda: GaussianNoise(0.0), "epsilon must be positive"),
        (lambda: PrivacyBudget(1.0, 1.0), "delta must lie between"),
        (lambda: Tuner(**{**TASK, "context": ["q"]}, shield=ContextShield(RANGES)), "shield has ranges for"),
    ],
)
def test_misuse_is_refused(build, said):
    with pytest.raises(InvalidSpace, match=said):
        build()


def test_a_bad_context_is_refused_before_anything_is_spent():
    shield = ContextShield(RANGES, noise=GaussianNoise(1.0, budget=PrivacyBudget(10.0)))
    with pytest.raises(InvalidValue, match="context lacks"):
        shield({"q": 1.0})
    assert shield.noise.budget.rho == 0.0
