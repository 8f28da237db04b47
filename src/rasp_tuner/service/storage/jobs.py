"""Jobs for the writer, and the way of their answers back to the event loop."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from rasp_tuner.service.storage.transaction import UnitOfWork

MORE: Final = object()  # what a job returns to go on in another piece
SERVER = "server"  # the caller of jobs that the server gives itself


@dataclass(slots=True)
class WriterJob:
    """One request to the writer; `run` returns the answer or MORE, or raises."""

    run: Callable[[UnitOfWork], Any]
    writes: bool
    future: "asyncio.Future[Any] | None" = None
    study: str | None = None  # that it is about
    caller: str = SERVER  # whose share of the CPU time it takes


def answer(outcomes: Sequence[tuple["asyncio.Future[Any]", Any]]) -> None:
    """Send all answers to the event loop in one call."""
    if outcomes:
        outcomes[0][0].get_loop().call_soon_threadsafe(_settle, outcomes)


def _settle(outcomes: Sequence[tuple["asyncio.Future[Any]", Any]]) -> None:
    for future, outcome in outcomes:
        if future.done():
            continue  # the caller has gone; the commit stays
        if isinstance(outcome, Exception):
            future.set_exception(outcome)
        else:
            future.set_result(outcome)
