"""Chunks: what is done to many tuners is done to some at a time, on all cores; each tuner's result is its own."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import TypeVar

from rasp_tuner.base.threads import one_thread
from rasp_tuner.engine.kernel.masks import span
from rasp_tuner.engine.kernel.state import Places
from rasp_tuner.fleet.device import Device
from rasp_tuner.fleet.tuners import Tuners

Result = TypeVar("Result")


class Chunks:
    """Calls a function for some tuners after the other, or side by side."""

    def __init__(self, device: Device) -> None:
        self._device, self._workers = device, device.workers  # the same as long as beliefs of an ask are kept

    def parts(self, rows: Places) -> list[slice]:
        """Of the positions in a call: as many to each as are computed together, but work for every thread."""
        size, most, few = len(rows), self._device.most_tuners, self._device.few_tuners
        count = max(-(-size // most), min(-(-size // few), self._workers))
        ends = [size * i // count for i in range(count + 1)] if count else [0]
        return [slice(a, b) for a, b in pairwise(ends)]

    def run(
        self, change: Callable[[Tuners, slice], Result], tuners: Tuners, rows: Places, keep: str = "nothing"
    ) -> list[Result]:
        """What `change` gives for each chunk: it gets the tuners, and where their rows are among the arguments.

        keep  which of its changes of the bookkeeping are kept: "nothing", "records" or "all"
        """

        def one(part: slice) -> Result:
            at = span(rows[part])
            taken = tuners.some(at)
            with self._device.queue(), one_thread():
                result = change(taken, part)
            if keep != "nothing":
                tuners.put(at, taken, only_records=keep == "records")
            return result

        parts = self.parts(rows)
        if len(parts) < 2 or self._workers < 2:
            return [one(part) for part in parts]
        with ThreadPoolExecutor(self._workers) as pool:
            return list(pool.map(one, parts))
