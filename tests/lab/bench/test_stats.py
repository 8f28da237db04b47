import math
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rasp_lab.bench.analysis.stats import confidence, holm, paired_p


def test_interval_of_five_values_is_the_t_interval():
    values = np.array([1.0, 2.0, 3.0, 4.0, 5.0])
    assert confidence(values) == pytest.approx(2.7764451 * math.sqrt(2.5) / math.sqrt(5))
    assert math.isnan(confidence(values[:1]))


def test_paired_test_looks_at_differences():
    base = np.array([1.0, 10.0, 100.0, 1000.0, 5.0])
    assert paired_p(base, base + np.array([1.0, 1.1, 0.9, 1.05, 0.95])) < 1e-4  # hopeless unpaired
    assert paired_p(base, base) == 1.0
    assert paired_p(base, base + 1.0) == 0.0
    assert math.isnan(paired_p(base[:1], base[:1]))


def test_holm_by_hand():
    adjusted = holm({"a": 0.01, "b": 0.04, "c": 0.03, "d": math.nan})
    assert adjusted["a"] == pytest.approx(0.03)
    assert adjusted["c"] == pytest.approx(0.06)
    assert adjusted["b"] == pytest.approx(0.06)
    assert math.isnan(adjusted["d"])


@pytest.mark.slow
@given(st.dictionaries(st.sampled_from("abcdefgh"), st.floats(0, 1), min_size=1))
def test_holm_never_lowers_a_p_value_and_keeps_their_order(p_values):
    adjusted = holm(p_values)
    names = sorted(p_values, key=lambda name: p_values[name])
    assert all(p_values[name] <= adjusted[name] <= 1.0 for name in names)
    assert all(adjusted[a] <= adjusted[b] for a, b in pairwise(names))
