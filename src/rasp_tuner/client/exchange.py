"""Exchange: requests to one server, with retries and deadlines, on one event loop."""

import asyncio
import itertools
import json
import logging
import re
import time
from collections.abc import AsyncIterator, Coroutine, Mapping
from dataclasses import dataclass
from typing import Any, Literal
from urllib.parse import quote, urlsplit

from rasp_tuner.base.checks import number, show
from rasp_tuner.client import errors
from rasp_tuner.client.errors import RequestRefused, ServerUnavailable
from rasp_tuner.client.server_state import ServerState, backoff
from rasp_tuner.errors import InvalidValue, RaspError
from rasp_tuner.http_client import Connection, HttpClient, HttpReply

FIRST_WAIT_S, LONGEST_WAIT_S = 0.05, 2.0  # between attempts, doubling
MAX_RETRY_AFTER_S = 60.0  # a longer Retry-After is cut to this
MAX_REQUESTS = 100  # at a time; more wait, and their deadline runs
LOCAL_HOSTS = ("127.0.0.1", "localhost", "::1")  # behind no proxy
URL_MARKS = "/?&=%+,:;@!$'()*~"  # that stand in a path for themselves

AskDeadline = float | Literal["auto"] | None

log = logging.getLogger("rasp_tuner.client")


