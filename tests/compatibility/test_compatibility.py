"""What an earlier version wrote goes on as that version would have gone on."""

import gzip
import json
import math
from pathlib import Path

import pytest
import scenarios

from rasp_tuner import Tuner

V0_1_0 = Path(__file__).parent / "v0_1_0"


@pytest.mark.parametrize("name", scenarios.SCENARIOS)
def test_a_snapshot_of_0_1_0_goes_on_with_the_same_suggestions(name, tmp_path):
    path = tmp_path / "tuner.rasp"
    path.write_bytes(gzip.decompress((V0_1_0 / f"{name}.rasp.gz").read_bytes()))
    recorded = json.loads((V0_1_0 / f"{name}.json").read_text())
    tuner = Tuner.load(path)
    waiting = next(s for s in tuner.pending if s.id == recorded["waiting"])
    tuner.tell(waiting.id, scenarios.measure(waiting.params, 0))
    for step, then in zip(scenarios.steps(tuner, scenarios.BEFORE, scenarios.AFTER), recorded["steps"], strict=True):
        for column in ("params", "recommended", "source"):
            assert step[column] == then[column], column
        for column in ("error", "predicted"):
            assert math.isclose(step[column], then[column], rel_tol=1e-9), column


@pytest.mark.parametrize("name", scenarios.SCENARIOS)
def test_a_suggestion_of_0_1_0_can_be_told_with_what_ran(name):
    tuner = Tuner.from_bytes(gzip.decompress((V0_1_0 / f"{name}.rasp.gz").read_bytes()))
    waiting = tuner.pending[-1]
    assert tuner.explain(waiting.id).ran is None
    ran = {**waiting.params, **tuner.recommend({"load": 1.0})}
    tuner.tell(waiting.id, scenarios.measure(ran, 0), ran)
    assert tuner.explain(waiting.id).ran == (None if ran == waiting.params else ran)
    assert Tuner.from_bytes(tuner.to_bytes()).explain(waiting.id) == tuner.explain(waiting.id)
