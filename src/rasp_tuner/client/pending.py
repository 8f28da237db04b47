"""Answers that are waited for no longer than the deadline; a late one serves the next ask in the same context."""

import asyncio
import json
import time
from typing import Any

from rasp_tuner.client.errors import ServerUnavailable
from rasp_tuner.client.exchange import Exchange, HttpAnswer, HttpRequest
from rasp_tuner.errors import RaspError

DEADLINE_MARGIN_S = 0.007  # kept back from a deadline, to wake up and answer
MAX_SPARES = 64  # of a study
MAX_SPARE_AGE_S = 300.0  # an older suggestion knows too little of what was learned since


class PendingAnswer:
    """An answer that is on its way, or has come."""

    def __init__(self, exchange: Exchange, request: HttpRequest, context: Any) -> None:
        self._exchange, self._epoch = exchange, exchange.epoch
        self.context_key = json.dumps(context, sort_keys=True)
        self._sent_at = time.monotonic()
        self._outcome: HttpAnswer | RaspError | None = None
        self._task = exchange.start(self._fetch(request))

    async def _fetch(self, request: HttpRequest) -> None:
        server = self._exchange.server
        number = server.record_sent()
        try:
            self._outcome = await self._exchange.attempt(request, server.patience)
            server.record_answer(number)
        except ServerUnavailable as error:
            self._outcome = error
            server.record_failure(number, error)
        except RaspError as error:  # a refusal is an answer, too
            self._outcome = error
            server.record_answer(number)
        except BaseException as reason:  # the program is wrong, or ends
            self._outcome = ServerUnavailable(f"no answer: {reason!r}")
            server.record_failure(number, self._outcome)
            raise

    async def result(self) -> Any:
        """The body of the answer, if it is there before the deadline; else ServerUnavailable."""
        seconds = self._exchange.server.deadline
        await asyncio.wait({self._task}, timeout=max(seconds - min(DEADLINE_MARGIN_S, seconds / 5), 0.0))
        if self._outcome is None:
            raise ServerUnavailable(f"no answer from {self._exchange.url} within {1e3 * seconds:.3g} ms")
        if isinstance(self._outcome, RaspError):
            raise self._outcome
        return self._outcome.body

    @property
    def usable(self) -> bool:
        """Whether it may still answer an ask."""
        age = time.monotonic() - self._sent_at
        if self._epoch is not self._exchange.epoch or isinstance(self._outcome, RaspError):
            return False
        return age < (self._exchange.server.patience if self._outcome is None else MAX_SPARE_AGE_S)


class SpareAnswers:
    """Suggestions that were asked for and came too late to be used; bounded."""

    def __init__(self) -> None:
        self._spares: list[PendingAnswer] = []

    def put(self, answer: PendingAnswer) -> None:
        self._spares = [spare for spare in (*self._spares, answer) if spare.usable][-MAX_SPARES:]

    def take(self, context: Any) -> PendingAnswer | None:
        """The oldest one for this very context; it is the caller's then."""
        key = json.dumps(context, sort_keys=True)
        found = next((spare for spare in self._spares if spare.context_key == key and spare.usable), None)
        if found is not None:
            self._spares.remove(found)
        return found

    def clear(self) -> None:
        self._spares = []
