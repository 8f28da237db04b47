"""The stub of service_speed still stands for the tuner that the service calls."""

import os
import subprocess
import sys
from pathlib import Path

import rasp_lab

STUB = Path(rasp_lab.__file__).parent / "speed" / "stub_engine"
STEPS = """
from rasp_tuner.service.study.definition import StudyDefinition
from rasp_tuner.service.study.live_study import LiveStudy

space = {"x": {"type": "float", "low": 0, "high": 1}}
wanted = {"name": "a", "space": space, "metrics": {"m": "min"}, "context": ["c"], "default": {"x": 0.5}}
live = LiveStudy(1, StudyDefinition.from_wire(wanted), 0.0)
for i in range(3):
    event = live.ask({"c": 1.0}, float(i))
    assert live.stop_of(event.ask) is None
    live.tell(f"s{event.ask}", float(i), None, {"m": 1.0})
print(live.counts.tells, live.tuner.learned)
"""


def test_a_study_asks_and_tells_the_stub_which_learns_nothing():
    paths = os.pathsep.join([str(STUB), os.environ.get("PYTHONPATH", "")])
    words = [sys.executable, "-c", STEPS, "serve"]
    done = subprocess.run(words, capture_output=True, text=True, env={**os.environ, "PYTHONPATH": paths}, check=False)
    assert done.stdout.split() == ["3", "0"], done.stderr
