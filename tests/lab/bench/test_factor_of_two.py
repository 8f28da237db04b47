"""Constants of the engine are moved by a factor of two in the source of their module."""

import math
from itertools import cycle

import pytest

from rasp_lab.beds import factor_of_two
from rasp_lab.beds.runner import Cell, Results


@pytest.mark.nightly
def test_every_judgement_constant_can_be_moved_alone():
    """Each by one of the two factors."""
    table, factors = factor_of_two.TABLE, cycle(factor_of_two.FACTORS)
    judged = [one for one in table["constants"]() if table["kind_of"](one) == "Judgement"]
    assert judged
    for file in {constant.file for constant in judged}:
        text = factor_of_two.module_of(file).read_text()
        before = _values(text)
        for constant in (one for one in judged if one.file == file):
            after = _values(factor_of_two.changed(text, constant.name, next(factors)))  # which parses it
            different = {name for name in before if before[name] != after[name]}
            assert different - {"PRIORS"} == {constant.name}, constant


def _values(text):
    return {name: factor_of_two.ast.unparse(node) for name, node in factor_of_two.assigned(text)}


def test_an_effect_is_the_mean_log_ratio_of_losses():
    one, two = Cell("worlds", "discrete, noise 0", 0), Cell("worlds", "discrete, noise 0", 2)
    before = Results({one: {"loss, noise 0": 0.2, "stuck, noise 0": 0.0}, two: {"loss, noise 0": 0.1}})
    after = Results({one: {"loss, noise 0": 0.4, "stuck, noise 0": 1.0}, two: {"loss, noise 0": 0.1}})
    mean, error, changed = factor_of_two.effect(before, after, "worlds")
    assert (mean, changed) == (pytest.approx(0.5 * math.log(2.0)), 1)
    assert error == pytest.approx(0.5 * math.log(2.0))
    assert factor_of_two.effect(before, after, "small") is None
