"""serve: one process, one writer, until a signal; what `rasp serve` calls."""

import fcntl
import importlib.util
import ipaddress
import logging
import os
import signal
import socket
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import uvicorn

from rasp_tuner.errors import RaspError
from rasp_tuner.service.http.asgi import LOOPBACK, Application, create_app
from rasp_tuner.service.http.http_protocol import Protocol, close_late
from rasp_tuner.service.limits import Limits
from rasp_tuner.service.sse import Hub
from rasp_tuner.service.storage.store import Store, sqlite_url

SWITCH_S = 0.001  # the writer computes, the event loop waits: hand over soon
GRACE_S = 5
TICKS = 10  # of uvicorn, a tenth of a second each, between looks at connections


class ServeError(RaspError, RuntimeError):
    """The server cannot start as it was told to; the message says what to change."""


class Server(uvicorn.Server):
    """Ends connections that wait in vain, and before it stops live streams, which would keep it from that."""

    def __init__(self, config: uvicorn.Config, hub: Hub) -> None:
        super().__init__(config)
        self._hub = hub

    async def on_tick(self, counter: int) -> bool:
        if counter % TICKS == 0:
            close_late(self.server_state.connections)
        return await super().on_tick(counter)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._hub.close()
        await super().shutdown(sockets)


def serve(
    data: Path,
    host: str = "127.0.0.1",
    port: int = 8321,
    database: str | None = None,
    allow_hosts: Iterable[str] = (),
    limits: Limits | None = None,
) -> None:
    """Serve the studies in `data`, or in `database`, until SIGINT or SIGTERM."""
    if importlib.util.find_spec("fastapi") is None:  # said now, though it is loaded later
        raise ModuleNotFoundError("No module named 'fastapi'", name="fastapi")
    data.mkdir(parents=True, exist_ok=True)
    with stoppable(), locked(data), listening(host, port) as listener:
        store = Store(database or sqlite_url(data), alone=True)
        loopback = is_loopback(host)
        if not loopback and not any(key.revoked is None for key in store.list_keys()):
            store.close()
            raise ServeError(
                f"refusing to listen on {host} without API keys: make one with `rasp keys create --data {data}`"
            )
        hosts = {*LOOPBACK, *allow_hosts} | ({host} if not _is_any(host) else set())
        app = create_app(store, hosts=hosts, limits=limits, open_without_keys=loopback)
        sys.setswitchinterval(SWITCH_S)
        logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
        config = configure(app, log_level="warning", timeout_keep_alive=30, timeout_graceful_shutdown=GRACE_S)
        Server(config, app.service.hub).run(sockets=[listener])


def configure(app: Application, **settings: Any) -> uvicorn.Config:
    """What uvicorn is told, whatever else it is."""
    fixed: dict[str, Any] = {"http": Protocol, "ws": "none", "lifespan": "on", "server_header": False}
    return uvicorn.Config(app, access_log=False, proxy_headers=False, **fixed, **settings)


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach it."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _is_any(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_unspecified
    except ValueError:
        return False


@contextmanager
def stoppable() -> Iterator[None]:
    """SIGTERM ends the process with status 0: uvicorn, once all is put away, raises again what it was stopped by."""
    before = signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@contextmanager
def listening(host: str, port: int) -> Iterator[socket.socket]:
    """A socket on this address; taken before anything else is done, so that a taken port costs nothing."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP) as listener:  # or asyncio would not send at once
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((host, port))
        except OSError as reason:
            raise ServeError(f"could not listen on {host}:{port}: {reason.strerror}; try another --port") from reason
        yield listener


@contextmanager
def locked(data: Path) -> Iterator[None]:
    """Hold the folder's lock, so that there is one writer; the system lets go of it however the process ends."""
    with (data / "lock").open("a+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as reason:
            file.seek(0)
            owner = file.read(20).strip() or "unknown"
            raise ServeError(
                f"another server (process {owner}) uses {data}: stop it, or take another --data"
            ) from reason
        file.truncate(0)
        file.write(str(os.getpid()))
        file.flush()
        yield
