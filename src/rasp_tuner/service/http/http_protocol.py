"""BoundedHttpProtocol: HTTP/1.1 on one connection, with limits on sizes, on time and on the number of connections.

uvicorn has none of them: an endless head or endless trailers would fill memory, and half a request, or an answer that
nobody reads, would keep its connection open for ever.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from rasp_tuner.service.limits import ConnectionCount

PIECE_BYTES = 16_384  # parsed at a time, so that limits are checked at least as often
MAX_HEAD_BYTES = 32_768  # about: a piece more may come
MAX_HEADERS = 100
MAX_FRAMING_BYTES = 65_536  # sizes of chunks, their extensions and trailers, beside an eighth of the body
MAX_UNREAD_BYTES = 1_048_576  # of a body whose request was answered already
MAX_PIPELINED = 32  # requests of one connection that wait for those before them
READ_TIMEOUT_S = 30.0  # for a whole request, and longer by its body at this rate:
MIN_BODY_BYTES_A_SECOND = 65_536
WRITE_TIMEOUT_S = 30.0  # for a client that does not read its answer
REFUSED = (
    b"HTTP/1.1 503 Service Unavailable\r\ncontent-type: text/plain\r\ncontent-length: 21\r\nconnection: close\r\n\r\n"
    b"too many connections\n"
)

log = logging.getLogger("rasp_tuner.serve.http")
log.setLevel(logging.ERROR)  # uvicorn would log a line for each wrong request: anyone could fill the disk


@dataclass(slots=True)
class Incoming:
    """A request of which not all bytes have arrived, or a new connection without one."""

    began: float
    in_head: bool = True
    received: int = 0  # bytes of the head, then of all that follows it
    body: int = 0  # bytes of the body
    unread: int = 0  # of them, those that came after the answer

    @property
    def is_too_long(self) -> bool:
        if self.in_head:
            return self.received > MAX_HEAD_BYTES
        return self.received - self.body > MAX_FRAMING_BYTES + self.body // 8 or self.unread > MAX_UNREAD_BYTES

    def is_late(self, now: float) -> bool:
        return now - self.began > READ_TIMEOUT_S + self.body / MIN_BODY_BYTES_A_SECOND


class BoundedHttpProtocol(HttpToolsProtocol):
    """Closed by `close_if_late`, which the server calls every second."""

    def __init__(self, *given: Any, count: ConnectionCount, **settings: Any) -> None:
        super().__init__(*given, **settings)
        self.logger = log
        self._count, self._counted_as = count, ""
        self._incoming: Incoming | None = None  # None while the client waits for us
        self._unanswered: deque[RequestResponseCycle] = deque()
        self._write_paused_at: float | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._incoming = Incoming(self.loop.time())
        address = self.client[0] if self.client else "unknown"
        if self._count.enter(address):
            self._counted_as = address
        else:
            transport.write(REFUSED)
            transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._counted_as:
            self._count.leave(self._counted_as)
        super().connection_lost(exc)
        for cycle in self._unanswered:  # uvicorn tells only the last one
            cycle.disconnected = True
            cycle.message_event.set()

    def data_received(self, data: bytes) -> None:
        for start in range(0, len(data), PIECE_BYTES):
            if self.transport.is_closing():
                return
            piece, before = data[start : start + PIECE_BYTES], self._incoming
            super().data_received(piece)
            now = self._incoming
            if now is not None and now is before:
                now.received += len(piece)
                if now.is_too_long and not self.transport.is_closing():
                    self._refuse("The request is too long.")

    def _refuse(self, words: str) -> None:
        if self.cycle is not None and self.cycle.response_started:
            self.transport.close()  # the answer is under way or done: a second one would only confuse
        else:
            self.send_400_response(words)

    # called by the parser; what it raises ends in a 400

    def on_message_begin(self) -> None:
        super().on_message_begin()
        before = self._incoming
        self._incoming = Incoming(self.loop.time() if before is None else before.began)

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._incoming is None or not self._incoming.in_head:
            return  # a trailer: nothing here reads one
        if len(self.headers) >= MAX_HEADERS:
            raise ValueError(f"more than {MAX_HEADERS} headers")
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        if self._incoming is not None:
            self._incoming.in_head, self._incoming.received = False, 0
        if len(self._unanswered) >= MAX_PIPELINED:
            raise ValueError(f"more than {MAX_PIPELINED} requests wait")
        super().on_headers_complete()
        self._unanswered.append(self.cycle)

    def on_body(self, body: bytes) -> None:
        if self._incoming is not None:
            self._incoming.body += len(body)
            if self.cycle.response_complete:
                self._incoming.unread += len(body)
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._incoming = None
        super().on_message_complete()

    # called by uvicorn and by the transport

    def on_response_complete(self) -> None:
        self._unanswered.popleft()
        super().on_response_complete()

    def pause_writing(self) -> None:
        self._write_paused_at = self.loop.time()
        super().pause_writing()

    def resume_writing(self) -> None:
        self._write_paused_at = None
        super().resume_writing()

    def close_if_late(self, now: float) -> None:
        """Close the connection if its client has not sent its request, or not read the answer, in time."""
        if self._incoming is not None and self._incoming.is_late(now):
            self.transport.close()
        if self._write_paused_at is not None and now - self._write_paused_at > WRITE_TIMEOUT_S:
            self.transport.abort()  # close() would wait until all is written


def close_late_connections(connections: Iterable[Any]) -> None:
    """Close all connections whose client is late."""
    now = asyncio.get_running_loop().time()
    for connection in list(connections):
        if isinstance(connection, BoundedHttpProtocol):
            connection.close_if_late(now)
