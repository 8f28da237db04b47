"""C files of the quadratic family are also compiled for GPUs: as C++, those of device.cu as one, for one size."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from rasp_tuner.engine.kernel import gpu_compile
from rasp_tuner.engine.kernel.build import SOURCES
from rasp_tuner.engine.kernel.gpu_compile import CompiledPart, CompileError, image
from rasp_tuner.engine.kernel.state import Dims

CPP = shutil.which("c++") or shutil.which("g++") or shutil.which("clang++")
SIZES = {"none": (), "small": (5, 3, 1), "without context": (1, 0, 2), "large": (64, 768, 3)}
NAMES = ("RASP_KNOBS", "RASP_CONTEXT", "RASP_COLUMNS")
GPU_WORDS = """
#include <math.h>
#include <stdint.h>
#include <string.h>
struct Place { unsigned x; };
extern const Place blockIdx, blockDim, threadIdx;
#define __global__
#define __shared__
#define __launch_bounds__(...)
void __trap(), __syncwarp();
template <class T> T __shfl_sync(unsigned, T, int);
template <class T> T __shfl_xor_sync(unsigned, T, int);
unsigned __ballot_sync(unsigned, bool), __funnelshift_r(unsigned, unsigned, int);
int __ffs(int);
"""
DIMS = Dims(2, 1, 1)


def accepts(text: str, folder: Path, *options: str) -> str | None:
    """What a C++ compiler has against it."""
    whole = folder / "whole.cpp"
    whole.write_text(text)
    command = [str(CPP), "-std=c++20", "-fsyntax-only", "-Werror=vla", "-Wno-unknown-pragmas", *options, str(whole)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stderr[-2000:] if done.returncode else None


@pytest.mark.skipif(CPP is None, reason="no C++ compiler")
@pytest.mark.parametrize("size", SIZES.values(), ids=SIZES.keys())
def test_the_c_files_together_are_cpp(size: tuple[int, ...], tmp_path: Path):
    """No arrays of variable length, no conversions that only C has, and no name twice."""
    files = [SOURCES / name for name in re.findall(r'#include "(\w+\.c)"', (SOURCES / gpu_compile.MAIN).read_text())]
    assert len(files) > 10
    given = [f"-D{name}={value}" for name, value in zip(NAMES, size, strict=False)]
    strict = ["-pedantic-errors"] if size else []  # else with vectors of GCC, which no GPU has
    assert accepts("".join(f'#include "{file}"\n' for file in files), tmp_path, *strict, *given) is None


@pytest.mark.skipif(CPP is None, reason="no C++ compiler")
@pytest.mark.parametrize(("part", "lanes"), [(0, 32), (1, 1), (2, 1), (3, 1)])  # as gpu.py compiles them
def test_every_part_for_gpus_is_cpp(part: int, lanes: int, tmp_path: Path):
    given = [f"-D{name}={value}" for name, value in zip(NAMES, (5, 3, 1), strict=True)]
    own = [f"-DRASP_PART={part}", f"-DRASP_LANES={lanes}", "-DRASP_THREADS=32", "-DRASP_NUMBERS=100"]
    text = GPU_WORDS + (SOURCES / gpu_compile.MAIN).read_text()
    assert accepts(text, tmp_path, f"-I{SOURCES}", *given, *own) is None


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[list[str]]:
    """Options of each time that something was compiled; the cache is a folder of the test's own."""
    calls: list[list[str]] = []

    def compile_(_: object, options: list[str]) -> bytes:
        calls.append(options)
        return b"code" + str(len(calls)).encode()

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(gpu_compile, "_nvrtc", lambda _: None)
    monkeypatch.setattr(gpu_compile, "_compile", compile_)
    return calls


def test_an_image_is_compiled_once_for_each_size_and_gpu(compiled: list[list[str]]):
    part = CompiledPart(0, 32, 100)
    first = image(DIMS, part, 32, (9, 0), "13.0")
    assert image(DIMS, part, 32, (9, 0), "13.0") == first
    assert len(compiled) == 1
    assert "--gpu-architecture=sm_90" in compiled[0]
    assert "-DRASP_KNOBS=2" in compiled[0]
    others = [(Dims(3, 1, 1), (9, 0), "13.0"), (DIMS, (8, 0), "13.0"), (DIMS, (9, 0), "12.8")]
    assert len({image(dims, part, 32, capability, cuda) for dims, capability, cuda in others} | {first}) == 4


def test_without_a_folder_to_write_to_an_image_is_compiled_every_time(
    compiled: list[list[str]], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    for _ in range(2):
        image(DIMS, CompiledPart(0, 32, 100), 32, (9, 0), "13.0")
    assert len(compiled) == 2


def test_without_nvrtc_the_reason_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with pytest.raises(CompileError, match="no NVRTC for CUDA 99"):
        image(DIMS, CompiledPart(0, 32, 100), 32, (9, 0), "99.0")
