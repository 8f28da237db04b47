"""Seven programs that people tune, each with data that it makes itself: what `rasp tune` gets, and a grid to check it.

Runs are short (0.05 to 0.5 s), so that a study takes one to three minutes.
"""

import importlib.util
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from rasp_tuner.space import Value

SOURCES = Path(__file__).parent / "programs"
PYTHON = sys.executable


@dataclass(frozen=True)
class RealStudy:
    """One program: what it needs, its data, the study in the words of a study file, and a small grid of settings."""

    name: str
    needs: Callable[[], str]  # what is missing, in words; empty: nothing
    prepare: Callable[[Path], None]  # writes data into a folder
    fields: Mapping[str, Any]
    grid: Mapping[str, tuple[Value, ...]]  # all combinations are run; other knobs are at their defaults
    env: Mapping[str, str] = field(default_factory=dict)  # for `rasp tune` itself; {folder} is the study's


def programs_needed(*names: str) -> Callable[[], str]:
    def missing() -> str:
        gone = [name for name in names if shutil.which(name) is None]
        return f"no program {', '.join(gone)} here" if gone else ""

    return missing


def packages_needed(*names: str) -> Callable[[], str]:
    def missing() -> str:
        gone = [name for name in names if importlib.util.find_spec(name) is None]
        return f"not installed here: {', '.join(gone)} (pip install {' '.join(gone)})" if gone else ""

    return missing


def locale_missing() -> str:
    if found := programs_needed("sort", "localedef")():
        return found
    return "" if Path("/usr/share/i18n/locales/en_US").is_file() else "no source of en_US here (package locales)"


def words(rng: np.random.Generator, count: int) -> list[str]:
    """Words of four to eleven letters, some of them capital."""
    letters = np.array(list("eeeeaaaiioontrslcdumphgbfywkvxzqjEATS"))
    return ["".join(rng.choice(letters, size)) for size in rng.integers(4, 12, count)]


def write_lines(folder: Path) -> None:
    rng = np.random.default_rng(1)
    known = np.array(words(rng, 4000))
    lines = (
        f"{a} {b} {n}" for a, b, n in zip(*rng.choice(known, (2, 60_000)), rng.integers(1000, size=60_000), strict=True)
    )
    (folder / "lines.txt").write_text("\n".join(lines) + "\n")
    made = folder / "locale" / "en_US.UTF-8"
    if not made.is_dir():
        made.parent.mkdir()
        subprocess.run(["/usr/bin/env", "localedef", "-i", "en_US", "-f", "UTF-8", made], check=True)


def write_texts(folder: Path) -> None:
    rng = np.random.default_rng(2)
    known = np.array(words(rng, 900))
    (folder / "page.txt").write_text(" ".join(rng.choice(known, 22_000)))
    walk = np.cumsum(rng.integers(-3, 4, 90_000)).astype(np.int16)
    (folder / "signal.bin").write_bytes(walk.tobytes())


def write_sources(folder: Path) -> None:
    for name in ("dot", "bytes", "short"):
        shutil.copy(SOURCES / f"{name}.c", folder)


def write_sales(folder: Path, rows: int = 120_000) -> None:
    rng = np.random.default_rng(3)
    shop, day = rng.integers(50, size=rows).tolist(), rng.integers(365, size=rows).tolist()
    price = rng.gamma(2.0, 10.0, rows).tolist()
    lines = (f"{i},shop number {s},{d},{p:.6f}" for i, (s, d, p) in enumerate(zip(shop, day, price, strict=True)))
    (folder / "sales.csv").write_text("id,shop,day,price\n" + "\n".join(lines) + "\n")


def write_tables(folder: Path) -> None:
    rng = np.random.default_rng(4)
    for name, rows, columns in (("small", 1500, 8), ("wide", 6000, 60)):
        x = rng.normal(size=(rows, columns))
        y = np.sin(2.0 * x[:, 0]) + x[:, 1] * x[:, 2] + 0.3 * rng.normal(size=rows)
        np.save(folder / f"{name}.npy", np.column_stack([x, y]))


def write_film(folder: Path) -> None:
    """Sixty frames of 320 x 180: a pattern that moves, with some grain."""
    rng = np.random.default_rng(5)
    down, across = np.mgrid[0:180, 0:320]
    with (folder / "film.yuv").open("wb") as file:
        for frame in range(60):
            wave = 60 * np.sin((across + 3 * frame) / 17.0) + 50 * np.cos((down - 2 * frame) / 11.0)
            box = 80 * ((abs(across - 5 * frame) < 30) & (abs(down - 90) < 25))
            light = np.clip(110 + wave + box + rng.normal(0, 3, down.shape), 16, 235).astype(np.uint8)
            file.write(light.tobytes() + np.full(2 * 90 * 160, 128, np.uint8).tobytes())


