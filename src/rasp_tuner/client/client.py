"""Client: a connection to one server; it creates and opens studies."""

import os
import threading
import weakref
from collections.abc import Iterable, Mapping
from types import TracebackType
from typing import Any

from rasp_tuner.client.client_calls import ClientCalls, Metrics, Space
from rasp_tuner.client.exchange import AskDeadline, key_headers
from rasp_tuner.client.study import Study
from rasp_tuner.client.study_calls import StudyCalls
from rasp_tuner.client.transport import Transport
from rasp_tuner.contexts.context_encoder import Schema

URL = "http://127.0.0.1:8321"


class Client:
    """Studies of one server. It may be used from many threads and after a fork; the end of a `with` closes it.

    url           where `rasp serve` listens
    key           an API key, `rasp_...`; not needed on the server's own machine while the server has no keys
    timeout       seconds a call may take, with all its retries, before it raises ServerUnavailable
    ask_deadline  seconds after which `ask` and `recommend` answer without the server; "auto": four times as long as the
                  slowest recent answer took, between 0.1 and `timeout`; None: they wait, and raise
    queue         how many tells wait in memory for a server that is down; beyond that the oldest are dropped
    prefetch      after every tell, ask for the next step in the background, in the context of the latest ask
    """

    def __init__(
        self,
        url: str = URL,
        key: str | None = None,
        *,
        timeout: float = 5.0,
        ask_deadline: AskDeadline = "auto",
        queue: int = 10_000,
        prefetch: bool = False,
    ) -> None:
        self._calls = ClientCalls(url, timeout, ask_deadline, queue, prefetch, threading.Event)
        self._transport = Transport(self._calls.exchange.url, key_headers(key))
        self._run = self._transport.run
        own = weakref.WeakMethod(self._after_fork)
        os.register_at_fork(after_in_child=lambda: (forked := own()) and forked())

    def __repr__(self) -> str:
        return f"<Client of {self.url}>"

    def __enter__(self) -> "Client":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def url(self) -> str:
        return self._transport.url

    @property
    def queued(self) -> int:
        """How many tells wait to be sent."""
        return len(self._calls.outbox)

    @property
    def dropped(self) -> int:
        """How many queued tells were lost: pushed out of the full queue, or refused by the server."""
        return self._calls.outbox.dropped

    def create(
        self,
        name: str,
        space: Space,
        metrics: Metrics,
        context: Schema = None,
        default: Mapping[str, object] | None = None,
        **settings: Any,
    ) -> Study:
        """The study of this definition, created if it does not exist; Conflict if the name has another definition.

        Arguments as for `Tuner`; `settings`: constraints, preset, seed, guard, budget, holdout, max_change,
        switching_cost, screen, max_pending; lease_s, the seconds after which an unanswered ask counts as expired;
        ttl_s, after which records are erased; and approve_s, for how long a suggestion waits for a person.
        """
        return self._study(self._run(self._calls.create(name, space, metrics, context, default, settings)))

    def create_from(self, definition: Mapping[str, Any]) -> tuple[Study, bool]:
        """The study of a definition in the JSON of the HTTP API, and whether it is new."""
        study, new = self._run(self._calls.create_from(definition))
        return self._study(study), new

    def study(self, name: str, default: Mapping[str, object] | None = None) -> Study:
        """An existing study; raises UnknownStudy if the server has none of this name.

        With `default` no request is made, so a program can start and run on the default while the server is down. The
        study must then be created by someone else, or `ask` raises UnknownStudy.
        """
        return self._study(self._run(self._calls.study(name, default)))

    def studies(self) -> list[dict[str, Any]]:
        """The views of all studies that the key allows."""
        return self._run(self._calls.studies())

    def studies_page(self, limit: int = 50, offset: int = 0, find: str = "", sort: str = "name") -> dict[str, Any]:
        """Some of them: `{"studies": views, "total": how many were found, ...}`, as the HTTP API gives it.

        `find` is a part of the name; `sort` is name, recent, alerts, gain or learned.
        """
        return self._run(self._calls.studies_page(limit, offset, find, sort))

    def import_study(self, lines: Iterable[str], name: str | None = None) -> Study:
        """The study of an export, rebuilt on this server under its own name or another."""
        return self._study(self._run(self._calls.import_study(lines, name)))

    def flush(self, timeout: float = 5.0) -> bool:
        """Whether all queued tells were sent within so many seconds."""
        return self._run(self._calls.outbox.flush(timeout))

    def close(self, timeout: float = 1.0) -> None:
        """Wait so many seconds for queued tells to be sent, then drop them and close all connections."""
        self.flush(timeout)
        self._calls.outbox.close()
        self._transport.close()

    def _after_fork(self) -> None:
        """Reset in the child of a fork: a web server may make the client before it forks its workers."""
        self._transport.reset_after_fork()
        self._calls.reset_after_fork()

    def _study(self, calls: StudyCalls) -> Study:
        return Study(calls, self._transport)
