"""FairPool: threads that callers share. Each caller has one at a time, and those who wait take turns."""

import asyncio
import functools
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

Waiting = deque[tuple[Callable[[], Any], "asyncio.Future[Any]"]]


class FairPool:
    """For one event loop."""

    def __init__(self, threads: int, name: str) -> None:
        self._threads = ThreadPoolExecutor(threads, name)
        self._free = threads
        self._running: dict[str, Waiting] = {}  # callers with a job in a thread, and their next ones
        self._waiting: dict[str, Waiting] = {}  # other callers with jobs, in the order of their turns

    async def run(self, caller: str, job: Callable[[], Any]) -> Any:
        """The result of the job, or what it raised."""
        result: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        jobs = self._running[caller] if caller in self._running else self._waiting.setdefault(caller, deque())
        jobs.append((job, result))
        self._start()
        return await result

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _start(self) -> None:
        while self._free and self._waiting:
            caller = next(iter(self._waiting))
            jobs = self._waiting.pop(caller)
            while jobs and jobs[0][1].done():  # nobody waits for it any more
                jobs.popleft()
            if jobs:
                self._running[caller], self._free = jobs, self._free - 1
                job, result = jobs.popleft()
                done = result.get_loop().run_in_executor(self._threads, job)
                done.add_done_callback(functools.partial(self._end, caller, result))

    def _end(self, caller: str, result: "asyncio.Future[Any]", done: "asyncio.Future[Any]") -> None:
        error = None if done.cancelled() else done.exception()
        if not result.done():
            if done.cancelled():
                result.cancel()
            elif error is not None:
                result.set_exception(error)
            else:
                result.set_result(done.result())
        self._free += 1
        if jobs := self._running.pop(caller):
            self._waiting[caller] = jobs
        self._start()
