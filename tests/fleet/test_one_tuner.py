"""fleet[i]: one tuner of a fleet of either kind."""

import numpy as np
import pytest

from rasp_tuner import Categorical, Fleet, Float, InvalidValue, Tuner, presets

KINDS = {
    "continuous": ({"x": Float(0, 1)}, {"x": 0.5}, {"preset": presets.default(quadratic=True)}),
    "choices": ({"x": Float(0, 1), "c": Categorical(["a", "b"])}, {"x": 0.5, "c": "a"}, {}),
}
METRICS = {"ms": "min"}


@pytest.fixture(params=KINDS)
def kind(request):
    return KINDS[request.param]


@pytest.fixture
def fleet(kind):
    return Fleet(kind[0], METRICS, default=kind[1], size=3)


@pytest.fixture
def new_tuner(kind):
    def made(**options):
        return Tuner(kind[0], METRICS, **{"default": kind[1], **kind[2], **options})

    return made


@pytest.mark.parametrize("i", [slice(0, 2), [0, 1], None, [], slice("a", None), 3, -1, "a", 2**70])
def test_it_takes_one_position(fleet, i):
    with pytest.raises(InvalidValue):
        fleet[i]
    one = fleet[0]
    with pytest.raises(InvalidValue):
        fleet[i] = one


def test_a_fleet_can_be_gone_through(fleet):
    fleet.ask()
    fleet.tell({"ms": [1.0, 2.0, 3.0]}, failed=[False, True, False])
    assert [tuner.learned for tuner in fleet] == fleet.learned.tolist()
    assert all(isinstance(tuner, Tuner) for tuner in fleet)


def test_an_empty_one_says_so(fleet):
    fleet.remove(None)
    with pytest.raises(InvalidValue, match="the fleet is empty"):
        fleet[0]
    assert list(fleet) == []


@pytest.mark.parametrize("options", [{"holdout": 0.5}, {"max_change": {"x": 0.5}}])
def test_options_that_a_fleet_has_not_are_refused(fleet, new_tuner, options):
    with pytest.raises(InvalidValue, match="which a fleet has not"):
        fleet[0] = new_tuner(**options)


def test_a_frozen_tuner_is_refused(fleet, new_tuner):
    tuner = new_tuner()
    tuner.freeze()
    with pytest.raises(InvalidValue, match="which a fleet has not: frozen"):
        fleet[0] = tuner


def test_of_suggestions_that_wait_the_latest_stays(fleet, new_tuner):
    tuner = new_tuner()
    latest = [tuner.ask() for _ in range(3)][-1]
    fleet[0] = tuner
    assert fleet.pending.tolist() == [True, False, False]
    assert [one.params for one in fleet[0].pending] == [latest.params]
    fleet.tell({"ms": [1.0]}, which=0)
    assert not fleet.pending.any()
    with pytest.raises(InvalidValue, match="ask first"):
        fleet.tell({"ms": [1.0]}, which=0)


def test_another_option_is_named(fleet, new_tuner, kind):
    with pytest.raises(InvalidValue, match=r"another default"):
        fleet[0] = new_tuner(default={**kind[1], "x": 0.25})
    with pytest.raises(InvalidValue, match=r"another guard than the fleet: 0.5, not None"):
        fleet[0] = new_tuner(guard=0.5)


@pytest.mark.parametrize(
    "call",
    [
        lambda fleet: fleet.tell({"ms": [1.0, 2.0, 3.0]}, failed=[[1], [1, 2], 1]),
        lambda fleet: fleet.tell({"ms": [10**400, 2.0, 3.0]}),
        lambda fleet: fleet.tell({"ms": np.array([1.0, 2.0])}),
    ],
)
def test_wrong_values_change_nothing(fleet, call):
    fleet.ask()
    with pytest.raises(InvalidValue):
        call(fleet)
    assert fleet.pending.all()
    assert not fleet.learned.any()


def test_columns_are_asked_for_where_contexts_have_kinds(kind):
    fleet = Fleet(kind[0], METRICS, {"region": "category"}, size=2)
    with pytest.raises(InvalidValue, match="give columns by name"):
        fleet.ask()
