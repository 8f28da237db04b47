"""One BLAS thread around the linear algebra, so that results do not depend on the number of cores.

On several threads BLAS splits a sum by their number: the last bits differ, and with them later suggestions. For small
matrices, as ours are, one thread is also faster.
"""

import os
import threading
from collections.abc import Callable
from functools import wraps
from inspect import isfunction
from typing import ParamSpec, Self, TypeVar

import numpy  # noqa: F401  # its BLAS must be loaded to be found
from threadpoolctl import ThreadpoolController

Class = TypeVar("Class", bound=type)
Given = ParamSpec("Given")
Result = TypeVar("Result")
GetCount = Callable[[], int]
SetCount = Callable[[int], object]


class ProcessCount:
    """The thread count of a BLAS that has one for the whole process: the last thread to leave restores it."""

    def __init__(self, get: GetCount, set: SetCount) -> None:
        self._get, self._set = get, set
        self._inside, self._before = 0, 1

    def enter(self) -> None:
        self._inside += 1
        if self._inside == 1:
            self._before = self._get()
            if self._before != 1:
                self._set(1)

    def leave(self) -> None:
        self._inside -= 1
        if self._inside == 0 and self._before != 1:
            self._set(self._before)

    def forked(self, inside: bool) -> None:
        """Of the threads inside, the child of a fork has at most the one that forked."""
        if self._inside and not inside:
            self._inside = 1
            self.leave()
        self._inside = int(inside)


class ThreadCount(threading.local):
    """The thread counts of a BLAS that has one for each thread that calls it."""

    def __init__(self, get: GetCount, set: SetCount) -> None:
        self._get, self._set = get, set
        self._before = 1

    def enter(self) -> None:
        self._before = self._get()
        if self._before != 1:
            self._set(1)

    def leave(self) -> None:
        if self._before != 1:
            self._set(self._before)

    def forked(self, inside: bool) -> None:
        """Nothing to do: a fork keeps the count of the thread that forked."""


class ThisThread(threading.local):
    """What a thread has to itself."""

    depth = 0  # how many uses it is inside of


class OneThread:
    """For `with` and as a decorator; may be nested, and used by several threads at once."""

    def __init__(self, counts: list[ProcessCount | ThreadCount]) -> None:
        self._counts = counts
        self._lock = threading.RLock()  # not a Lock: a signal handler may call a tuner
        self._this_thread = ThisThread()

    def __call__(self, function: Callable[Given, Result]) -> Callable[Given, Result]:
        here = self._this_thread

        @wraps(function)
        def inside(*args: Given.args, **kwargs: Given.kwargs) -> Result:
            if here.depth:  # a method that calls another
                return function(*args, **kwargs)
            with self:
                return function(*args, **kwargs)

        return inside

    def __enter__(self) -> None:
        here = self._this_thread
        here.depth = depth = here.depth + 1
        if depth == 1:
            with self._lock:
                for count in self._counts:
                    count.enter()

    def __exit__(self, *_: object) -> None:
        here = self._this_thread
        here.depth = depth = here.depth - 1
        if depth == 0:
            with self._lock:
                for count in self._counts:
                    count.leave()

    def forked(self) -> None:
        """Go on in the child of a fork, where no other thread is left to leave or to release the lock."""
        self._lock = threading.RLock()
        for count in self._counts:
            count.forked(inside=self._this_thread.depth > 0)


def _counts() -> list[ProcessCount | ThreadCount]:
    """Those of every BLAS loaded by now, NumPy's among them; none where nothing can be set (Apple's Accelerate)."""
    found: list[ProcessCount | ThreadCount] = []
    for library in ThreadpoolController().select(user_api="blas").lib_controllers:
        get, set = library.get_num_threads, library.set_num_threads
        layer = getattr(library, "threading_layer", None)
        if layer == "openmp" or "MKL_Set_Num_Threads_Local" in library.check_symbols:
            found.append(ThreadCount(get, set))
            continue
        if library.internal_api == "openblas":
            # not by threadpoolctl's own method, which ignores all threads but one: the last to leave may be another
            name = next(name for name in library.check_symbols if hasattr(library.dynlib, name))
            get, set = getattr(library.dynlib, name), getattr(library.dynlib, name.replace("_get_", "_set_"))
        found.append(ProcessCount(get, set))
    return found


_ONE_THREAD = OneThread(_found := _counts())
os.register_at_fork(after_in_child=_ONE_THREAD.forked)

BLAS_THREADS = 1 if _found else None  # what a tuner computes on; None: not known, for it cannot be set


def one_thread() -> OneThread:
    """What keeps BLAS on one thread: `with one_thread():` around a block, `@one_thread()` before a function."""
    return _ONE_THREAD


def methods_on_one_thread(cls: Class) -> Class:
    """The class, with BLAS on one thread in its constructor and in every public method, unless it is `unguarded`."""
    for name, method in list(vars(cls).items()):
        if (name.startswith("_") and name != "__init__") or getattr(method, "unguarded", False):
            continue
        if isinstance(method, classmethod):
            setattr(cls, name, classmethod(_ONE_THREAD(method.__func__)))
        elif isfunction(method):
            setattr(cls, name, _ONE_THREAD(method))
    return cls


def unguarded(method: Callable[Given, Result]) -> Callable[Given, Result]:
    """A method that sees to it itself that BLAS runs on one thread, where it uses BLAS at all."""
    method.unguarded = True  # type: ignore[attr-defined]
    return method


class InTurn:
    """What threads may share, if its class is decorated with `methods_in_turn`."""

    _turn: "threading.RLock"  # not a Lock: methods call one another

    def __new__(cls, *_: object, **__: object) -> Self:
        made = super().__new__(cls)
        made._turn = threading.RLock()
        return made


def methods_in_turn(cls: Class) -> Class:
    """The class of an InTurn, whose public methods run one at a time."""
    for name, method in list(vars(cls).items()):
        if isfunction(method) and not name.startswith("_"):
            setattr(cls, name, _in_turn(method))
    return cls


def _in_turn(method: Callable[Given, Result]) -> Callable[Given, Result]:
    @wraps(method)
    def inside(*args: Given.args, **kwargs: Given.kwargs) -> Result:
        with args[0]._turn:  # type: ignore[attr-defined]
            return method(*args, **kwargs)

    return inside
