"""Where a fleet computes, and how arrays get there and back."""

import os
from typing import Any

import numpy as np

from rasp_tuner.core.checks import show
from rasp_tuner.core.numerics import Array
from rasp_tuner.engine.kernel.state import Tensor
from rasp_tuner.errors import InvalidSpace, MissingExtra

MOST_LOCKED = 1 << 26  # bytes of one array that are locked in memory to be read from a GPU
CPU_CHUNK, TORCH_CHUNK = 250, 131_072  # tuners computed together: as many as a cache holds; as many as memory allows


class Device:
    """One of "cpu" (NumPy, or compiled code), "cuda", "cuda:1", ..., and "torch-cpu", which is for tests.

    threads  that it may use at most; None: one for each core
    """

    def __init__(self, name: object, threads: int | None = None) -> None:
        known = isinstance(name, str) and (name in ("cpu", "torch-cpu", "cuda") or name.startswith("cuda:"))
        if not isinstance(name, str) or not known:
            raise InvalidSpace(f"device must be 'cpu', 'cuda' or 'cuda:' and a number, got {show(name)}")
        self.name, self._threads = name, threads
        self._torch: Any = None
        if name != "cpu":
            try:
                import array_api_compat.torch  # noqa: F401
                import torch
            except ImportError as reason:
                raise MissingExtra(
                    f"device={name!r} needs torch and array-api-compat: pip install 'rasp-tuner[fleet]'"
                ) from reason
            if name != "torch-cpu" and not torch.cuda.is_available():
                raise InvalidSpace(f"device={name!r}: torch finds no GPU here; device='cpu' works everywhere")
            self._torch = torch
        self._place = "cpu" if name == "torch-cpu" else name

    @property
    def chunk(self) -> int:
        """Tuners that are computed together."""
        return CPU_CHUNK if self._torch is None else TORCH_CHUNK

    @property
    def workers(self) -> int:
        """Threads that compute chunks side by side; a GPU has its own."""
        if self._torch is not None:
            return 1
        return _cores() if self._threads is None else min(self._threads, _cores())

    def put(self, given: Any) -> Tensor:
        """Anything array-like as float64 there; a new array."""
        if self._torch is None:
            return np.array(given.cpu() if is_tensor(given) else given, dtype=np.float64)
        if not isinstance(given, self._torch.Tensor):
            given = np.require(given, np.float64, "W")
        return self._torch.as_tensor(given).to(device=self._place, dtype=self._torch.float64, copy=True)

    def index(self, rows: Any) -> Tensor:
        """Positions as an index there."""
        return rows if self._torch is None else self._torch.as_tensor(rows, device=self._place)

    def span(self, rows: Any) -> Any:
        """The same; of neighbours a slice, which takes no copies."""
        if len(rows) and rows[-1] - rows[0] == len(rows) - 1 and bool((np.diff(rows) == 1).all()):
            return slice(int(rows[0]), int(rows[-1]) + 1)
        return self.index(rows)


def is_tensor(given: object) -> bool:
    """Whether it is torch's, without importing torch."""
    return hasattr(given, "cpu")


def host(array: Tensor) -> Array:
    """The array in NumPy."""
    if isinstance(array, np.ndarray):
        return array
    if array.is_cuda and array.nbytes <= MOST_LOCKED:
        import torch

        locked = torch.empty(array.shape, dtype=array.dtype, pin_memory=True)  # a GPU writes there at full speed
        return np.asarray(locked.copy_(array).numpy())
    return np.asarray(array.cpu().numpy())


def _cores() -> int:
    """That this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
