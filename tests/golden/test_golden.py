"""Golden traces: what a seed did when the trace was recorded, it must do today.

Preset `paper` is compared over its own choices. Those of preset `default` are chaotic: a rounding error in one choice
changes the next sample, and after some dozens of steps two machines differ. So its own choices are compared over twelve
steps. Longer runs are compared with the samples given: then every step starts from the same data, and what it believes
must agree closely.

Record anew, after a change that is meant to change suggestions: python tests/golden/test_golden.py
Names of traces after it record only these.
"""

import json
import sys
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from rasp_tuner import Categorical, Float, Int, Metric, Tuner, presets

HERE = Path(__file__).parent
OWN_STEPS = 12  # of preset `default` on its own
TAUGHT_STEPS, LOOK_EVERY_STEPS = 60, 4
ALL_DIGITS = 12  # as knobs had before version 0.2: their traces are as they were
SMOOTH = {"rate": Float(1e-3, 1.0, log=True, digits=ALL_DIGITS), "timeout": Float(0.1, 10.0, digits=ALL_DIGITS)}
ROUNDED = {"rate": Float(1e-3, 1.0, log=True), "timeout": Float(0.1, 10.0)}
SPACES = {
    "smooth": SMOOTH,
    "discrete": {"pool": Int(1, 5), "codec": Categorical(["lz4", "zstd", "none"]), "cache": Categorical([True, False])},
    "mixed": {
        "pool": Int(1, 9),
        "timeout": Float(0.1, 10.0, digits=ALL_DIGITS),
        "codec": Categorical(["lz4", "zstd"]),
    },
}


def paper_trace(preset):
    tuner = Tuner(
        {
            "pool": Int(1, 64, log=True),
            "timeout": Float(0.1, 10.0, digits=ALL_DIGITS),
            "codec": Categorical(["lz4", "zstd"]),
        },
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


def own_trace(space):
    """Preset `default` on its own; continuous knobs only, a constant of the discrete family is free to change."""
    tuner = Tuner(
        space,
        {"ms": "min", "tps": Metric("max", weight=0.5)},
        context=["load"],
        default={"rate": 0.1, "timeout": 2.0},
        seed=42,
    )
    rows = []
    for t in range(OWN_STEPS):
        phase = t // 4 % 2
        s = tuner.ask({"load": phase + 0.05 * np.sin(7 * t)})
        if t == 9:
            tuner.tell_failed(s.id, "crash")
        else:
            slow, eager = (s.params["timeout"] - 1 - 5 * phase) ** 2, (np.log10(s.params["rate"]) + 2 - phase) ** 2
            tuner.tell(s.id, {"ms": slow + eager, "tps": 0.1 * slow - eager + 0.01 * np.cos(t)})  # both by both knobs
        why = tuner.explain(s.id)
        rows.append({**s.params, "error": why.error, "source": why.source, "expert": why.expert})
    return rows


def taught_trace(space):
    """What preset `default` believes now and then, while it is told of given samples: two situations, a failure early
    and late, two false measurements."""
    tuner, rng, rows = Tuner(space, {"ms": "min"}, context=["load"], seed=42), np.random.default_rng(7), []
    bottoms = rng.uniform(0.2, 0.8, size=(2, len(space)))
    for t in range(TAUGHT_STEPS):
        phase, unit = t // 10 % 2, rng.uniform(size=len(space))
        context = {"load": phase + 0.05 * rng.normal()}
        params = {name: knob.from_unit(u) for (name, knob), u in zip(space.items(), unit, strict=True)}
        legal = np.array([knob.to_unit(params[name]) for name, knob in space.items()])
        ms = float(((legal - bottoms[phase]) ** 2).sum() + 0.02 * rng.normal()) + 5.0 * (t in (17, 43))
        s = tuner.ask(context)
        if t in (6, 38):
            tuner.tell_failed(s.id, "crash")
            continue
        tuner.observe(context, params, {"ms": ms})
        if t % LOOK_EVERY_STEPS == LOOK_EVERY_STEPS - 1:
            rows.append(_beliefs(tuner, {"load": float(phase)}))
    return rows


def _beliefs(tuner, context):
    why = tuner.explain(tuner.ask(context).id)
    return {
        **{f"recommended {name}": value for name, value in tuner.recommend(context).items()},
        "default": tuner.expected_of_default(context),
        "predicted": why.predicted,
        "deviation": why.deviation,
        "novelty": why.novelty,
        "confidence": why.confidence,
        "entropy": why.entropy,
        "expert": why.expert,
        "gate": list(why.gate),
        "slots": list(why.slots),
    }


PAPER = {
    "paper": presets.paper(),
    "paper_alert": presets.paper(anomaly_threshold=0.3, disagreement_threshold=0.3),  # takes the slow path often
}
TRACES = {
    **{name: partial(paper_trace, preset) for name, preset in PAPER.items()},
    "default_own": partial(own_trace, SMOOTH),
    "default_own_rounded": partial(own_trace, ROUNDED),
    **{f"default_taught_{name}": partial(taught_trace, space) for name, space in SPACES.items()},
}
TOLERANCES = dict.fromkeys(("paper", "paper_alert", "default_own", "default_own_rounded"), (1e-7, 1e-9))  # rel., abs.


def recorded(name):
    return json.loads((HERE / f"{name}.json").read_text())


@pytest.mark.parametrize("name", TRACES)
def test_the_trace_is_the_recorded_one(name):
    relative, absolute = TOLERANCES.get(name, (1e-6, 1e-8))
    for step, (now, then) in enumerate(zip(TRACES[name](), recorded(name), strict=True)):
        assert now.keys() == then.keys()
        for column, value in then.items():
            number = isinstance(value, float) or (isinstance(value, list) and isinstance(value[0], float))
            expected = pytest.approx(value, rel=relative, abs=absolute) if number else value
            assert now[column] == expected, (step, column)


def test_the_paper_traces_take_both_paths():
    assert {row["path"] for row in recorded("paper")} == {"fast"}
    assert {row["path"] for row in recorded("paper_alert")} == {"fast", "slow"}


if __name__ == "__main__":
    for name in sys.argv[1:] or TRACES:
        (HERE / f"{name}.json").write_text(json.dumps(TRACES[name](), indent=0) + "\n")
