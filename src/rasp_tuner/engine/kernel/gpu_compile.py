"""The kernel's C files compiled for a GPU, for tuners of one size, by NVRTC, which comes with torch.

Compiling takes a while: the image is kept in the user's cache folder, under a name that says what it was made of.
"""

import ctypes
import hashlib
import os
import re
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from rasp_tuner.engine.kernel.build import SOURCES
from rasp_tuner.engine.kernel.state import Dims

MAIN = "device.cu"
HEADERS = ("constants.h", "kernel.h", "linear.h")  # that the files it includes include
# no multiplication is fused with an addition: a CPU's are not, and results shall be the same to rounding
OPTIONS = ("--std=c++20", "--device-as-default-execution-space", "--fmad=false", "--diag-suppress=161")
PRELUDE = """
typedef long long int64_t;
typedef unsigned long long uint64_t;
#define NULL 0
#define INFINITY __longlong_as_double(0x7ff0000000000000LL)
static inline void memmove(double *to, const double *from, size_t size) { /* towards the front */
    for (size_t i = 0; i < size / sizeof(double); i++) to[i] = from[i];
}
"""
STANDARD_HEADERS = ("math.h", "stdbool.h", "stddef.h", "stdint.h", "stdlib.h", "string.h")  # NVRTC has them built in


class CompileError(RuntimeError):
    """There is no NVRTC, or it failed."""


class CompiledPart(NamedTuple):
    """Some functions of native/device.cu, which are compiled together."""

    number: int
    lanes: int  # that work on a tuner together
    numbers: int  # of scratch memory that these have


def image(dims: Dims, part: CompiledPart, threads: int, capability: tuple[int, int], cuda: str) -> bytes:
    """Machine code for a GPU of this compute capability; `cuda` is the version that torch was built for."""
    options = [f"--gpu-architecture=sm_{capability[0]}{capability[1]}", *OPTIONS]
    sizes = {
        "KNOBS": dims.knobs, "CONTEXT": dims.context, "COLUMNS": dims.columns,
        "PART": part.number, "LANES": part.lanes, "THREADS": threads, "NUMBERS": part.numbers,
    }  # fmt: skip
    options += [f"-DRASP_{name}={value}" for name, value in sizes.items()]
    made_of = [cuda, PRELUDE, *options, *(f"{name}\0{text}" for name, text in _sources().items())]
    kept = _cache() / f"kernel-{hashlib.sha256(chr(0).join(made_of).encode()).hexdigest()[:32]}.cubin"
    try:
        return kept.read_bytes()
    except OSError:
        made = _compile(_nvrtc(cuda), options)
    with suppress(OSError):  # no folder to write to: it is compiled again next time
        _keep(kept, made)
    return made


@lru_cache
def _sources() -> dict[str, str]:
    """Text by name: what is compiled, and what it includes."""
    main = SOURCES / MAIN
    if not main.exists():
        raise CompileError("the C files are not installed")
    files = [SOURCES / name for name in re.findall(r'#include "(\w+\.[ch])"', main.read_text(encoding="utf-8"))]
    files = [main, *files, *(SOURCES / name for name in HEADERS)]
    return {file.name: file.read_text(encoding="utf-8") for file in files}


def _cache() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "rasp-tuner"


def _keep(file: Path, content: bytes) -> None:
    """At once: another process may be doing the same."""
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=file.parent)
    with os.fdopen(handle, "wb") as fresh:
        fresh.write(content)
    Path(name).replace(file)


@lru_cache
def _nvrtc(cuda: str) -> ctypes.CDLL:
    for name in _places(cuda.split(".", maxsplit=1)[0]):
        try:
            return ctypes.CDLL(name)
        except OSError:
            continue
    raise CompileError(f"no NVRTC for CUDA {cuda}")


def _places(major: str) -> Iterator[str]:
    """Where the library may be: known to the system or loaded already; or in a package that torch depends on."""
    name = f"libnvrtc.so.{major}"
    yield name
    try:
        import nvidia  # type: ignore[import-not-found]
    except ImportError:
        return
    for folder in nvidia.__path__:
        yield from map(str, sorted(Path(folder).glob(f"*/lib/{name}")))


def _compile(nvrtc: ctypes.CDLL, options: list[str]) -> bytes:
    sources = dict(_sources())
    main = PRELUDE + sources.pop(MAIN)
    included = {**sources, **dict.fromkeys(STANDARD_HEADERS, "\n")}
    names, texts = (_strings(list(those)) for those in (included, included.values()))
    program, size = ctypes.c_void_p(), ctypes.c_size_t()
    _checked(nvrtc, nvrtc.nvrtcCreateProgram(
        ctypes.byref(program), main.encode(), MAIN.encode(), len(included), texts, names
    ))  # fmt: skip
    try:
        if nvrtc.nvrtcCompileProgram(program, len(options), _strings(options)):
            nvrtc.nvrtcGetProgramLogSize(program, ctypes.byref(size))
            log = ctypes.create_string_buffer(size.value)
            nvrtc.nvrtcGetProgramLog(program, log)
            raise CompileError(f"NVRTC failed: {log.value.decode(errors='replace')[-1000:]}")
        _checked(nvrtc, nvrtc.nvrtcGetCUBINSize(program, ctypes.byref(size)))
        made = ctypes.create_string_buffer(size.value)
        _checked(nvrtc, nvrtc.nvrtcGetCUBIN(program, made))
        return made.raw
    finally:
        nvrtc.nvrtcDestroyProgram(ctypes.byref(program))


def _strings(texts: list[str]) -> ctypes.Array[ctypes.c_char_p]:
    return (ctypes.c_char_p * len(texts))(*(text.encode() for text in texts))


def _checked(nvrtc: ctypes.CDLL, code: int) -> None:
    if code:
        nvrtc.nvrtcGetErrorString.restype = ctypes.c_char_p
        raise CompileError(f"NVRTC failed: {nvrtc.nvrtcGetErrorString(code).decode()}")
