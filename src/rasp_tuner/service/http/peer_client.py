"""PeerClient: HTTP/1.1 requests to other servers, on connections that are kept. Lean: most requests may pass here."""

import asyncio
import ssl
from collections import deque
from collections.abc import AsyncIterator, Sequence
from urllib.parse import urlsplit

import httptools

CONNECT_S = 2.0
KEEP_IDLE_S = 15.0  # a server closes its side after 30 s
MAX_IDLE = 64  # connections to one server
MAX_BUFFERED_BYTES = 1_048_576  # of an answer that is read more slowly than it comes

Header = tuple[bytes, bytes]


class NotSent(ConnectionError):
    """There was no connection: the request was not sent."""


class PeerClient:
    """For one event loop; `answer` is read to its end, or closed, before its connection is used again."""

    def __init__(self) -> None:
        self._idle: dict[str, list[tuple[float, _Connection]]] = {}
        self._open: set[_Connection] = set()

    async def send(
        self, server: str, method: str, target: bytes, headers: Sequence[Header], body: bytes = b""
    ) -> "PeerAnswer":
        """The head of the answer; raises NotSent, or another ConnectionError if the request may have been received."""
        connection = self._kept(server) or await self._connected(server)
        head = [
            b"%s %s HTTP/1.1\r\nhost: %s\r\n" % (method.encode(), target, urlsplit(server).netloc.encode()),
            *(b"%s: %s\r\n" % header for header in headers),
            b"content-length: %d\r\n\r\n" % len(body) if body or method == "POST" else b"\r\n",
        ]
        answer = PeerAnswer(self, server, connection)
        try:
            await connection.send(b"".join(head) + body)
        except BaseException:
            answer.close()
            raise
        return answer

    def close(self) -> None:
        for connection in list(self._open):
            connection.close()

    def _kept(self, server: str) -> "_Connection | None":
        idle = self._idle.get(server, [])
        now = asyncio.get_running_loop().time()
        while idle:
            since, connection = idle.pop()
            if now - since < KEEP_IDLE_S and connection.is_usable:
                return connection
            self.release(server, connection, keep=False)
        return None

    async def _connected(self, server: str) -> "_Connection":
        parts = urlsplit(server)
        secure = ssl.create_default_context() if parts.scheme == "https" else None
        port = parts.port or (443 if secure else 80)
        loop = asyncio.get_running_loop()
        try:
            opening = loop.create_connection(_Connection, parts.hostname or "", port, ssl=secure)
            _, connection = await asyncio.wait_for(opening, CONNECT_S)
        except (OSError, TimeoutError) as error:
            raise NotSent(str(error)) from error
        self._open.add(connection)
        return connection

    def release(self, server: str, connection: "_Connection", keep: bool) -> None:
        """Keep a connection for the next request, or close it."""
        idle = self._idle.setdefault(server, [])
        if keep and connection.is_usable and len(idle) < MAX_IDLE:
            idle.append((asyncio.get_running_loop().time(), connection))
        else:
            self._open.discard(connection)
            connection.close()


class PeerAnswer:
    """Status, headers and body of an answer."""

    def __init__(self, client: PeerClient, server: str, connection: "_Connection") -> None:
        self._client, self._server = client, server
        self._connection: _Connection | None = connection
        self._source = connection

    @property
    def status(self) -> int:
        return self._source.status

    @property
    def headers(self) -> list[Header]:
        return self._source.headers

    async def parts(self) -> AsyncIterator[bytes]:
        """The body as it comes; raises ConnectionError if it ends early."""
        while (part := await self._source.next_part()) is not None:
            yield part

    async def read(self) -> bytes:
        return b"".join([part async for part in self.parts()])

    def close(self) -> None:
        """Give the connection back, if the answer was read to its end."""
        if self._connection is not None:
            self._client.release(self._server, self._connection, keep=self._connection.is_done)
            self._connection = None


class _Connection(asyncio.Protocol):
    """One connection; one request at a time."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._parser = httptools.HttpResponseParser(self)
        self._changed: asyncio.Future[None] | None = None
        self._paused = False
        self._begin()
        self.is_done = True

    def _begin(self) -> None:
        self.status = 0
        self.headers: list[Header] = []
        self._parts: deque[bytes] = deque()
        self._buffered = 0
        self._has_head = self.is_done = False
        self._keeps = True
        self._error: Exception | None = None

    @property
    def is_usable(self) -> bool:
        return self._transport is not None and not self._transport.is_closing() and self._keeps

    async def send(self, data: bytes) -> None:
        """Send a request, and wait for the head of the answer."""
        self._begin()
        if self._transport is None or self._transport.is_closing():
            raise NotSent("the connection was closed")
        self._transport.write(data)
        while not self._has_head:
            await self._wait()

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

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            self._error, self._keeps = error, False
            self.close()
        self._pause(self._buffered > MAX_BUFFERED_BYTES)
        self._wake()

    def connection_lost(self, exc: Exception | None) -> None:
        self._keeps = False
        self._error = self._error or exc or ConnectionError("the server closed the connection")
        self._wake()

    # called by the parser

    def on_header(self, name: bytes, value: bytes) -> None:
        self.headers.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        self.status, self._has_head = self._parser.get_status_code(), True

    def on_body(self, body: bytes) -> None:
        self._parts.append(body)
        self._buffered += len(body)

    def on_message_complete(self) -> None:
        self.is_done, self._keeps = True, self._parser.should_keep_alive()
