"""Application: the ASGI application. The guard stands before everything; the framework is loaded once all else is up.

Importing it is about a fifth of the imports of a start, and asks and tells do not need it.
"""

import asyncio
import contextlib
import logging
from collections.abc import Iterable

from sqlalchemy.exc import SQLAlchemyError

from rasp_tuner.service.http.fast_routes import direct
from rasp_tuner.service.http.gateway import App, Guard, Message, Receive, Send
from rasp_tuner.service.limits import Limits
from rasp_tuner.service.service import Service
from rasp_tuner.service.storage.store import Store

LOOPBACK = ("127.0.0.1", "localhost", "::1")
REREAD_S = 0.5  # between looks at the keys, which another process may change

log = logging.getLogger("rasp_tuner.service")


class Application:
    """One service, which is started and stopped with it."""

    def __init__(self, service: Service, hosts: Iterable[str]) -> None:
        self.service = service
        self._guard = Guard(self._rest, service, hosts, direct(service))
        self._loading: asyncio.Task[App]

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            await self._guard(scope, receive, send)
        elif scope["type"] == "lifespan":
            await self._live(receive, send)
        # there is nothing else here: no web sockets

    async def _rest(self, scope: Message, receive: Receive, send: Send) -> None:
        """What the guard does not answer itself."""
        app = await asyncio.shield(self._loading)
        await app(scope, receive, send)

    async def _live(self, receive: Receive, send: Send) -> None:
        """From start to stop, as the ASGI lifespan protocol has it."""
        service = self.service
        await receive()
        service.writer.start()
        await asyncio.to_thread(service.writer.ready.wait)
        stopping = asyncio.Event()
        rereading = asyncio.create_task(_reread(service, stopping))
        self._loading = asyncio.create_task(asyncio.to_thread(_framework, service))
        await send({"type": "lifespan.startup.complete"})
        await receive()
        stopping.set()
        await asyncio.gather(rereading, self._loading, return_exceptions=True)
        service.hub.close()
        await asyncio.to_thread(service.writer.stop)
        service.store.close()
        await send({"type": "lifespan.shutdown.complete"})


def create_app(
    store: Store,
    *,
    hosts: Iterable[str] = LOOPBACK,
    limits: Limits | None = None,
    open_without_keys: bool = True,
) -> Application:
    """The application on a store, which it closes at the end; `hosts` are the names it answers to."""
    return Application(Service(store, limits or Limits(), open_without_keys=open_without_keys), hosts)


def _framework(service: Service) -> App:
    from rasp_tuner.service.http.app import framework

    return framework(service)


async def _reread(service: Service, stopping: asyncio.Event) -> None:
    """Take note of keys made or revoked by `rasp keys`."""
    while not stopping.is_set():
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(stopping.wait(), REREAD_S)
        try:
            await asyncio.to_thread(service.keys.reload)
        except SQLAlchemyError as error:
            log.error("the keys could not be read, those known so far stay: %s", error)
