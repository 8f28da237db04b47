"""HttpConnection: HTTP/1.1 on one connection, with limits on sizes, on time and on the number of connections.

httptools parses; the gateway judges a request when its head is complete and answers it when its body is. Requests of
one connection are answered in their order, one at a time. Nothing a client sends, or leaves unsent, takes more memory
or time than the limits here and in limits.py allow.
"""

import asyncio
import functools
import logging
import urllib.parse
from collections import deque
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any

import httptools
from uvicorn.server import ServerState

from rasp_tuner.service.http.gateway import HEADERS_READ, Gateway
from rasp_tuner.service.http.http_errors import HttpError
from rasp_tuner.service.http.route import Request, Response, Route
from rasp_tuner.service.limits import ConnectionCount
from rasp_tuner.service.service_errors import ServiceError, internal_error

PIECE_BYTES = 16_384  # parsed at a time, so that limits are checked at least as often
MAX_HEAD_BYTES = 32_768  # about: a piece more may come
MAX_HEADERS = 100
MAX_FRAMING_BYTES = 65_536  # sizes of chunks, their extensions and trailers, beside an eighth of the body
MAX_UNREAD_BYTES = 1_048_576  # of a body whose request was answered already
MAX_PIPELINED = 32  # requests of one connection that wait for those before them
READ_TIMEOUT_S = 30.0  # for a whole request, and longer by its body at this rate:
MIN_BODY_BYTES_A_SECOND = 65_536
WRITE_TIMEOUT_S = 30.0  # for a client that does not read its answer
IDLE_TIMEOUT_S = 30.0  # between two requests
LINGER_S, LINGER_BYTES = 2.0, 4_194_304  # that the rest of a refused request may take

SECURITY_HEADERS = (
    b"content-security-policy: default-src 'self'; base-uri 'none'; object-src 'none'; frame-ancestors 'none';"
    b" form-action 'self'\r\nx-content-type-options: nosniff\r\nreferrer-policy: no-referrer\r\n"
    b"cache-control: no-store\r\n"
)
WITHOUT_BODY = (HTTPStatus.NO_CONTENT, HTTPStatus.NOT_MODIFIED)
CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
LAST_CHUNK = b"0\r\n\r\n"

log = logging.getLogger("rasp_tuner.serve")


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


@dataclass(slots=True, eq=False)
class OpenRequest:
    """A request and its answer."""

    request: Request
    keeps_alive: bool
    chunks: bool = True  # whether its client reads them: not with HTTP/1.0
    route: Route | None = None  # none of a request that is refused by its head
    refusal: Response | None = None
    expects_continue: bool = False
    is_whole: bool = False
    is_begun: bool = False  # to be answered
    is_answered: bool = False
    parts: list[bytes] = field(default_factory=list)  # of the body

    @property
    def is_ready(self) -> bool:
        """Whether it can be answered: the body of a GET is of no interest."""
        return self.is_whole or self.refusal is not None or (self.route is not None and self.route.method != "POST")


