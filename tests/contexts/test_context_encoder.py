import numpy as np
import pytest

from rasp_tuner import InvalidSpace, InvalidValue
from rasp_tuner.contexts.context_encoder import ContextEncoder


def test_names_fix_the_order():
    encoder = ContextEncoder(["qps", "kb"])
    assert encoder.encode({"kb": 2, "qps": 1}).tolist() == [1.0, 2.0]
    assert encoder.encode([1, 2]).tolist() == encoder.encode(np.array([1.0, 2.0])).tolist() == [1.0, 2.0]


@pytest.mark.parametrize("given", [True, np.False_])
def test_true_and_false_are_no_numbers(given):
    with pytest.raises(InvalidValue, match=r"context\['weekend'\] must be a finite number, got .*; if you mean 1 or 0"):
        ContextEncoder(["weekend"]).encode({"weekend": given})
    with pytest.raises(InvalidValue, match=r"context\[0\] must be a finite number, got "):
        ContextEncoder(1).encode([given])


def test_without_context_nothing_is_expected():
    assert ContextEncoder(None).encode(None).shape == (0,)
    assert ContextEncoder(None).encode({}).shape == (0,)


def test_the_answer_is_a_copy():
    given = np.array([1.0, 2.0])
    ContextEncoder(2).encode(given)[0] = 9.0
    assert given.tolist() == [1.0, 2.0]


@pytest.mark.parametrize("dim", [3, 40])
def test_all_kinds_of_sequences_are_the_same(dim):
    encoder, values = ContextEncoder(dim), np.random.default_rng(0).normal(size=dim)
    for given in (values, values.tolist(), tuple(values.tolist()), list(values), values.astype(np.longdouble)):
        assert encoder.encode(given).tolist() == values.tolist()
        assert encoder.encode(given).dtype == np.float64


def test_extremes_saturate():
    assert ContextEncoder(2).encode([1e308, -1e308]).tolist() == [1e100, -1e100]


@pytest.mark.parametrize("schema", [["a", "a"], [], [""], [1], "ab", 0, -1, True, 2.5, {"a": 1}, 10**9])
def test_ill_defined_schemas_are_refused(schema):
    with pytest.raises(InvalidSpace, match="context"):
        ContextEncoder(schema)


@pytest.mark.parametrize(
    ("schema", "context", "says"),
    [
        (["a", "b"], {"a": 1.0}, r"context lacks \['b'\]"),
        (["a"], {"a": 1.0, "z": 2.0}, r"unknown names \['z'\]"),
        (["a"], {"a": float("nan")}, r"context\['a'\] must be a finite number, got nan"),
        (["a"], None, r"context is missing: give \{'a': ...\}"),
        (3, None, r"context is missing: give \[3 numbers\]"),
        (3, [1.0, 2.0], "must hold 3 numbers, got 2"),
        (2, [1.0, float("inf")], r"context\[1\] must be a finite number"),
        (2, {"a": 1.0, "b": 2.0}, "no names here"),
        (2, "ab", "sequence of 2 numbers"),
        (2, np.zeros((1, 2)), "one-dimensional"),
        (None, [1.0], "built without context"),
        (None, 5, "built without context"),
    ],
)
def test_wrong_contexts_are_refused_with_the_right_code(schema, context, says):
    with pytest.raises(InvalidValue, match=says):
        ContextEncoder(schema).encode(context)
