"""A real program for `rasp demo`: gzip on this machine, as fast as can be with files at most 5% larger."""

import glob
import shutil
from pathlib import Path

import numpy as np

from rasp_tuner.files import snapshot
from rasp_tuner.tune.api import run_study
from rasp_tuner.tune.result import TuneResult
from rasp_tuner.tune.study import StopRules, build_study

LINES = 60_000  # of the log that is compressed, 1.7 MB
STEPS, PAIRS = 24, 8


def tune_gzip(folder: Path) -> TuneResult | None:
    """The result of a study in `folder`, which begins anew; None where there is no gzip."""
    if shutil.which("gzip") is None:
        return None
    items, times = np.random.default_rng(1).integers(1, (500, 1000), (LINES, 2)).T.tolist()
    lines = (f"{i} GET /item/{item} {ms} ms" for i, (item, ms) in enumerate(zip(items, times, strict=True)))
    log = folder / "gzip-input.log"
    snapshot.write(log, "\n".join(lines).encode())
    study = build_study(
        {
            "name": "gzip",
            "shell": "gzip -c -{level} {input} > {scratch}/out.gz",
            "knobs": {"level": "int:1..9"},
            "default": {"level": 6},
            "metrics": {"cpu_s": "min", "size": "min<=1.05 default=size:{scratch}/out.gz"},
            "inputs": (glob.escape(str(log)),),
        }
    )
    return run_study(
        study, StopRules.parse({"steps": STEPS, "time": None, "final": PAIRS}), folder / "gzip", fresh=True
    )
