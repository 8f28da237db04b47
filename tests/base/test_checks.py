import numpy as np
import pytest

from rasp_tuner import InvalidSpace, InvalidValue
from rasp_tuner.base.checks import number, same_names, show, vector, whole


def test_show_is_short_and_survives_broken_objects():
    class Broken:
        def __repr__(self):
            raise RuntimeError

    assert show("x" * 500).endswith("...")
    assert len(show("x" * 500)) == 80
    assert show(Broken()) == "<Broken whose repr raises RuntimeError>"


@pytest.mark.parametrize("good", [1, 1.0, np.float32(1), np.int8(1)])
def test_numbers_of_every_kind_are_taken(good):
    assert number("x", good) == 1.0
    assert type(number("x", good)) is float


@pytest.mark.parametrize("bad", [None, "1", 1j, [1.0], np.array(1.0), float("nan"), 10**400, True, np.False_])
def test_what_is_no_finite_number_is_refused_by_field(bad):
    with pytest.raises(InvalidSpace, match=r"^speed must be a finite number, got "):
        number("speed", bad, InvalidSpace)


def test_vectors_name_the_entry_that_is_wrong():
    with pytest.raises(InvalidValue, match=r"^c\[1\] must be a finite number, got 'b'"):
        vector("c", [1.0, "b"], 2)


def test_names_are_compared_as_sets():
    assert same_names("m", {"b": 2, "a": 1}, ["a", "b"]) == {"a": 1, "b": 2}
    with pytest.raises(InvalidValue, match=r"m lacks \['b'\]"):
        same_names("m", {"a": 1}, ["a", "b"])


@pytest.mark.parametrize("bad", [0, 11, 5.0, True, "5", None])
def test_whole_numbers_have_a_range_and_no_other_kind(bad):
    with pytest.raises(InvalidValue, match=r"^n must be a whole number from 1 to 10, got "):
        whole("n", bad, 1, 10)
    assert whole("n", np.int64(10), 1, 10) == 10