@dataclass(frozen=True, slots=True)
class HttpRequest:
    """An HTTP request; `body` is sent as JSON, or `content` as it is."""

    method: str
    path: str
    body: object = None
    content: bytes | None = None
    headers: Mapping[str, str] | None = None

    def as_sent(self) -> tuple[bytes, dict[str, str]]:
        """Body and headers."""
        headers = dict(self.headers or {})
        if self.content is not None:
            return self.content, {**headers, "Content-Type": "application/x-ndjson"}
        if self.method != "POST":
            return b"", headers
        body = {} if self.body is None else self.body
        text = json.dumps(body, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
        return text.encode(), {**headers, "Content-Type": "application/json"}


@dataclass(frozen=True, slots=True)
class HttpAnswer:
    """A status below 300, or 304, and the JSON body, None if it was empty."""

    status: int
    body: Any


class Exchange:
    """Calls to one server."""

    def __init__(self, url: str, key: str | None, timeout: float, ask_deadline: AskDeadline) -> None:
        self.url, self.timeout = checked_url(url), positive_seconds("timeout", timeout)
        self._headers = {"User-Agent": "rasp-tuner", **key_headers(key)}
        self.asks_wait = ask_deadline is None  # for their answer, and raise if there is none
        self._deadline = None
        if isinstance(ask_deadline, str) and ask_deadline != "auto":
            raise InvalidValue(f"ask_deadline must be 'auto', seconds or None, got {show(ask_deadline)}")
        if ask_deadline is not None and ask_deadline != "auto":
            self._deadline = positive_seconds("ask_deadline", ask_deadline)
        self.is_closed = False
        self.reset_after_fork()

    def reset_after_fork(self) -> None:
        """Forget connections and requests that are on their way: in the child of a fork their answers do not come."""
        self.epoch = object()
        self.server = ServerState(self.url, self._deadline, self.timeout)
        self.http = HttpClient(proxies=urlsplit(self.url).hostname not in LOCAL_HOSTS)
        self._free = asyncio.Semaphore(MAX_REQUESTS)
        self._tasks: set[asyncio.Task[Any]] = set()

    async def call(self, request: HttpRequest, *, idempotent: bool = True, timeout: float | None = None) -> HttpAnswer:
        """The answer, with as many attempts as fit in `timeout`; else ServerUnavailable.

        `idempotent` False: it is retried only if the server certainly did nothing: it was not reached, or answered 429
        or 503.
        """
        whole = self.timeout if timeout is None else timeout
        until = time.monotonic() + whole
        for attempt in itertools.count(1):
            left = max(until - time.monotonic(), 0.01)
            try:
                answer = await self.attempt(request, min(left, max(whole / 3, 1.0)))
            except ServerUnavailable as error:
                pause = error.retry_after
                if pause is None:
                    pause = backoff(attempt, FIRST_WAIT_S, LONGEST_WAIT_S)
                safe = idempotent or error.retry_after is not None or not error.reached
                if not safe or time.monotonic() + pause >= until:
                    raise
                await asyncio.sleep(pause)
            except RaspError:
                self.server.record_success()  # a refusal is an answer, too
                raise
            else:
                self.server.record_success()
                return answer
        raise AssertionError("the loop ends by itself")

    async def attempt(self, request: HttpRequest, seconds: float) -> HttpAnswer:
        """The answer to a request that is sent once; else ServerUnavailable, or the error that it says."""
        connection: Connection | None = None
        reply: HttpReply | None = None
        content, headers = request.as_sent()
        try:
            async with asyncio.timeout(max(seconds, 0.001)), self._free:
                connection = await self._connect()
                reply = await self._send(connection, request.method, request.path, headers, content)
                body = await reply.read()
        except (OSError, ValueError) as reason:
            raise self._no_answer(reason, seconds, reached=connection is not None) from reason
        finally:
            if reply is not None:
                reply.close()
        return self._parsed(request.path, reply, body)

    async def lines(self, path: str, silence: float) -> AsyncIterator[list[str]]:
        """The lines of an answer as they arrive, some at a time; ServerUnavailable after so long without data."""
        reply: HttpReply | None = None
        try:
            async with asyncio.timeout(silence):
                reply = await self._send(await self._connect(), "GET", path, {}, b"")
            if reply.status >= 300:
                self._parsed(path, reply, await reply.read())
            rest, parts = b"", reply.parts()
            while True:
                async with asyncio.timeout(silence):
                    part = await anext(parts, b"")
                if not part:
                    break
                *whole, rest = (rest + part).split(b"\n")
                if whole:
                    yield [line.decode().removesuffix("\r") for line in whole]
            if rest:
                yield [rest.decode()]
        except (OSError, ValueError) as reason:
            if isinstance(reason, RaspError):
                raise
            raise self._no_answer(reason, silence, reached=True) from reason
        finally:
            if reply is not None:
                reply.close()

    def start(self, doing: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run it beside all else, until the client is closed; ServerUnavailable is ignored there."""
        task = asyncio.create_task(doing)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    async def close(self) -> None:
        """Stop all requests, also those that hang."""
        self.is_closed = True
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self.http.close()

    async def _connect(self) -> Connection:
        if self.is_closed:
            raise errors.closed_error(self.url)
        parts = urlsplit(self.url)
        return await self.http.connect(f"{parts.scheme}://{parts.netloc}")

    async def _send(
        self, connection: Connection, method: str, path: str, headers: Mapping[str, str], content: bytes
    ) -> HttpReply:
        target = quote(urlsplit(self.url).path + path, safe=URL_MARKS).encode()
        sent = [(name.encode(), value.encode()) for name, value in (self._headers | dict(headers)).items()]
        return await self.http.send(connection, method, target, sent, content)

    def _no_answer(self, reason: Exception, seconds: float, reached: bool) -> RaspError:
        if isinstance(reason, TimeoutError):
            return ServerUnavailable(f"no answer from {self.url} within {seconds:.3g} s", reached=reached)
        if isinstance(reason, OSError):
            said = str(reason) or type(reason).__name__
            return ServerUnavailable(f"no server at {self.url} ({said})", reached=reached)
        return RequestRefused(f"{self.url}: {reason}", "protocol")

    def _parsed(self, path: str, reply: HttpReply, content: bytes) -> HttpAnswer:
        """The answer, or the exception for its error."""
        status, foreign = reply.status, False
        try:
            value = json.loads(content) if content else None
        except ValueError:
            value, foreign = None, True
        if (status < 300 or status == 304) and not foreign:
            return HttpAnswer(status, value)
        error = value.get("error") if isinstance(value, Mapping) else None
        if status in (429, 503) or status >= 500:
            said = error.get("message") if isinstance(error, Mapping) else f"status {status}"
            raise ServerUnavailable(f"{self.url} cannot now: {said}", _retry_after(reply.headers))
        if not isinstance(error, Mapping):
            message = f"{self.url} answered {path} with status {status} and no reason: is it a RASP server?"
            raise RequestRefused(message, "foreign")
        raise errors.exception_for(error, path.partition("?")[0].rsplit("/", 1)[-1])

    def _ended(self, task: "asyncio.Task[None]") -> None:
        self._tasks.discard(task)
        error = None if task.cancelled() or self.is_closed else task.exception()
        if error is not None and not isinstance(error, ServerUnavailable):
            log.warning("in the background: %s", error)


def _retry_after(headers: Mapping[bytes, bytes]) -> float | None:
    """Seconds; None if the header is missing or not in seconds."""
    given = headers.get(b"retry-after", b"")
    return min(float(given), MAX_RETRY_AFTER_S) if given.isdigit() else None


def checked_url(url: object) -> str:
    try:
        parts = urlsplit(str(url))
        sound = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0 and not parts.username
    except ValueError:
        sound = False
    if not isinstance(url, str) or not sound:
        raise InvalidValue(f"url must look like http://127.0.0.1:8321, got {show(url)}")
    return url.rstrip("/")


def key_headers(key: object) -> dict[str, str]:
    """The headers that carry the key, if there is one."""
    if key is None:
        return {}
    if not isinstance(key, str) or not re.fullmatch(r"[!-~]+", key):
        raise InvalidValue("key must be one word of printable ASCII, as `rasp keys create` printed it")  # it is secret
    return {"Authorization": f"Bearer {key}"}


def positive_seconds(field: str, value: object) -> float:
    seconds = number(field, value)
    if seconds <= 0.0:
        raise InvalidValue(f"{field} must be positive seconds, got {seconds!r}")
    return seconds
