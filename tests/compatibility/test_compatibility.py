"""What an earlier version wrote goes on: the paper's preset in the same way, the default with what it had learned."""

import gzip
import json
import math
from pathlib import Path

import numpy as np
import pytest
import scenarios

from rasp_tuner import Tuner
from rasp_tuner.policy.evaluate import leaf_of, load

V0_1_0 = Path(__file__).parent / "v0_1_0"


def loaded(name, tmp_path):
    """The tuner of a snapshot, its waiting suggestion told, and the steps that its version took from there."""
    path = tmp_path / "tuner.rasp"
    path.write_bytes(gzip.decompress((V0_1_0 / f"{name}.rasp.gz").read_bytes()))
    recorded = json.loads((V0_1_0 / f"{name}.json").read_text())
    tuner = Tuner.load(path)
    waiting = next(s for s in tuner.pending if s.id == recorded["waiting"])
    tuner.tell(waiting.id, scenarios.measure(waiting.params, 0))
    return tuner, recorded["steps"]


def test_a_snapshot_of_the_papers_preset_goes_on_with_the_same_suggestions(tmp_path):
    tuner, recorded = loaded("paper", tmp_path)
    for step, then in zip(scenarios.steps(tuner, scenarios.BEFORE, scenarios.AFTER), recorded, strict=True):
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


@pytest.mark.parametrize("name", [name for name in scenarios.SCENARIOS if name != "paper"])
def test_a_snapshot_of_the_default_preset_goes_on_with_what_it_had_learned(name, tmp_path):
    """The engine has changed since: its suggestions differ, and may first look at what it wants to know; soon they are
    no worse.
    """
    tuner, recorded = loaded(name, tmp_path)
    assert tuner.slots().visits.sum() == scenarios.BEFORE + 1
    now = np.array([step["error"] for step in scenarios.steps(tuner, scenarios.BEFORE, scenarios.AFTER)])
    then = np.array([step["error"] for step in recorded])
    assert now[:10].mean() < then[:10].mean() + 0.5 * then.std()
    assert now.mean() < then.mean() + 0.3 * then.std()


@pytest.mark.parametrize("name", scenarios.SCENARIOS)
def test_a_snapshot_of_0_1_0_exports_a_policy(name, tmp_path):
    """It has no steps on record; what is in memory will do."""
    tuner = Tuner.from_bytes(gzip.decompress((V0_1_0 / f"{name}.rasp.gz").read_bytes()))
    for contexts in (None, [{"load": x} for x in np.linspace(0.0, 1.0, 12)]):
        report = tuner.export(tmp_path / "policy.json", contexts=contexts)
        assert (report.loss is None) == (name == "paper")
        assert report.grown_from > 4
        assert leaf_of(load(tmp_path / "policy.json"), {"load": 0.5}) is not None
