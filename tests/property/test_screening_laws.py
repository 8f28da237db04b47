"""Laws of the screening: what must not matter does not."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rasp_tuner.context_report import screen

FEW = settings(max_examples=8, deadline=None)


def sample(seed, n=44):
    rng = np.random.default_rng(seed)
    points, contexts = rng.uniform(size=(n, 2)), rng.normal(size=(n, 2))
    strength = rng.choice([0.0, 0.3])
    losses = ((points - 0.5 - strength * np.tanh(contexts[:, :1])) ** 2).sum(axis=1) + 0.02 * rng.normal(size=n)
    return contexts, points, losses


@FEW
@given(
    seed=st.integers(0, 10_000),
    scale=st.floats(1e-3, 1e3),
    offset=st.floats(-1e3, 1e3),
    turned=st.booleans(),
)
def test_units_of_context_and_loss_do_not_matter(seed, scale, offset, turned):
    contexts, points, losses = sample(seed)
    moved = (-1.0 if turned else 1.0) * scale * contexts + offset
    one, two = screen(contexts, points, losses), screen(moved, points, scale * losses + offset)
    assert two.verdict == one.verdict
    assert two.p == pytest.approx(one.p, abs=0.05)
    assert two.gain == pytest.approx(one.gain, abs=0.01 + 0.01 * one.gain)


@FEW
@given(seed=st.integers(0, 10_000))
def test_order_of_dimensions_and_still_ones_do_not_matter(seed):
    contexts, points, losses = sample(seed)
    more = np.column_stack([np.full(len(losses), 3.0), contexts[:, ::-1]])
    one, two = screen(contexts, points, losses, ["a", "b"]), screen(more, points, losses, ["still", "b", "a"])
    assert two.verdict == one.verdict
    assert {d.name: d.p for d in two.dimensions} == pytest.approx({d.name: d.p for d in one.dimensions}, abs=0.05)


@FEW
@given(seed=st.integers(0, 10_000))
def test_p_is_a_rank_among_the_shifts_and_the_whole_is_no_worse_than_a_part(seed):
    report = screen(*sample(seed))
    ranks = (1.0 + len(report.shifted)) * np.array([report.p, *(d.p for d in report.dimensions)])
    assert ranks == pytest.approx(np.round(ranks))
    assert 1.0 / (1.0 + len(report.shifted)) <= report.p <= min(d.p for d in report.dimensions) <= 1.0
    beaten = sum(other >= report.gain - 1e-9 for other in report.shifted)
    assert report.p == pytest.approx((1 + beaten) / (1 + len(report.shifted)))
    assert all(0.0 <= d.share <= 1.0 for d in report.dimensions)
