"""`serve`: runs the server process until a signal; called by `rasp serve`."""

import importlib.util
import ipaddress
import logging
import signal
import socket
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import sqlalchemy as sa
import uvicorn

from rasp_tuner.errors import RaspError
from rasp_tuner.service.folder import DATABASE, database_lock, folder_lock, make_folder, sqlite_file, warn_if_open
from rasp_tuner.service.http.asgi import LOOPBACK, Application, create_app
from rasp_tuner.service.http.http_protocol import BoundedHttpProtocol, close_late_connections
from rasp_tuner.service.limits import Limits
from rasp_tuner.service.sse import SseBroadcaster
from rasp_tuner.service.storage.opening import open_tuner
from rasp_tuner.service.storage.store import Store, sqlite_url

THREAD_SWITCH_S = 0.001  # short, so that the computing writer does not delay the event loop
SHUTDOWN_GRACE_S = 5
TICKS_BETWEEN_CHECKS = 10  # of uvicorn, 0.1 s each, between checks for late connections


class ServeError(RaspError, RuntimeError):
    """The server cannot start; the message says what to change."""


class HttpServer(uvicorn.Server):
    """Closes connections whose client is late, and ends live streams before it stops."""

    def __init__(
        self, config: uvicorn.Config, broadcaster: SseBroadcaster, on_ready: Callable[[], object] | None = None
    ) -> None:
        super().__init__(config)
        self._broadcaster, self._on_ready = broadcaster, on_ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self._on_ready is not None and self.started:
            self._on_ready()

    async def on_tick(self, counter: int) -> bool:
        if counter % TICKS_BETWEEN_CHECKS == 0:
            close_late_connections(self.server_state.connections)
        return await super().on_tick(counter)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._broadcaster.close()
        await super().shutdown(sockets)


def serve(
    data: Path,
    host: str = "127.0.0.1",
    port: int = 8321,
    database: str | None = None,
    allow_hosts: Iterable[str] = (),
    limits: Limits | None = None,
    opened: tuple[bytes, str] | None = None,
    on_ready: Callable[[], object] | None = None,
) -> None:
    """Serve the studies in `data`, or in `database`, until SIGINT or SIGTERM.

    opened     a tuner's snapshot, and the name of the study to make of it
    on_ready   called once requests are answered
    """
    if importlib.util.find_spec("fastapi") is None:  # fail now, although it is loaded later
        raise ModuleNotFoundError("No module named 'fastapi'", name="fastapi")
    make_folder(data)
    address = database or sqlite_url(data)
    file = sqlite_file(sa.make_url(address))
    with (
        exit_zero_on_sigterm(),
        folder_lock(data),
        database_lock(None if file == (data / DATABASE).resolve() else file),
        listening_socket(host, port) as listener,
    ):
        store = Store(address, exclusive=True)
        warn_if_open(data, file)
        loopback = is_loopback(host)
        if not loopback and not any(key.revoked is None for key in store.list_keys()):
            store.close()
            raise ServeError(
                f"refusing to listen on {host} without API keys: make one with `rasp keys create --data {data}`"
            )
        if opened is not None:
            try:
                open_tuner(store, *opened)
            except BaseException:
                store.close()
                raise
        hosts = {*LOOPBACK, *allow_hosts} | ({host} if not _is_unspecified(host) else set())
        app = create_app(store, hosts=hosts, limits=limits, open_without_keys=loopback)
        sys.setswitchinterval(THREAD_SWITCH_S)
        logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
        config = uvicorn_config(
            app, log_level="warning", timeout_keep_alive=30, timeout_graceful_shutdown=SHUTDOWN_GRACE_S
        )
        HttpServer(config, app.service.broadcaster, on_ready).run(sockets=[listener])


def uvicorn_config(app: Application, **settings: Any) -> uvicorn.Config:
    """The uvicorn configuration: fixed settings and the given ones."""
    fixed: dict[str, Any] = {"http": BoundedHttpProtocol, "ws": "none", "lifespan": "on", "server_header": False}
    return uvicorn.Config(app, access_log=False, proxy_headers=False, **fixed, **settings)


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach the address."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _is_unspecified(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_unspecified
    except ValueError:
        return False


@contextmanager
def exit_zero_on_sigterm() -> Iterator[None]:
    """Make SIGTERM end the process with status 0: uvicorn raises the signal again after its shutdown."""
    before = signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@contextmanager
def listening_socket(host: str, port: int) -> Iterator[socket.socket]:
    """A socket bound to this address, before anything else is done, so that a port in use fails at once."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP) as listener:  # for TCP_NODELAY
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((host, port))
        except OSError as reason:
            raise ServeError(f"could not listen on {host}:{port}: {reason.strerror}; try another --port") from reason
        yield listener
