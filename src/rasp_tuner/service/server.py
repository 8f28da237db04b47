"""`serve`: runs the server process until a signal; called by `rasp serve`."""

import asyncio
import functools
import gc
import ipaddress
import logging
import os
import resource
import signal
import socket
import sys
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import sqlalchemy as sa
import uvicorn

from rasp_tuner.base.terminal_log import log_to_terminal
from rasp_tuner.errors import RaspError
from rasp_tuner.service.data_folder_lock import (
    DATABASE,
    database_lock,
    folder_lock,
    make_folder,
    sqlite_file,
    warn_if_open,
)
from rasp_tuner.service.http.application import LOOPBACK, Application, create_app
from rasp_tuner.service.http.connection import HttpConnection
from rasp_tuner.service.http.origins import Origins
from rasp_tuner.service.limits import ConnectionCount, Limits, is_loopback
from rasp_tuner.service.sse import SseBroadcaster
from rasp_tuner.service.storage.store import SERVER_LEASE_S, Store, plain_errors, sqlite_url
from rasp_tuner.service.telemetry import OTLP_SIGNALS, otlp_wanted

if TYPE_CHECKING:
    from rasp_tuner.service.http.open_telemetry import OpenTelemetry

log = logging.getLogger("rasp_tuner.serve")

THREAD_SWITCH_S = 0.001  # short, so that the computing writer does not delay the event loop
SHUTDOWN_GRACE_S = 5
RESERVED_FILES = 100  # not for connections: the database, its log, the process's own
TICKS_BETWEEN_CHECKS = 10  # of uvicorn, 0.1 s each, between checks for late connections


class ServeError(RaspError, RuntimeError):
    """The server cannot start; the message says what to change."""


