"""FairPool: threads that callers share. Each caller has one at a time, and those who wait take turns."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any


class FairPool:
    """For one event loop."""

    def __init__(self, threads: int, name: str) -> None:
        self._threads = ThreadPoolExecutor(threads, name)
        self._free = asyncio.Semaphore(threads)  # serves those who wait in their order: of each caller the first
        self._turns: dict[str, asyncio.Lock] = {}  # of callers with jobs
        self._jobs: dict[str, int] = {}  # that each of them has

    async def run(self, caller: str, job: Callable[[], Any]) -> Any:
        """The result of the job, or what it raised."""
        turn = self._turns.setdefault(caller, asyncio.Lock())
        self._jobs[caller] = self._jobs.get(caller, 0) + 1
        try:
            async with turn, self._free:
                return await asyncio.get_running_loop().run_in_executor(self._threads, job)
        finally:
            self._jobs[caller] -= 1
            if not self._jobs[caller]:
                del self._jobs[caller], self._turns[caller]

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)
