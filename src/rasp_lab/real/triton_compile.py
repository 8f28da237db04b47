"""Compiling many Triton programs at once. Importing it needs Triton."""

import atexit
import os
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from typing import Any

import triton

MOST_PROCESSES = 12  # that compile; each holds some hundred MB of the GPU's memory

Settings = Mapping[str, Any]
WarmUp = Callable[[Settings], None]  # compiles and does not run; a function of a module, so that processes can load it


def compile_programs(warm_up: WarmUp, small: Settings, programs: Sequence[Settings]) -> list[tuple[float, str | None]]:
    """How many milliseconds each program took to compile, and why it cannot be compiled.

    `small` is a program outside of the space: with it a process loads the compiler before it is timed.
    """
    # A cache of its own: what an earlier process compiled would seem to take no time.
    cache = tempfile.TemporaryDirectory(prefix="rasp-triton-")
    atexit.register(cache.cleanup)  # runs of other seeds load the programs from it
    os.environ["TRITON_CACHE_DIR"] = cache.name
    processes = min(MOST_PROCESSES, os.cpu_count() or 1)
    print(f"compiling {len(programs)} programs in {processes} processes ...", flush=True)
    with ProcessPoolExecutor(processes, get_context("spawn"), warm_up, (small,)) as pool:
        return list(pool.map(partial(_compile, warm_up), programs))


def _compile(warm_up: WarmUp, params: Settings) -> tuple[float, str | None]:
    began = time.perf_counter()
    try:
        warm_up(params)
        fault = None
    except (triton.TritonError, RuntimeError) as error:  # of the compiler's passes: nothing runs here
        fault = f"not compiled: {error}"
    return 1000.0 * (time.perf_counter() - began), fault