class HttpServer(uvicorn.Server):
    """Closes connections whose client is late, and ends live streams before it stops."""

    def __init__(
        self,
        config: uvicorn.Config,
        broadcaster: SseBroadcaster,
        leave: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        """`leave` is awaited before it stops answering."""
        super().__init__(config)
        self._broadcaster, self._leave = broadcaster, leave

    async def on_tick(self, counter: int) -> bool:
        if counter % TICKS_BETWEEN_CHECKS == 0:
            now = asyncio.get_running_loop().time()
            for connection in list(self.server_state.connections):
                if isinstance(connection, HttpConnection):
                    connection.close_if_late(now)
        return await super().on_tick(counter)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._broadcaster.close()
        if self._leave is not None:
            await self._leave()
        await super().shutdown(sockets)


def serve(
    data: Path,
    host: str = "127.0.0.1",
    port: int = 8321,
    database: str | None = None,
    allow_hosts: Iterable[str] = (),
    limits: Limits | None = None,
    on_bound: Callable[[int], object] | None = None,
    advertise: str | None = None,
    lease_s: float = SERVER_LEASE_S,
    allow_origins: Iterable[str] = (),
) -> None:
    """Serve the studies in `data`, or in `database`, until SIGINT or SIGTERM.

    port       0 lets the system choose one
    on_bound   called with the port as soon as it is bound
    advertise  where other servers on the same PostgreSQL reach this one; by default the address it listens on
    lease_s    a server that is silent for so long loses its studies to the others

    allow_origins  sites whose pages may evaluate flags, as https://shop.example
    """
    try:
        origins = Origins(allow_origins)
    except ValueError as error:
        raise ServeError(str(error)) from error
    make_folder(data)
    address = database or sqlite_url(data)
    file = sqlite_file(sa.make_url(address))
    with (
        exit_zero_on_sigterm(),
        folder_lock(data) as lock,
        database_lock(None if file == (data / DATABASE).resolve() else file),
        listening_socket(host, port) as listener,
    ):
        port = int(listener.getsockname()[1])
        if on_bound is not None:
            on_bound(port)
        store = Store(address, lease_s=lease_s)
        try:
            lock.note(local_url(host, port), DATABASE if file == (data / DATABASE).resolve() else None)
            warn_if_open(data, file)
            with plain_errors(store.url):
                loopback = is_loopback(host)
                if not loopback and not any(key.revoked is None for key in store.list_keys()):
                    raise ServeError(
                        f"refusing to listen on {host} without API keys: make one with `rasp keys create --data {data}`"
                    )
                own = advertise or advertised_url(host, port, store.url.host)
                hosts = {*LOOPBACK, *allow_hosts} | ({host} if not _is_unspecified(host) else set())
                if store.is_shared:
                    hosts.add(urlsplit(own).hostname or host)
                app = create_app(
                    store,
                    hosts=hosts,
                    limits=limits,
                    open_without_keys=loopback,
                    advertise=own,
                    lease_s=lease_s,
                    origins=origins,
                    otel=open_telemetry(),
                )
        except BaseException:
            store.close()
            raise
        sys.setswitchinterval(THREAD_SWITCH_S)
        gc.freeze()  # modules stay: a body of many small lists set off collections that went through all of them
        log_to_terminal(logging.WARNING, "%(asctime)s %(levelname)s %(name)s: %(message)s")
        config = uvicorn_config(app, log_level="warning", timeout_graceful_shutdown=SHUTDOWN_GRACE_S)
        keeper = app.service.keeper
        leave = None if keeper is None else keeper.leave
        try:
            HttpServer(config, app.service.broadcaster, leave).run(sockets=[listener])
        finally:
            if not app.service.writer.stopped_whole:  # also after SIGTERM, which exits with 0 otherwise
                raise ServeError("not every study could be saved, the log above says why: the next start replays more")


def open_telemetry() -> "OpenTelemetry | None":
    """Where traces and numbers go by OTLP; None unless OTEL_* variables ask for it."""
    if not any(map(otlp_wanted, OTLP_SIGNALS)):
        return None
    protocol = os.environ.get("OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf")
    if protocol != "http/protobuf":
        raise ServeError(f"OTEL_EXPORTER_OTLP_PROTOCOL is {protocol!r}: use http/protobuf (collectors: port 4318)")
    try:
        from rasp_tuner.service.http.open_telemetry import OpenTelemetry
    except ModuleNotFoundError as error:
        if not (error.name or "").startswith("opentelemetry"):
            raise
        log.warning("OTEL_* variables ask for OpenTelemetry, which is not installed: pip install 'rasp-tuner[otel]'")
        return None
    return OpenTelemetry()


def uvicorn_config(app: Application, **settings: Any) -> uvicorn.Config:
    """The uvicorn configuration: fixed settings and the given ones."""
    limits = app.service.limits
    count = ConnectionCount(min(limits.connections, max(_open_files() - RESERVED_FILES, 1)), limits.connections_of_one)
    protocol = functools.partial(HttpConnection, gateway=app.gateway, count=count)
    fixed: dict[str, Any] = {"http": protocol, "ws": "none", "lifespan": "on", "server_header": False}
    return uvicorn.Config(app, access_log=False, proxy_headers=False, **fixed, **settings)


def _open_files() -> int:
    """How many files and connections the process may open: all that the system lets it ask for."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    if most == resource.RLIM_INFINITY:
        return sys.maxsize
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    return most


def advertised_url(host: str, port: int, database_host: str | None) -> str:
    """Where other servers reach this one: if it listens on all addresses, the one that the database sees."""
    if _is_unspecified(host):
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        try:
            with socket.socket(family, socket.SOCK_DGRAM) as probe:
                probe.connect((database_host or "localhost", 9))  # sends nothing
                host = probe.getsockname()[0]
        except OSError:
            host = socket.gethostname()
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def local_url(host: str, port: int) -> str:
    """Where programs on this machine reach a server that listens there."""
    if _is_unspecified(host):
        host = "::1" if ":" in host else "127.0.0.1"
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


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
