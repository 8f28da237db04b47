"""HttpClient: HTTP/1.1 requests on connections that are kept. Lean: a request takes a tenth of a millisecond."""

import asyncio
import base64
import functools
import os
import ssl
from collections import deque
from collections.abc import AsyncIterator, Iterable
from typing import cast
from urllib.parse import SplitResult, unquote, urlsplit
from urllib.request import getproxies, proxy_bypass

import httptools

KEEP_IDLE_S = 15.0  # a server closes its side after 30 s
MAX_IDLE = 64  # connections to one server
MAX_BUFFERED_BYTES = 1_048_576  # of an answer that is read more slowly than it comes
PORTS = {"http": 80, "https": 443}
WITHOUT_BODY = (204, 304)  # statuses

Header = tuple[bytes, bytes]


class NotSent(ConnectionError):
    """There was no connection: the request was not sent."""


class HttpClient:
    """For one event loop.

    connect_s  seconds until a connection that cannot be made is given up; None: as long as the caller waits
    proxies    go through the proxy that the environment names (HTTPS_PROXY, NO_PROXY), if it names one
    """

    def __init__(self, connect_s: float | None = None, *, proxies: bool = False) -> None:
        self._connect_s, self._proxies = connect_s, proxies
        self._idle: dict[str, list[tuple[float, Connection]]] = {}
        self._open: set[Connection] = set()

    async def connect(self, server: str) -> "Connection":
        """A connection for one request, an idle one if there is one; raises NotSent."""
        idle, now = self._idle.get(server, []), asyncio.get_running_loop().time()
        while idle:
            since, connection = idle.pop()
            if now - since < KEEP_IDLE_S and connection.is_usable:
                return connection
            self.release(connection, keep=False)
        try:
            connection = await asyncio.wait_for(self._connected(server), self._connect_s)
        except (OSError, TimeoutError) as error:
            said = str(error) or type(error).__name__
            if isinstance(error, ConnectionError) and error.errno:
                said = os.strerror(error.errno)
            raise NotSent(said) from error
        self._open.add(connection)
        return connection

    async def send(
        self, connection: "Connection", method: str, target: bytes, headers: Iterable[Header], body: bytes = b""
    ) -> "HttpReply":
        """The head of the answer; raises NotSent, or another ConnectionError if the request may have been received.

        The answer is read to its end, or closed, before its connection is used again.
        """
        host = urlsplit(connection.server).netloc.encode()
        head = [
            b"%s %s%s HTTP/1.1\r\nhost: %s\r\n" % (method.encode(), connection.prefix, target, host),
            *(b"%s: %s\r\n" % header for header in (*connection.headers_sent, *headers)),
            b"content-length: %d\r\n\r\n" % len(body) if body or method == "POST" else b"\r\n",
        ]
        reply = HttpReply(self, connection)
        try:
            await connection.send(b"".join(head) + body)
        except BaseException:
            reply.close()
            raise
        return reply

    def close(self) -> None:
        for connection in list(self._open):
            connection.close()

    def release(self, connection: "Connection", keep: bool) -> None:
        """Keep a connection for the next request, or close it."""
        idle = self._idle.setdefault(connection.server, [])
        if keep and connection.is_usable and len(idle) < MAX_IDLE:
            idle.append((asyncio.get_running_loop().time(), connection))
        else:
            self._open.discard(connection)
            connection.close()

    async def _connected(self, server: str) -> "Connection":
        parts, loop = urlsplit(server), asyncio.get_running_loop()
        proxy = _proxy_of(parts) if self._proxies else None
        made = functools.partial(Connection, server)
        if proxy is None:
            secure = _trusted() if parts.scheme == "https" else None
            _, connection = await loop.create_connection(made, parts.hostname or "", _port(parts), ssl=secure)
            return connection
        transport, connection = await loop.create_connection(made, proxy.hostname or "", _port(proxy))
        allowed = _proxy_key(proxy)
        if parts.scheme == "http":  # the proxy reads the whole address
            connection.prefix, connection.headers_sent = f"http://{parts.netloc}".encode(), allowed
            return connection
        try:
            there = f"{parts.hostname}:{_port(parts)}".encode()
            lines = [b"CONNECT %s HTTP/1.1\r\nhost: %s\r\n" % (there, there), *(b"%s: %s\r\n" % one for one in allowed)]
            await connection.send(b"".join(lines) + b"\r\n", tunnels=True)
            if not 200 <= connection.status < 300:
                raise OSError(f"the proxy {proxy.hostname} answered {connection.status}")
            secured = await loop.start_tls(transport, connection, _trusted(), server_hostname=parts.hostname)
            connection.connection_made(cast(asyncio.Transport, secured))
        except BaseException:
            transport.close()
            raise
        return connection


