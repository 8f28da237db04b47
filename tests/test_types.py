import numpy as np
import pytest

from rasp_tuner import Explanation, InvalidSpace, Metric


@pytest.mark.parametrize("direction", ["up", None, 1, np.array(["min", "max"]), ["min"]])
def test_a_metric_is_min_or_max(direction):
    with pytest.raises(InvalidSpace, match="direction must be 'min' or 'max'"):
        Metric(direction)


def test_an_explanation_without_names_says_what_it_can():
    why = Explanation("hint", (4, 2), (0.8, 0.2), (0.7, 0.297, 0.003, 0.0), 0.25, 0.1, 0.4, 0.8, 0.5)
    assert str(why) == (
        "Runs settings that are no longer on record. Chosen because of its kind: hint: the objective is expected to be"
        " 0.25 +- 0.1. How good it is will be known once it has run."
    )
    assert why.details[0] == "The situation is partly known."


def test_an_explanation_says_what_ran_if_it_was_something_else():
    ran = {"pool": 8, "rate": 1 / 3, "codec": None}
    why = Explanation("hint", path="fast", error=0.5, ran=ran)
    assert str(why).endswith("It came to an objective of 0.5 with other settings: pool=8, rate=0.333333, codec=None.")
