"""Client: a connection to one server; it creates and opens studies."""

import os
import weakref
from collections.abc import Iterable, Mapping
from types import TracebackType
from typing import Any

from rasp_tuner.client.async_client import URL, AsyncClient, Metrics, Space
from rasp_tuner.client.blocking import Blocking, LoopThread, blocking
from rasp_tuner.client.exchange import AskDeadline
from rasp_tuner.client.study import Study
from rasp_tuner.contexts.context_encoder import Schema


class Client(Blocking[AsyncClient]):
    """AsyncClient for programs without an event loop, with the same arguments.

    It may be used from many threads and after a fork; the end of a `with` closes it.
    """

    def __init__(
        self,
        url: str = URL,
        key: str | None = None,
        *,
        timeout: float = 5.0,
        ask_deadline: AskDeadline = "auto",
        queue: int = 10_000,
    ) -> None:
        own = AsyncClient(url, key, timeout=timeout, ask_deadline=ask_deadline, queue=queue)
        super().__init__(own, LoopThread(own.url, own.drop_connections))
        after_fork = weakref.WeakMethod(self._after_fork)
        os.register_at_fork(after_in_child=lambda: (forked := after_fork()) and forked())

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
        return self._own.url

    @property
    def queued(self) -> int:
        """How many tells wait to be sent."""
        return self._own.queued

    @property
    def dropped(self) -> int:
        """How many queued tells were lost: pushed out of the full queue, or refused by the server."""
        return self._own.dropped

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

        Arguments as for `Tuner`; `settings` as for `AsyncClient.create`.
        """
        made = self._thread.run(self._own.create(name, space, metrics, context, default, **settings))
        return Study(made, self._thread)

    def create_from(self, definition: Mapping[str, Any]) -> tuple[Study, bool]:
        """The study of a definition in the JSON of the HTTP API, and whether it is new."""
        study, new = self._thread.run(self._own.create_from(definition))
        return Study(study, self._thread), new

    def study(self, name: str, default: Mapping[str, object] | None = None) -> Study:
        """An existing study; raises UnknownStudy if the server has none of this name.

        With `default` no request is made, so a program can start and run on the default while the server is down. The
        study must then be created by someone else, or `ask` raises UnknownStudy.
        """
        return Study(self._thread.run(self._own.study(name, default)), self._thread)

    def import_study(self, lines: Iterable[str], name: str | None = None) -> Study:
        """The study of an export, rebuilt on this server under its own name or another."""
        whole = list(lines)  # here: they may come from a call of this client
        return Study(self._thread.run(self._own.import_study(whole, name)), self._thread)

    studies = blocking(AsyncClient.studies)
    studies_page = blocking(AsyncClient.studies_page)
    flush = blocking(AsyncClient.flush)

    def close(self, timeout: float = 1.0) -> None:
        """Wait so many seconds for queued tells to be sent, then drop them and close all connections."""
        self._thread.run(self._own.close(timeout))
        self._thread.stop()

    def _after_fork(self) -> None:
        """Reset in the child of a fork: a web server may make the client before it forks its workers."""
        self._thread.reset_after_fork()
        self._own.reset_after_fork()
