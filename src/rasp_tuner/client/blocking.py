"""Calls of the asynchronous client for programs without an event loop: it has one on a thread of its own."""

import asyncio
import functools
import threading
import weakref
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator
from concurrent.futures import CancelledError
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar

from rasp_tuner.client.errors import closed_error

CLOSE_WAIT_S = 1.0  # for the thread to end

Own = TypeVar("Own")
P = ParamSpec("P")
T = TypeVar("T")

_loops_of_parents: list[asyncio.AbstractEventLoop] = []  # of a fork; kept, since their sockets are the parent's


class LoopThread:
    """An event loop on a thread, started with the first call; any thread may call it.

    The thread ends with `stop`, or with the last object that uses it. `at_end` is called on it then.
    """

    def __init__(self, url: str, at_end: Callable[[], object]) -> None:
        self._url, self._at_end = url, at_end
        self._loop: asyncio.AbstractEventLoop | None = None
        self._end: weakref.finalize[Any, LoopThread] | None = None
        self._lock = threading.Lock()

    def reset_after_fork(self) -> None:
        """Start without the thread, in the child of a fork, which has none."""
        if self._loop is not None and self._end is not None:
            _loops_of_parents.append(self._loop)
            self._end.detach()
        self._loop, self._end, self._lock = None, None, threading.Lock()

    def run(self, doing: Coroutine[Any, Any, T]) -> T:
        """What it returns or raises."""
        future = asyncio.run_coroutine_threadsafe(doing, self._started())
        try:
            return future.result()
        except CancelledError:  # another thread has closed the client
            raise closed_error(self._url) from None
        except BaseException:  # Ctrl-C
            future.cancel()
            raise

    def each(self, groups: AsyncGenerator[list[T], None]) -> Iterator[T]:
        """One after the other of what comes in groups: changing threads for each would take long."""

        async def following() -> list[T] | None:
            return await anext(groups, None)

        try:
            while (group := self.run(following())) is not None:
                yield from group
        finally:
            self.run(groups.aclose())

    def stop(self) -> None:
        with self._lock:
            end, self._end, self._loop = self._end, None, None
        if end is not None:
            end()

    def _started(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            if self._loop is None:
                self._loop = loop = asyncio.new_event_loop()
                thread = threading.Thread(target=_serve, args=[loop], name="rasp-client", daemon=True)
                thread.start()
                self._end = weakref.finalize(self, _stop, loop, thread, self._at_end)
            return self._loop


class Blocking(Generic[Own]):
    """Something whose calls wait for those of an asynchronous object, in any thread."""

    def __init__(self, own: Own, thread: LoopThread) -> None:
        self._own, self._thread = own, thread


def blocking(
    call: Callable[Concatenate[Own, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[Blocking[Own], P], T]:
    """The same call, which waits."""

    @functools.wraps(call)
    def wait(self: Blocking[Own], /, *words: P.args, **named: P.kwargs) -> T:
        return self._thread.run(call(self._own, *words, **named))

    return wait


def _serve(loop: asyncio.AbstractEventLoop) -> None:
    asyncio.set_event_loop(loop)
    loop.run_forever()
    tasks = asyncio.all_tasks(loop)
    for task in tasks:
        task.cancel()
    loop.run_until_complete(asyncio.gather(*tasks, asyncio.sleep(0), return_exceptions=True))
    loop.close()


def _stop(loop: asyncio.AbstractEventLoop, thread: threading.Thread, at_end: Callable[[], object]) -> None:
    loop.call_soon_threadsafe(at_end)
    loop.call_soon_threadsafe(loop.stop)
    if threading.current_thread() is not thread:
        thread.join(CLOSE_WAIT_S)
