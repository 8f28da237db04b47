"""Chunks: what is done to many tuners is done to some at a time, on all cores; each tuner's result is its own."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import TypeVar

from rasp_tuner.core.threads import one_thread
from rasp_tuner.engine.kernel.backend import Kernel
from rasp_tuner.fleet.device import Device
from rasp_tuner.fleet.inputs import Rows
from rasp_tuner.fleet.tuners import Tuners

Result = TypeVar("Result")


class Chunks:
    """Calls a function for some tuners after the other, or side by side."""

    def __init__(self, device: Device, kernel: Kernel) -> None:
        self._device, self._kernel = device, kernel

    def parts(self, rows: Rows) -> list[slice]:
        """Of the positions in a call: as many to each as are computed together."""
        size, most = len(rows), self._device.chunk
        count = -(-size // most)
        ends = [size * i // count for i in range(count + 1)] if count else [0]
        return [slice(a, b) for a, b in pairwise(ends)]

    def run(
        self, change: Callable[[Tuners, slice], Result], tuners: Tuners, rows: Rows, keep: str = "nothing"
    ) -> list[Result]:
        """What `change` gives for each chunk: it gets the tuners, and where their rows are among the arguments.

        keep  which of its changes of the tuners are kept: "nothing", "records" or "all"
        """

        def one(part: slice) -> Result:
            at = self._device.span(rows[part])
            whole = isinstance(at, slice) and len(rows[part]) == tuners.size and not self._kernel.takes_rows
            if whole:  # then views would be of all of it, and nothing is to be put back
                taken = tuners if keep == "all" else tuners.map(lambda array: array)
            else:
                taken = tuners.take_beside(rows[part]) if self._kernel.takes_rows else tuners.take(at)
            with one_thread():
                result = change(taken, part)
            if keep != "nothing" and not whole:
                tuners.put(at, taken, only_records=keep == "records")
            return result

        parts = self.parts(rows)
        if len(parts) < 2 or self._device.workers < 2:
            return [one(part) for part in parts]
        with ThreadPoolExecutor(self._device.workers) as pool:
            return list(pool.map(one, parts))
