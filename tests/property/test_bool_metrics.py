"""True is no measurement: wherever a metric comes in, it is a typed error, and nothing is learned."""

import numpy as np
import pytest

from rasp_tuner import Fleet, Float, Tuner
from rasp_tuner.client.wire import metrics_json
from rasp_tuner.errors import InvalidValue

SPACE = {"a": Float(0.0, 1.0)}
BOOLS = (True, False, np.True_, np.False_)


@pytest.mark.parametrize("given", BOOLS)
def test_a_tuner_takes_no_bool_for_a_metric(given):
    tuner = Tuner(SPACE, {"ms": "min"}, default={"a": 0.5})
    asked = tuner.ask()
    with pytest.raises(InvalidValue, match=r"metrics\['ms'\] must be a finite number, got .*if you mean 1 or 0"):
        tuner.tell(asked.id, {"ms": given})
    with pytest.raises(InvalidValue, match=r"control\['ms'\]"):
        tuner.tell(asked.id, {"ms": 1.0}, control={"ms": given})
    with pytest.raises(InvalidValue, match=r"metrics\['ms'\]"):
        tuner.observe(None, {"a": 0.5}, {"ms": given})
    with pytest.raises(InvalidValue, match=r"partial\['ms'\]"):
        tuner.should_stop(asked.id, {"ms": given})
    assert (tuner.learned, len(tuner.pending)) == (0, 1)
    tuner.tell(asked.id, {"ms": 1})  # a whole number is one


@pytest.mark.parametrize("given", BOOLS)
def test_logs_and_clients_take_none(given):
    record = {"params": {"a": 0.5}, "metrics": {"ms": given}}
    with pytest.raises(InvalidValue, match=r"metrics\['ms'\]"):
        Tuner.from_log([record], space=SPACE, metrics={"ms": "min"})
    tuner, _ = Tuner.from_log(
        [record, {**record, "metrics": {"ms": 2.0}}], space=SPACE, metrics={"ms": "min"}, missing="drop"
    )
    assert tuner.learned == 1
    with pytest.raises(InvalidValue, match=r"metrics\['ms'\]"):
        metrics_json({"ms": given})


@pytest.mark.parametrize("given", [[True, 1.0], (1.0, False), np.array([True, False])])
def test_a_fleet_takes_none(given):
    fleet = Fleet(SPACE, metrics={"ms": "min"}, size=2)
    fleet.ask()
    with pytest.raises(InvalidValue, match=r"metrics\['ms'\] must hold numbers"):
        fleet.tell({"ms": given})