class HttpReply:
    """Status, headers and body of an answer."""

    def __init__(self, client: HttpClient, connection: "Connection") -> None:
        self._client, self._source = client, connection
        self._is_closed = False

    @property
    def status(self) -> int:
        return self._source.status

    @property
    def headers(self) -> dict[bytes, bytes]:
        """Names are in lower case; they are gone once it is closed."""
        return self._source.headers

    async def parts(self) -> AsyncIterator[bytes]:
        """The body as it comes; raises ConnectionError if it ends early."""
        while (part := await self._source.next_part()) is not None:
            yield part

    async def read(self) -> bytes:
        return b"".join([part async for part in self.parts()])

    def close(self) -> None:
        """Give the connection back, if the answer was read to its end."""
        if not self._is_closed:
            self._is_closed = True
            self._client.release(self._source, keep=self._source.is_done)


class Connection(asyncio.Protocol):
    """One connection to a server; one request at a time."""

    def __init__(self, server: str) -> None:
        self.server = server
        self.prefix = b""  # of every target
        self.headers_sent: list[Header] = []  # with every request
        self._transport: asyncio.Transport | None = None
        self._changed: asyncio.Future[None] | None = None
        self._paused = False
        self._begin()
        self.is_done = True

    def _begin(self) -> None:
        self._parser = httptools.HttpResponseParser(self)
        self.status = 0
        self.headers: dict[bytes, bytes] = {}
        self._parts: deque[bytes] = deque()
        self._buffered = 0
        self._has_head = self.is_done = False
        self._keeps, self._until_end = True, False
        self._error: Exception | None = None

    @property
    def is_usable(self) -> bool:
        return self._transport is not None and not self._transport.is_closing() and self._keeps

    async def send(self, data: bytes, *, tunnels: bool = False) -> None:
        """Send a request, and wait for the head of the answer; what follows it is not HTTP if it opens a tunnel."""
        self._begin()
        if self._transport is None or self._transport.is_closing():
            raise NotSent("the connection was closed")
        self._transport.write(data)
        while not self._has_head:
            await self._wait()
        if tunnels:
            self.is_done = True

    async def next_part(self) -> bytes | None:
        """The next part of the body; None at its end."""
        while not self._parts:
            if self.is_done:
                return None
            await self._wait()
        part = self._parts.popleft()
        self._buffered -= len(part)
        self._pause(self._buffered > MAX_BUFFERED_BYTES)
        return part

    def _pause(self, paused: bool) -> None:
        if self._transport is not None and not self._transport.is_closing() and paused != self._paused:
            (self._transport.pause_reading if paused else self._transport.resume_reading)()
            self._paused = paused

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()

    async def _wait(self) -> None:
        if self._error is not None:
            raise ConnectionError(str(self._error)) from self._error
        self._changed = asyncio.get_running_loop().create_future()
        await self._changed

    def _wake(self) -> None:
        if self._changed is not None and not self._changed.done():
            self._changed.set_result(None)

    # called by the transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            self._error, self._keeps = ConnectionError(f"it does not speak HTTP: {error}"), False
            self.close()
        self._pause(self._buffered > MAX_BUFFERED_BYTES)
        self._wake()

    def connection_lost(self, exc: Exception | None) -> None:
        self._keeps = False
        if self._until_end and exc is None:
            self.is_done = True
        self._error = self._error or exc or ConnectionError("the server closed the connection")
        self._wake()

    # called by the parser

    def on_header(self, name: bytes, value: bytes) -> None:
        self.headers[name.lower()] = value

    def on_headers_complete(self) -> None:
        self.status, self._has_head = self._parser.get_status_code(), True
        framed = b"content-length" in self.headers or b"transfer-encoding" in self.headers
        self._until_end = not framed and self.status not in WITHOUT_BODY

    def on_body(self, body: bytes) -> None:
        self._parts.append(body)
        self._buffered += len(body)

    def on_message_complete(self) -> None:
        self.is_done, self._keeps = True, self._parser.should_keep_alive()


@functools.cache
def _trusted() -> ssl.SSLContext:
    """Certificates of this machine, or of SSL_CERT_FILE; read once, since that takes time."""
    return ssl.create_default_context()


def _port(parts: SplitResult) -> int:
    return parts.port or PORTS[parts.scheme]


def _proxy_of(server: SplitResult) -> SplitResult | None:
    """The proxy on the way to a server, by the environment."""
    found = getproxies().get(server.scheme)
    if not found or proxy_bypass(server.netloc):
        return None
    proxy = urlsplit(found if "://" in found else f"http://{found}")
    if proxy.scheme != "http":
        raise OSError(f"the proxy {proxy.hostname} must be an http:// address")
    return proxy


def _proxy_key(proxy: SplitResult) -> list[Header]:
    if proxy.username is None:
        return []
    words = f"{unquote(proxy.username)}:{unquote(proxy.password or '')}"
    return [(b"proxy-authorization", b"Basic " + base64.b64encode(words.encode()))]
