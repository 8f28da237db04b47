import ctypes

import numpy as np
import pytest

from rasp_tuner.engine.kernel import native
from rasp_tuner.engine.kernel.draws import DrawKeys, draws


def test_draws_are_uniform_and_unrelated():
    drawn = draws(DrawKeys(3, np.arange(500), np.zeros(500)), 40)
    assert drawn.shape == (500, 40)
    assert drawn.min() >= 0.0
    assert drawn.max() < 1.0
    assert np.histogram(drawn, 10, (0.0, 1.0))[0] == pytest.approx(2000, abs=200)
    assert abs(np.corrcoef(drawn[:-1].ravel(), drawn[1:].ravel())[0, 1]) < 0.03
    assert abs(np.corrcoef(drawn[:, :-1].ravel(), drawn[:, 1:].ravel())[0, 1]) < 0.03


def test_draws_depend_on_seed_tuner_and_ask_and_on_nobody_else():
    first = draws(DrawKeys(0, np.array([7]), np.array([3])), 5)
    assert (draws(DrawKeys(0, np.array([2, 7, 9]), np.array([8, 3, 0])), 5)[1] == first[0]).all()
    for seed, number, ask in ((1, 7, 3), (0, 8, 3), (0, 7, 4), (2**64 - 1, 7, 3)):
        assert not np.isin(draws(DrawKeys(seed, np.array([number]), np.array([ask])), 5), first).any()


@pytest.mark.skipif(not native.available(), reason=f"the native kernel is {native.why_not()}")
def test_compiled_code_draws_the_same_bits():
    """As a GPU does: on a CPU, NumPy draws."""
    drawn, pointers = np.empty((20, 30)), [native.POINTER] * 2
    run = native.function("rasp_draws", [ctypes.c_uint64, native.NUMBER, *pointers, native.NUMBER, native.POINTER])
    for seed in (11, 0, 2**64 - 1, -5):
        keys = DrawKeys(seed, np.arange(20.0), np.arange(20.0) * 1e6)
        given = native.address(keys.numbers), native.address(keys.asks)
        run(keys.mixed_seed, 20, *given, 30, native.address(drawn))
        np.testing.assert_array_equal(drawn, draws(keys, 30))


def test_draws_are_those_of_splitmix64():
    """By Python's integers."""
    mask, golden = 2**64 - 1, 0x9E3779B97F4A7C15

    def mix(x):
        x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & mask
        x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & mask
        return x ^ (x >> 31)

    keys = DrawKeys(3, np.array([7.0]), np.array([12.0]))
    key = mix((mix((7 * golden + mix((3 + golden) & mask)) & mask) + 12 * golden) & mask)
    expected = [(mix((key + place * golden) & mask) >> 11) / 2.0**53 for place in (1, 2, 3)]
    assert draws(keys, 3)[0].tolist() == expected
