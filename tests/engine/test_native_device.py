"""The C files of the quadratic family are also compiled for GPUs: as C++, all of them as one file, for one size."""

import shutil
import subprocess
from pathlib import Path

import pytest

from rasp_tuner.engine.kernel.build import SOURCES

CPP = shutil.which("c++") or shutil.which("g++") or shutil.which("clang++")
SIZES = {"none": (), "small": (5, 3, 1), "without context": (1, 0, 2), "large": (64, 768, 3)}


@pytest.mark.skipif(CPP is None, reason="no C++ compiler")
@pytest.mark.parametrize("size", SIZES.values(), ids=SIZES.keys())
def test_the_c_files_together_are_cpp(size: tuple[int, ...], tmp_path: Path):
    """No arrays of variable length, no conversions that only C has, and no name twice."""
    files = [file for file in sorted(SOURCES.glob("*.c")) if not file.name.startswith("discrete_")]
    whole = tmp_path / "whole.cpp"
    whole.write_text("".join(f'#include "{file}"\n' for file in files))
    names = ("RASP_KNOBS", "RASP_CONTEXT", "RASP_COLUMNS")
    given = [f"-D{name}={value}" for name, value in zip(names, size, strict=False)]
    command = [CPP, "-std=c++20", "-fsyntax-only", "-pedantic-errors", "-Werror=vla", *given, str(whole)]
    if not size:  # vectors of GCC, which no GPU has
        command.remove("-pedantic-errors")
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
