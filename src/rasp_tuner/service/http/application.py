"""The application: a service with its gateway. uvicorn starts and stops it by ASGI's lifespan protocol."""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from typing import TYPE_CHECKING, Any

from sqlalchemy.exc import SQLAlchemyError

from rasp_tuner.service.http.gateway import Gateway
from rasp_tuner.service.http.origins import NOWHERE, Origins
from rasp_tuner.service.limits import Limits
from rasp_tuner.service.service import Service
from rasp_tuner.service.storage.leases import Leases
from rasp_tuner.service.storage.store import SERVER_LEASE_S, Store

if TYPE_CHECKING:
    from rasp_tuner.service.http.forward import Forwarder
    from rasp_tuner.service.http.open_telemetry import OpenTelemetry

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

LOOPBACK = ("127.0.0.1", "localhost", "::1")
RELOAD_KEYS_S = 0.5  # another process may change them

log = logging.getLogger("rasp_tuner.serve")


class Application:
    """One service; it starts and stops with this application."""

    def __init__(
        self, service: Service, hosts: Iterable[str], origins: Origins = NOWHERE, otel: "OpenTelemetry | None" = None
    ) -> None:
        self.service, self._otel = service, otel
        self._forwarder = _forwarder(service)
        make_gateway = Gateway if otel is None else otel.gateway
        self.gateway: Gateway = make_gateway(service, hosts, self._forwarder, origins)

    async def __call__(self, _: Message, receive: Receive, send: Send) -> None:
        """Start and stop; connections go straight to the gateway (connection.py)."""
        service = self.service
        await receive()
        service.writer.start()
        if service.keeper is not None:
            service.keeper.start()
        await asyncio.to_thread(service.writer.ready.wait)
        stopping = asyncio.Event()
        reloading = asyncio.create_task(_reload_keys(service, stopping))
        if self._otel is not None:
            self._otel.start(service)
        await send({"type": "lifespan.startup.complete"})
        await receive()
        stopping.set()
        await reloading
        service.broadcaster.close()
        if self._otel is not None:
            await asyncio.to_thread(self._otel.close)
        await asyncio.to_thread(service.writer.stop)
        self.gateway.close()
        if self._forwarder is not None:
            self._forwarder.close()
        await asyncio.to_thread(service.close)
        await send({"type": "lifespan.shutdown.complete"})


def create_app(
    store: Store,
    *,
    hosts: Iterable[str] = LOOPBACK,
    limits: Limits | None = None,
    open_without_keys: bool = True,
    advertise: str = "http://127.0.0.1:8321",
    lease_s: float = SERVER_LEASE_S,
    origins: Origins = NOWHERE,
    otel: "OpenTelemetry | None" = None,
) -> Application:
    """The application on a store, which it closes at the end; `hosts` are the allowed Host headers.

    origins     sites whose pages may evaluate flags
    advertise   where other servers reach this one, if several use the database
    otel        where traces and numbers go
    """
    leases = Leases(store, advertise, lease_s) if store.is_shared else None
    settings: dict[str, Any] = {"open_without_keys": open_without_keys, "leases": leases}
    settings |= {} if otel is None else {"make_writer": otel.writer}
    return Application(Service(store, limits or Limits(), **settings), hosts, origins, otel)


def _forwarder(service: Service) -> "Forwarder | None":
    """What sends requests on to other servers; not loaded if there can be none."""
    if service.leases is None:
        return None
    from rasp_tuner.service.http.forward import Forwarder

    return Forwarder(service, service.leases)


async def _reload_keys(service: Service, stopping: asyncio.Event) -> None:
    """Reread keys that `rasp keys` made or revoked."""
    while not stopping.is_set():
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(stopping.wait(), RELOAD_KEYS_S)
        try:
            await asyncio.to_thread(service.keys.reload)
        except SQLAlchemyError as error:
            log.error("the keys could not be read, those known so far stay: %s", error)
