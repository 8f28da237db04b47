"""Where a fleet computes: on the cores of this machine, or on a GPU."""

import os
from collections.abc import Iterator
from contextlib import contextmanager

from rasp_tuner.base.checks import show
from rasp_tuner.base.numerics import Array
from rasp_tuner.engine.kernel.batch import Batch
from rasp_tuner.engine.kernel.gpu_compile import CompileError
from rasp_tuner.engine.kernel.learn import start
from rasp_tuner.engine.kernel.native_batch import host_batch
from rasp_tuner.engine.kernel.state import Dims, blank
from rasp_tuner.errors import InvalidSpace, MissingExtra

CPU_CHUNK, GPU_CHUNK = 500, 16_384  # tuners computed together: more bring nothing; as many as fill a GPU
CPU_THREAD_FROM, GPU_THREAD_FROM = 250, 16_384  # tuners that are worth one more thread
GPU_WORKERS = 8  # more wait for one another's Python


class Device:
    """One of "cpu", "cuda", "cuda:1", ...

    threads  that it may use at most; None: one for each core
    """

    def __init__(self, name: object, threads: int | None = None) -> None:
        if not isinstance(name, str) or not (name in ("cpu", "cuda") or name.startswith("cuda:")):
            raise InvalidSpace(f"device must be 'cpu', 'cuda' or 'cuda:' and a number, got {show(name)}")
        self.name, self._threads, self._on_gpu = name, threads, name != "cpu"
        if self._on_gpu:
            try:
                import torch
            except ImportError as reason:
                raise MissingExtra(f"device={name!r} needs torch: pip install 'rasp-tuner[fleet]'") from reason
            if not torch.cuda.is_available():
                raise InvalidSpace(f"device={name!r}: torch finds no GPU here; device='cpu' works everywhere")

    @property
    def most_tuners(self) -> int:
        """That are computed together."""
        return GPU_CHUNK if self._on_gpu else CPU_CHUNK

    @property
    def few_tuners(self) -> int:
        """Up to so many are computed together even where another thread is idle."""
        return GPU_THREAD_FROM if self._on_gpu else CPU_THREAD_FROM

    @property
    def workers(self) -> int:
        """Threads that compute chunks side by side: around a GPU, what is done on the host."""
        cores = _cores() if self._threads is None else min(self._threads, _cores())
        return min(cores, GPU_WORKERS) if self._on_gpu else cores

    @contextmanager
    def queue(self) -> Iterator[None]:
        """Around what one worker computes: on a GPU it has a stream of its own, which is empty in the end."""
        if not self._on_gpu:
            yield
            return
        import torch

        stream: torch.cuda.Stream = torch.cuda.Stream(self.name)  # type: ignore[no-untyped-call]
        with torch.cuda.stream(stream):
            yield
        stream.synchronize()

    def batch(self, dims: Dims, default: Array, size: int) -> Batch:
        """Tuners that know nothing, there."""
        if not self._on_gpu:
            return host_batch(dims, default, blank(dims, size, start(dims)))
        from rasp_tuner.engine.kernel import gpu  # with extra `fleet`

        try:
            return gpu.blank_batch(dims, default, size, self.name)
        except CompileError as reason:
            raise InvalidSpace(f"device={self.name!r}: {reason}; device='cpu' works everywhere") from reason


def _cores() -> int:
    """That this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
