"""Arrays of a saved state are checked by one table of rules."""

import numpy as np
import pytest

from rasp_tuner.base.state_checks import Field, broken, checked, under
from rasp_tuner.errors import SnapshotError

FIELDS = {
    "steps": Field((), 0, 1e6, whole=True),
    "counts": Field(("n",), 1),
    "keys": Field(("n", "c"), -1e3, 1e3),
}
SIZES = {"n": range(4), "c": 2}


def _state(**changes: object) -> dict:
    state = {"steps": np.array(5.0), "counts": np.ones(3), "keys": np.zeros((3, 2)), "more": np.zeros(9)}
    return {**state, **changes}


def test_sound_arrays_come_back_as_copies_without_the_others() -> None:
    state = _state(keys=np.zeros((2, 3)).T)
    arrays = checked(state, FIELDS, SIZES)
    assert list(arrays) == ["steps", "counts", "keys"]
    assert arrays["keys"].flags.c_contiguous
    arrays["keys"][0, 0] = 7.0
    assert state["keys"][0, 0] == 0.0


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"steps": np.array(-1.0)}, r"'gate/steps' must hold whole numbers from 0 to 1e\+06, got -1.0"),
        ({"steps": np.array(2e6)}, "got 2000000.0"),
        ({"steps": np.array(0.5)}, "whole numbers"),
        ({"steps": np.array(np.nan)}, "got nan"),
        ({"keys": np.full((3, 2), np.inf)}, "got inf"),
        ({"steps": np.zeros(1)}, r"'gate/steps' must have the shape \[\], got \(1,\)"),
        ({"steps": np.array(1)}, "64 bits, got dtype"),
        ({"counts": np.ones(4)}, r"the shape \[0..3\], got \(4,\)"),
        ({"counts": np.ones(2)}, r"'gate/keys' must have the shape \[2, 2\], got \(3, 2\)"),
        ({"keys": np.zeros((3, 3))}, r"the shape \[3, 2\]"),
        ({"keys": None}, "'gate/keys' is missing"),
    ],
)
def test_what_breaks_a_rule_is_named_with_the_rule_and_the_value(changes: dict, message: str) -> None:
    nested = {f"gate/{name}": array for name, array in _state(**changes).items()}
    with pytest.raises(SnapshotError, match=message):
        checked(under("gate/", nested), FIELDS, SIZES)


def test_rules_between_arrays_are_told_in_the_same_way() -> None:
    nested = under("0/", under("gate/", {"gate/0/latest": np.array(9.0)}))
    assert str(broken(nested, "latest", "be a slot in use", 9.0)) == (
        "array 'gate/0/latest' must be a slot in use, got 9.0"
    )
