"""`with tuner.trial(context) as t`: one ask and its answer around a block of code."""

import logging

import pytest

from rasp_tuner import Float, InvalidValue, Tuner
from rasp_tuner.trial import Trial


def tuner(**more):
    return Tuner({"x": Float(0, 1)}, {"loss": "min"}, ["load"], {"x": 0.5}, **more)


def test_a_trial_is_an_ask_and_a_tell():
    by_hand, by_trial = tuner(), tuner()
    for step in range(12):
        load = {"load": step % 2}
        s = by_hand.ask(load)
        by_hand.tell(s.id, {"loss": (s.params["x"] - 0.2) ** 2})
        with by_trial.trial(load) as t:
            assert (t.id, t.params) == (s.id, s.params)
            t.report(loss=(t.params["x"] - 0.2) ** 2)
    assert by_trial.to_bytes() == by_hand.to_bytes()


@pytest.mark.parametrize(
    ("told", "said"),
    [({"loss": "x"}, "metrics"), ({"loss": True}, "metrics"), ({"control": {"loss": None}}, "control")],
)
def test_what_is_no_number_is_refused_where_it_is_reported(told, said):
    one = tuner()
    with one.trial([1.0]) as t:
        with pytest.raises(InvalidValue, match=rf"{said}\['loss'\] must be a finite number, got"):
            t.report(**told)
        t.report(loss=0.3)
    assert one.learned == 1


def test_a_block_that_raises_is_a_failed_run_and_the_error_goes_on(caplog):
    one = tuner()
    trial = one.trial([1.0])

    def block():
        with trial as t:
            t.report(loss=0.1)
            raise MemoryError("too much")

    with caplog.at_level(logging.INFO, "rasp_tuner"), pytest.raises(MemoryError, match="too much"):
        block()
    assert one.explain(trial.id).failure == "MemoryError: too much"
    assert one.pending == []
    assert "s0 failed: MemoryError: too much" in caplog.text


def test_ctrl_c_leaves_the_suggestion_waiting():
    one = tuner()
    with pytest.raises(KeyboardInterrupt), one.trial([1.0]) as t:
        raise KeyboardInterrupt
    assert [s.id for s in one.pending] == [t.id]
    one.tell(t.id, {"loss": 1.0})


def test_a_block_that_reports_nothing_is_told_so_and_can_be_answered_later():
    one = tuner()
    with pytest.raises(InvalidValue, match=r"reported nothing: call t.report.*tuner.tell\('s0'"), one.trial([1.0]):
        pass
    one.tell("s0", {"loss": 1.0})


def test_reports_add_up_and_may_say_what_ran():
    one = Tuner({"x": Float(0, 1)}, {"a": "min", "b": "max"}, default={"x": 0.5})
    with one.trial() as t:
        t.report({"a": 3.0})
        t.report(a=2.0, b=1.0, ran={"x": 0.75})
    assert one.explain(t.id).ran == {"x": 0.75}
    assert one.learned == 1


def test_a_wrong_report_is_refused_as_a_wrong_tell_is():
    one = tuner()
    with pytest.raises(InvalidValue, match="metrics lacks"), one.trial([1.0]) as t:
        t.report(los=1.0)
    assert [s.id for s in one.pending] == [t.id]


def test_a_trial_is_used_once_and_inside_its_block():
    trial = tuner().trial([1.0])
    assert isinstance(trial, Trial)
    with pytest.raises(InvalidValue, match="begins with its block"):
        _ = trial.params
    with trial as t:
        t.report(loss=1.0)
    with pytest.raises(InvalidValue, match="a trial is one run"):
        trial.__enter__()


def test_nothing_is_asked_before_the_block_begins():
    one = tuner()
    one.trial([1.0])
    assert one.pending == []