class HttpConnection(asyncio.Protocol):
    """Made by uvicorn's server, which starts, ticks and stops; `close_if_late` is called every second."""

    def __init__(
        self, *, server_state: ServerState, gateway: Gateway, count: ConnectionCount, **_settings: Any
    ) -> None:
        """Of what uvicorn gives, only `server_state` is used."""
        self._state, self._gateway, self._count, self._counted_as = server_state, gateway, count, ""
        self._all: set[Any] = server_state.connections
        self._loop = asyncio.get_running_loop()
        self._parser = httptools.HttpRequestParser(self)
        self._transport: asyncio.Transport | None = None
        self._address = "unknown"
        self._incoming: Incoming | None = None  # None while the client waits for us
        self._receiving: OpenRequest | None = None  # the request that is being parsed, from its head on
        self._unanswered: deque[OpenRequest] = deque()
        self._is_ending = False  # nothing more is parsed
        self._lingers_for = 0  # bytes that may come after the last answer
        self._idle_since: float | None = None  # when the latest answer was sent, if nothing has come since
        self._streaming: asyncio.Task[None] | None = None
        self._is_endless = False  # the answer under way
        self._write_paused_at: float | None = None
        self._can_write = asyncio.Event()
        self._can_write.set()
        self._url, self._headers, self._header_count = b"", dict[bytes, bytes](), 0
        self._twice = b""  # a header that came twice

    # called by the transport

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self._transport = transport
        self._all.add(self)
        self._incoming = Incoming(self._loop.time())
        peer = transport.get_extra_info("peername")
        self._address = str(peer[0]) if isinstance(peer, tuple) and peer else "unknown"
        if self._count.enter(self._address):
            self._counted_as = self._address
        else:
            self._write(_words(503, "too many connections\n"), closes=True)
            self._end_after_answers()
            self._close()

    def connection_lost(self, exc: Exception | None) -> None:
        del exc
        self._all.discard(self)
        if self._counted_as:
            self._count.leave(self._counted_as)
        self._transport, self._is_ending = None, True
        self._can_write.set()
        if self._streaming is not None:
            self._streaming.cancel()
        for exchange in self._unanswered:
            if not exchange.is_begun:
                self._release(exchange)

    def data_received(self, data: bytes) -> None:
        if self._lingers_for:
            self._lingers_for = max(self._lingers_for - len(data), 0)
            if not self._lingers_for:
                self._close()
        for start in range(0, len(data), PIECE_BYTES):
            if self._is_ending:
                return
            piece, before = data[start : start + PIECE_BYTES], self._incoming
            try:
                self._parser.feed_data(piece)
            except httptools.HttpParserUpgrade:
                self._end_after_answers()  # the request is answered as any other
            except httptools.HttpParserError:
                self._refuse("Invalid HTTP request received.")
            now = self._incoming
            if now is not None and now is before:
                now.received += len(piece)
                if now.is_too_long:
                    self._refuse("The request is too long.")

    def eof_received(self) -> bool:
        """The client has ended its side: what came whole is answered, but a stream without end is over."""
        last = self._receiving
        if last is not None and not last.is_ready:
            self._unanswered.remove(last)
            self._release(last)
        self._end_after_answers()
        return bool(self._unanswered) and not self._is_endless

    def pause_writing(self) -> None:
        self._write_paused_at = self._loop.time()
        self._can_write.clear()

    def resume_writing(self) -> None:
        self._write_paused_at = None
        self._can_write.set()

    # called by the parser; what is raised ends in a 400

    def on_message_begin(self) -> None:
        before, self._idle_since = self._incoming, None
        self._incoming = Incoming(self._loop.time() if before is None else before.began)
        self._url, self._headers, self._header_count, self._twice = b"", {}, 0, b""

    def on_url(self, url: bytes) -> None:
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._incoming is None or not self._incoming.in_head:
            return  # a trailer: nothing here reads one
        self._header_count += 1
        if self._header_count > MAX_HEADERS:
            raise ValueError(f"more than {MAX_HEADERS} headers")
        name = name.lower()
        if name in self._headers and name in HEADERS_READ:
            self._twice = name  # others may read the other one
        self._headers[name] = value

    def on_headers_complete(self) -> None:
        if self._incoming is not None:
            self._incoming.in_head, self._incoming.received = False, 0
        if len(self._unanswered) >= MAX_PIPELINED:
            raise ValueError(f"more than {MAX_PIPELINED} requests wait")
        exchange = self._receiving = self._exchange()
        try:
            if self._twice:
                raise HttpError(400, "invalid_request", f"the header {self._twice.decode()} comes twice")
            exchange.route = self._gateway.admit(exchange.request)
        except ServiceError as error:
            exchange.refusal = self._gateway.refuse(error, exchange.request)
        except Exception:
            log.exception("a request failed")
            exchange.refusal = self._gateway.failure(internal_error(), exchange.request)
        self._unanswered.append(exchange)
        self._read(len(self._unanswered) == 1)
        if exchange.route is None or exchange.route.method != "POST" or exchange.expects_continue:
            self._advance()

    def _exchange(self) -> OpenRequest:
        """What the head of a request says."""
        parser, url = self._parser, httptools.parse_url(self._url)
        path = url.path.decode("ascii")
        request = Request(
            parser.get_method().decode("ascii"),
            urllib.parse.unquote(path) if "%" in path else path,
            url.query or b"",
            self._url,
            self._headers,
            self._address,
        )
        is_old = parser.get_http_version() == "1.0"
        exchange = OpenRequest(request, parser.should_keep_alive() and not is_old, not is_old)
        exchange.expects_continue = self._headers.get(b"expect", b"").lower() == b"100-continue"
        return exchange

    def on_body(self, body: bytes) -> None:
        exchange, incoming = self._receiving, self._incoming
        if exchange is None or incoming is None:
            return
        incoming.body += len(body)
        held = exchange.request.held
        if exchange.is_begun or exchange.refusal is not None or exchange.route is None or held is None:
            incoming.unread += len(body)
            return
        try:
            self._gateway.hold(exchange.route, held, len(body))
            exchange.parts.append(body)
        except ServiceError as error:
            exchange.refusal = self._gateway.refuse(error, exchange.request)
            self._advance()

    def on_message_complete(self) -> None:
        exchange, self._incoming, self._receiving = self._receiving, None, None
        if exchange is not None:
            exchange.is_whole = True
            self._advance()

    # answers

    def _advance(self) -> None:
        """Answer the first request, if it can be answered and is not yet."""
        if not self._unanswered or self._unanswered[0].is_begun:
            return
        exchange = self._unanswered[0]
        if exchange.is_ready:
            exchange.is_begun = True
            exchange.request.body, exchange.parts = b"".join(exchange.parts if exchange.refusal is None else ()), []
            task = self._loop.create_task(self._answer(exchange))
            self._state.tasks.add(task)
            task.add_done_callback(self._state.tasks.discard)
        elif exchange.expects_continue and self._transport is not None:
            exchange.expects_continue = False
            self._transport.write(CONTINUE)

    async def _answer(self, exchange: OpenRequest) -> None:
        try:
            response = exchange.refusal
            if response is None and exchange.route is not None:
                response = await self._gateway.answer(exchange.route, exchange.request)
            if response is not None:
                await self._send(response, exchange)
        except Exception:
            log.exception("an answer broke off")
            self._abort()  # half an answer must not look like a whole one
        finally:
            self._release(exchange)
            self._finish(exchange)

    def _finish(self, exchange: OpenRequest) -> None:
        """Go on to the next request, or end the connection after the last."""
        exchange.is_answered = True
        self._unanswered.popleft()
        self._state.total_requests += 1
        if not exchange.keeps_alive or (self._is_ending and not self._unanswered) or self._transport is None:
            (self._close if exchange.is_whole else self._linger)()
        else:
            self._idle_since = self._loop.time() if self._incoming is None else None
            self._read(len(self._unanswered) <= 1)
            if self._unanswered:
                self._advance()

    def _release(self, exchange: OpenRequest) -> None:
        if exchange.request.held is not None:
            exchange.request.held.release()

    async def _send(self, response: Response, exchange: OpenRequest) -> None:
        exchange.keeps_alive &= not response.closes
        is_head, closes = exchange.request.method == "HEAD", not exchange.keeps_alive
        await self._can_write.wait()
        if isinstance(response.body, bytes):
            self._write(response, closes=closes, is_head=is_head)
            return
        async with aclosing(response.body) as parts:
            try:
                part = await anext(parts, b"")
            except ServiceError as error:  # it is an error yet, and no broken answer
                self._write(self._gateway.refuse(error, exchange.request), closes=closes, is_head=is_head)
                return
            self._is_endless = response.is_endless
            self._write(response, closes=closes, chunked=exchange.chunks and not is_head)
            if not is_head:
                await self._stream(part, parts, _chunk if exchange.chunks else bytes)

    async def _stream(self, part: bytes, parts: AsyncGenerator[bytes, None], framed: Callable[[bytes], bytes]) -> None:
        self._streaming = asyncio.current_task()
        try:
            while part and self._transport is not None:
                self._transport.write(framed(part))
                await self._can_write.wait()
                part = await anext(parts, b"")
            if self._transport is not None and framed is _chunk:
                self._transport.write(LAST_CHUNK)
        finally:
            self._streaming = None

    def _write(self, response: Response, *, closes: bool, is_head: bool = False, chunked: bool = False) -> None:
        """The head, and the body if it is bytes and wanted."""
        if self._transport is not None:
            date = b""
            for header in self._state.default_headers:
                date += b"%s: %s\r\n" % header
            body = response.body if isinstance(response.body, bytes) and not is_head else b""
            self._transport.write(_head(response, date, chunked=chunked, closes=closes) + body)

    def _read(self, wanted: bool) -> None:
        """Go on reading, or let the client wait."""
        if self._transport is not None and not self._transport.is_closing() and self._transport.is_reading() != wanted:
            (self._transport.resume_reading if wanted else self._transport.pause_reading)()

    # ends

    def _refuse(self, words: str) -> None:
        """End the connection: with a 400 at its turn, unless the answer to what is wrong is under way or sent."""
        exchange = self._receiving
        if exchange is None:
            request = Request("GET", "", b"", b"", {}, self._address)
            exchange = OpenRequest(request, keeps_alive=False)
            self._unanswered.append(exchange)
        if not exchange.is_begun:
            exchange.refusal = _words(400, words)
        exchange.keeps_alive = False
        self._end_after_answers()
        if exchange.is_answered:
            self._close()
        self._advance()

    def _end_after_answers(self) -> None:
        """Read nothing more; the connection ends with the last answer, which says so."""
        if self._unanswered:
            self._unanswered[-1].keeps_alive = False
        self._is_ending, self._incoming = True, None
        self._read(False)

    def shutdown(self) -> None:
        """Called when the server stops: end now, or with the answers to what has come or is coming."""
        if self._unanswered:
            self._unanswered[-1].keeps_alive = False
        else:
            self._close()

    def _linger(self) -> None:
        """End our side, and let the client send the rest: closing now could take the answer from it unread."""
        if self._transport is not None and not self._transport.is_closing():
            self._is_ending, self._incoming, self._lingers_for = True, None, LINGER_BYTES
            self._transport.write_eof()
            self._read(True)
            self._loop.call_later(LINGER_S, self._close)

    def _close(self) -> None:
        if self._transport is not None:
            self._transport.close()

    def _abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def close_if_late(self, now: float) -> None:
        """Close the connection if its client has not sent its request, or not read the answer, in time."""
        is_idle = self._idle_since is not None and now - self._idle_since > IDLE_TIMEOUT_S
        if is_idle or (self._incoming is not None and self._incoming.is_late(now)):
            self._close()
        if self._write_paused_at is not None and now - self._write_paused_at > WRITE_TIMEOUT_S:
            self._abort()  # close() would wait until all is written


def _head(response: Response, date: bytes, *, chunked: bool, closes: bool) -> bytes:
    """Status line and headers; `date` is a header line."""
    lines = [_first_lines(response.status, response.content_type), date]
    if isinstance(response.body, bytes) and response.status not in WITHOUT_BODY:
        lines.append(b"content-length: %d\r\n" % len(response.body))
    if chunked:
        lines.append(b"transfer-encoding: chunked\r\n")
    if closes:
        lines.append(b"connection: close\r\n")
    for name, value in response.headers.items():
        lines.append(f"{name.lower()}: {value}\r\n".encode())
    lines.append(b"\r\n")
    return b"".join(lines)


def _chunk(part: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(part), part)


@functools.lru_cache(256)
def _first_lines(status: int, content_type: str | None) -> bytes:
    typed = b"" if content_type is None else f"content-type: {content_type}\r\n".encode()
    return f"HTTP/1.1 {status} {HTTPStatus(status).phrase}\r\n".encode() + typed + SECURITY_HEADERS


def _words(status: int, words: str) -> Response:
    return Response(words.encode(), status, "text/plain; charset=utf-8", closes=True)