STUDIES = (
    RealStudy(
        "sort",
        locale_missing,
        write_lines,
        {
            "command": ["sort", "-S", "{buffer}K", "--parallel={threads}", "lines.txt"],
            "knobs": {"locale": "cat:en_US.UTF-8,C", "buffer": "pow2:256..65536", "threads": "int:1..8"},
            "default": {"locale": "en_US.UTF-8", "buffer": 1024, "threads": 2},
            "env": {"LC_ALL": "{locale}"},
            "metrics": {"time_s": "min"},
            "steps": 40,
        },
        {"locale": ("en_US.UTF-8", "C"), "buffer": (256, 1024, 4096, 65536), "threads": (1, 2, 8)},
        {"LOCPATH": "{folder}/locale"},
    ),
    RealStudy(
        "brotli",
        packages_needed("brotli"),
        write_texts,
        {
            "command": [PYTHON, "compress.py", "{quality}", "{window}", "{mode}", "{input}"],
            "knobs": {"quality": "int:0..11", "window": "int:10..24", "mode": "cat:generic,text,font"},
            "default": {"quality": 11, "window": 22, "mode": "generic"},
            "metrics": {"compress_s": "min=json:compress_s", "size": "min<=1.2 default=json:size"},
            "inputs": ["page.txt", "signal.bin"],
            "steps": 60,
        },
        {"quality": tuple(range(12)), "window": (16, 22), "mode": ("generic", "text")},
    ),
    RealStudy(
        "gcc",
        programs_needed("gcc"),
        write_sources,
        {
            "command": [
                *(PYTHON, "compile_and_run.py", "{scratch}", "{input}"),
                *("{level}", "{math}", "{cpu}", "{loops}", "{without}"),
            ],
            "knobs": {
                "level": "cat:-O2,-O1,-O3,-Os",
                "math": "cat:,-ffast-math",
                "cpu": "cat:,-march=native",
                "loops": "cat:,-funroll-loops",
                "without": "cat:,-fno-tree-vectorize,-fno-inline",
            },
            "default": {"level": "-O2", "math": "", "cpu": "", "loops": "", "without": ""},
            "metrics": {"run_s": "min=json:run_s"},
            "inputs": ["bytes.c", "dot.c", "short.c"],
            "steps": 72,
        },
        {
            "level": ("-O2", "-O3"),
            "math": ("", "-ffast-math"),
            "cpu": ("", "-march=native"),
            "loops": ("", "-funroll-loops"),
            "without": ("", "-fno-tree-vectorize"),
        },
    ),
    RealStudy(
        "lightgbm",
        packages_needed("lightgbm"),
        write_tables,
        {
            "call": "fit:fit",
            "knobs": {
                "bins": "int:15..255:log",
                "leaves": "int:7..63:log",
                "wise": "cat:col,row",
                "threads": "int:1..4",
            },
            "default": {"bins": 255, "leaves": 31, "wise": "col", "threads": 2},
            "metrics": {"cpu_s": "min", "loss": "min<=1.1 default=json:loss"},
            "inputs": ["small.npy", "wide.npy"],
            "steps": 60,
        },
        {"bins": (15, 63, 255), "leaves": (7, 15, 31), "wise": ("col", "row"), "threads": (1, 2)},
    ),
    RealStudy(
        "duckdb",
        packages_needed("duckdb"),
        write_sales,
        {
            "command": [PYTHON, "query.py", "{threads}", "{memory}", "{order}", "sales.csv"],
            "knobs": {"threads": "int:1..8", "memory": "cat:64MB,256MB,1GB", "order": "bool"},
            "default": {"threads": 2, "memory": "1GB", "order": True},
            "metrics": {"query_s": "min=json:query_s"},
            "steps": 40,
        },
        {"threads": (1, 2, 4, 8), "memory": ("64MB", "1GB"), "order": (True, False)},
    ),
    RealStudy(
        "x264",
        programs_needed("x264"),
        write_film,
        {
            "command": [
                *("x264", "--input-res", "320x180", "--fps", "30", "--psnr", "--crf", "23", "--preset", "{preset}"),
                *("--tune", "{tune}", "--threads", "{threads}", "-o", "{scratch}/out.mkv", "film.yuv"),
            ],
            "knobs": {
                "preset": "ordered:ultrafast,superfast,veryfast,faster,fast,medium,slow",
                "tune": "cat:psnr,film,grain,fastdecode",
                "threads": "int:1..4",
            },
            "default": {"preset": "medium", "tune": "psnr", "threads": 2},
            "metrics": {
                "cpu_s": "min",
                "size": "min<=1.15 default=size:{scratch}/out.mkv",
                "psnr": r"max>=0.98 default=regex:Global:([0-9.]+)",
            },
            "steps": 50,
        },
        {
            "preset": ("ultrafast", "superfast", "veryfast", "faster", "fast", "medium"),
            "tune": ("psnr", "fastdecode"),
            "threads": (1, 2),
        },
    ),
    RealStudy(
        "pandas",
        packages_needed("pandas"),
        lambda folder: write_sales(folder, 40_000),
        {
            "call": "read:read",
            "knobs": {
                "engine": "cat:python,c" + (",pyarrow" if importlib.util.find_spec("pyarrow") else ""),
                "shop": "cat:str,category",
                "map": "bool",
                "floats": "cat:usual,high,round_trip",
            },
            "default": {"engine": "python", "shop": "str", "map": False, "floats": "usual"},
            "metrics": {"cpu_s": "min", "total": "min<=1.001 default=json:total"},
            "inputs": ["sales.csv"],
            "steps": 40,
        },
        {"engine": ("python", "c"), "shop": ("str", "category"), "map": (False, True), "floats": ("usual", "high")},
    ),
)


def prepared(study: RealStudy, folder: Path) -> dict[str, str]:
    """Writes a study's data and scripts into a folder; gives the environment of its runs."""
    folder.mkdir(parents=True, exist_ok=True)
    for script in SOURCES.glob("*.py"):
        shutil.copy(script, folder)
    study.prepare(folder)
    own = {name: text.format(folder=folder.resolve()) for name, text in study.env.items()}
    return {**os.environ, **own}
