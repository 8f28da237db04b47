"""Tuners and a data folder as an earlier version left them, and how that version went on from there.

Uses public names only, so that the same script records under one version and is replayed under another.
Record with the version to be remembered: python tests/compatibility/scenarios.py FOLDER
"""

import json
import math
import sys
from pathlib import Path

from rasp_tuner import Categorical, Float, Int, Metric, Tuner, presets

BEFORE, AFTER = 40, 40  # steps before the snapshot, and after it

SMOOTH = {"rate": Float(1e-3, 1.0, log=True), "timeout": Float(0.1, 10.0)}
DISCRETE = {"pool": Int(1, 16), "codec": Categorical(["lz4", "zstd", "none"]), "sync": Categorical([True, False])}
MIXED = {"pool": Int(1, 64, log=True), "timeout": Float(0.1, 10.0), "codec": Categorical(["lz4", "zstd"])}
SMALL_PAPER = presets.paper(hidden_1=12, hidden_2=8, gate_hidden=8, prompt_dim=8)  # small files

SCENARIOS = {
    "smooth": (SMOOTH, {}),
    "discrete": (DISCRETE, {}),
    "mixed_guarded": (MIXED, {"guard": 0.2, "switching_cost": 0.05, "seed": 4}),
    "screened": (SMOOTH, {"screen": True}),
    "paper": (MIXED, {"preset": SMALL_PAPER}),
}


def new_tuner(name):
    space, settings = SCENARIOS[name]
    metrics = {"ms": "min", "tps": Metric("max", weight=0.5)}
    return Tuner(space, metrics, context=["load"], **{"seed": 3, **settings})


def measure(params, t):
    """What a made-up system answers at step t."""
    phase = t // 10 % 2
    ms = 20.0 + abs(params.get("timeout", 2.0) - 1.0 - 4.0 * phase) + 3.0 * (params.get("codec") == "zstd")
    ms += 0.2 * abs(params.get("pool", 8) - (12 if phase else 4)) + 0.3 * math.sin(3.7 * t)
    tps = 100.0 - (math.log10(params.get("rate", 0.1)) + 2.0 - phase) ** 2 + 0.1 * math.cos(5.1 * t)
    return {"ms": ms, "tps": tps}


def steps(tuner, first, count):
    """What it suggested, and with which reason, step by step."""
    seen = []
    for t in range(first, first + count):
        context = {"load": t // 10 % 2 + 0.05 * math.sin(7 * t)}
        s = tuner.ask(context)
        tuner.tell(s.id, measure(s.params, t))
        why = tuner.explain(s.id)
        seen.append({"params": s.params, "source": why.source, "error": why.error, "predicted": why.predicted})
        seen[-1]["recommended"] = tuner.recommend(context)
    return seen


def main(folder):
    folder.mkdir(parents=True, exist_ok=True)
    for name in SCENARIOS:
        tuner = new_tuner(name)
        steps(tuner, 0, BEFORE)
        waiting = tuner.ask({"load": 0.5})  # a suggestion that is still out when it is saved
        tuner.save(folder / f"{name}.rasp")
        tuner.tell(waiting.id, measure(waiting.params, 0))
        went_on = steps(tuner, BEFORE, AFTER)
        paths = {tuner.explain(f"s{i}").path for i in range(BEFORE, BEFORE + AFTER + 1)}
        print(name, paths)
        (folder / f"{name}.json").write_text(json.dumps({"waiting": waiting.id, "steps": went_on}, indent=0) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
