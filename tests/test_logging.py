"""The logger "rasp_tuner": silent by default, and never of contexts."""

import logging
import re
import subprocess
import sys

import pytest

from rasp_tuner import Float, InvalidValue, Tuner

LOGGER = "rasp_tuner"


def tuner_of(**settings):
    return Tuner({"x": Float(0.0, 1.0)}, {"ms": "min"}, ["load"], {"x": 0.5}, **settings)


def test_asks_and_tells_are_logged_at_debug(caplog):
    tuner = tuner_of()
    with caplog.at_level(logging.DEBUG, LOGGER):
        s = tuner.ask({"load": 123.25})
        tuner.tell(s.id, {"ms": 7.5})
    assert [record.getMessage() for record in caplog.records] == [
        "ask s0: {'x': 0.5} (default)",
        "tell s0: {'ms': 7.5}",
    ]
    assert {record.name for record in caplog.records} == {LOGGER}
    assert "123.25" not in caplog.text


def test_what_is_refused_is_not_logged(caplog):
    tuner = tuner_of()
    s = tuner.ask({"load": 1.0})
    with caplog.at_level(logging.DEBUG, LOGGER), pytest.raises(InvalidValue):
        tuner.tell(s.id, {"ms": float("nan")})
    assert caplog.records == []


def test_at_info_only_what_is_rare(caplog):
    tuner = tuner_of()
    with caplog.at_level(logging.INFO, LOGGER):
        tuner.tell(tuner.ask({"load": 1.0}).id, {"ms": 7.5})
        tuner.tell_failed(tuner.ask({"load": 1.0}).id, "out of\nmemory")
        tuner.tell_failed(tuner.ask({"load": 1.0}).id)
    assert [record.getMessage() for record in caplog.records] == [
        "s1 failed: out of memory",
        "s2 failed: no reason given",
    ]


def test_a_change_of_scale_is_logged(caplog):
    tuner = tuner_of()
    with caplog.at_level(logging.INFO, LOGGER):
        for step in range(12):
            s = tuner.ask({"load": 1.0})
            tuner.tell(s.id, {"ms": 10.0 + step % 3 if step < 10 else 1e6})
    assert tuner.scales == {"ms": "log"}
    (record,) = caplog.records
    assert re.fullmatch(r"the scale of a metric has changed \(.+\); now: ms log", record.getMessage())


def test_logging_changes_no_suggestion(caplog):
    quiet, loud = tuner_of(), tuner_of()
    for step in range(30):
        asked = []
        for tuner, level in ((quiet, logging.WARNING), (loud, logging.DEBUG)):
            with caplog.at_level(level, LOGGER):
                s = tuner.ask({"load": float(step % 2)})
                tuner.tell(s.id, {"ms": (s.params["x"] - 0.3) ** 2})
                asked.append(s)
        assert asked[0] == asked[1]
    assert quiet.to_bytes() == loud.to_bytes()


def test_a_program_that_sets_up_no_logging_sees_nothing_of_a_tuner():
    code = """
from rasp_tuner import Float, Tuner
tuner = Tuner({"x": Float(0.0, 1.0)}, {"ms": "min"})
tuner.tell(tuner.ask().id, {"ms": 1.0})
tuner.tell_failed(tuner.ask().id, "crash")
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("", "")
