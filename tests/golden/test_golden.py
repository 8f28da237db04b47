"""Golden traces: what a seed suggested when the trace was recorded, it must suggest today.

Record anew, after a change that is meant to change suggestions: python tests/golden/test_golden.py
"""

import json
from pathlib import Path

import numpy as np
import pytest

from rasp_tuner import Categorical, Float, Int, Metric, Tuner, presets

HERE = Path(__file__).parent
TRACES = {
    "paper": presets.paper(),
    "paper_alert": presets.paper(anomaly_threshold=0.3, disagreement_threshold=0.3),  # takes the slow path often
}


def trace(preset):
    tuner = Tuner(
        {"pool": Int(1, 64, log=True), "timeout": Float(0.1, 10.0), "codec": Categorical(["lz4", "zstd"])},
        {"ms": "min", "tps": Metric("max", weight=0.5)},
        context=["load"],
        default={"pool": 8, "timeout": 1.0, "codec": "lz4"},
        preset=preset,
        seed=42,
    )
    rows = []
    for t in range(120):
        load = float(t // 20 % 2) + 0.05 * np.sin(7 * t)
        s = tuner.ask({"load": load})
        if t % 25 == 24:
            tuner.tell_failed(s.id, "crash")
        else:
            ms = (s.params["timeout"] - 1 - 5 * (t // 20 % 2)) ** 2
            tuner.tell(s.id, {"ms": ms, "tps": s.params["pool"] + np.cos(t)})
        why = tuner.explain(s.id)
        rows.append({**s.params, "error": why.error, "novelty": why.novelty, "source": why.source, "path": why.path})
    return rows


def default_trace():
    """Continuous knobs only; a constant of a family for other knobs is free to change."""
    tuner = Tuner(
        {"rate": Float(1e-3, 1.0, log=True), "timeout": Float(0.1, 10.0)},
        {"ms": "min", "tps": Metric("max", weight=0.5)},
        context=["load"],
        default={"rate": 0.1, "timeout": 2.0},
        seed=42,
    )
    rows = []
    for t in range(60):
        phase = t // 15 % 2
        s = tuner.ask({"load": phase + 0.05 * np.sin(7 * t)})
        if t % 25 == 24:
            tuner.tell_failed(s.id, "crash")
        else:
            ms = (s.params["timeout"] - 1 - 5 * phase) ** 2
            tuner.tell(s.id, {"ms": ms, "tps": -((np.log10(s.params["rate"]) + 2 - phase) ** 2) + 0.01 * np.cos(t)})
        why = tuner.explain(s.id)
        rows.append({**s.params, "error": why.error, "source": why.source, "path": why.path, "expert": why.expert})
    return rows


def test_the_trace_of_preset_default_is_the_recorded_one():
    recorded = json.loads((HERE / "default.json").read_text())
    for step, (now, then) in enumerate(zip(default_trace(), recorded, strict=True)):
        for column, value in then.items():
            expected = pytest.approx(value, rel=1e-4, abs=1e-6) if isinstance(value, float) else value
            assert now[column] == expected, (step, column)  # loose: errors of rounding feed back into the choices


@pytest.mark.parametrize("name", TRACES)
def test_trace_is_the_recorded_one(name):
    recorded = json.loads((HERE / f"{name}.json").read_text())
    assert {row["path"] for row in recorded} == ({"fast"} if name == "paper" else {"fast", "slow"})
    for step, (now, then) in enumerate(zip(trace(TRACES[name]), recorded, strict=True)):
        for column, value in then.items():
            if isinstance(value, float):
                assert now[column] == pytest.approx(value, rel=1e-7, abs=1e-9), (step, column)
            else:
                assert now[column] == value, (step, column)


if __name__ == "__main__":
    for name, preset in TRACES.items():
        (HERE / f"{name}.json").write_text(json.dumps(trace(preset), indent=0) + "\n")
    (HERE / "default.json").write_text(json.dumps(default_trace(), indent=0) + "\n")
