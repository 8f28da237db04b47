"""What the client does over the network, as values: a call is a generator of steps, and a shell performs them.

The generators know retries, deadlines and fallbacks, and do no input or output. transport.py performs their steps with
threads, async_transport.py with asyncio, so that both clients are one.
"""

import itertools
import json
import re
import time
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, Protocol, TypeVar
from urllib.parse import urlsplit

from rasp_tuner.base.checks import number, show
from rasp_tuner.client import errors
from rasp_tuner.client.errors import ServerUnavailable
from rasp_tuner.client.server_state import ServerState, backoff
from rasp_tuner.errors import InvalidValue, RaspError

FIRST_WAIT_S, LONGEST_WAIT_S = 0.05, 2.0  # between attempts, doubling
MAX_RETRY_AFTER_S = 60.0  # a longer Retry-After is cut to this

T = TypeVar("T")
AskDeadline = float | Literal["auto"] | None


class Signal(Protocol):
    """`threading.Event` or `asyncio.Event`."""

    def set(self) -> None: ...
    def clear(self) -> None: ...
    def is_set(self) -> bool: ...


@dataclass(frozen=True, slots=True)
class Request:
    """An HTTP request; `body` is sent as JSON, or `content` as it is."""

    method: str
    path: str
    body: object = None
    content: bytes | None = None
    headers: Mapping[str, str] | None = None

    def as_sent(self) -> tuple[bytes | None, dict[str, str]]:
        """Body and headers."""
        headers = dict(self.headers or {})
        if self.content is not None:
            return self.content, {**headers, "Content-Type": "application/x-ndjson"}
        if self.method != "POST":
            return None, headers
        body = {} if self.body is None else self.body
        text = json.dumps(body, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
        return text.encode(), {**headers, "Content-Type": "application/json"}


@dataclass(frozen=True, slots=True)
class HttpAnswer:
    """A status below 300, or 304, and the JSON body, None if it was empty."""

    status: int
    body: Any


@dataclass(frozen=True, slots=True)
class Attempt:
    """Step: send a request once; gives an HttpAnswer or raises a RaspError."""

    request: Request
    timeout: float


@dataclass(frozen=True, slots=True)
class Wait:
    """Step: wait until the signal is set, but at most so many seconds; None: no limit."""

    signal: Signal
    seconds: float | None = None


@dataclass(frozen=True, slots=True)
class Start:
    """Step: run other steps beside these; ServerUnavailable is ignored there."""

    steps: "Steps[Any]"
    lasting: bool = False  # as long as the client itself


Steps = Generator[Attempt | Wait | Start, Any, T]


class Exchange:
    """Calls to one server."""

    def __init__(self, url: str, timeout: float, ask_deadline: AskDeadline, signal: Callable[[], Signal]) -> None:
        self.url, self.timeout = checked_url(url), positive_seconds("timeout", timeout)
        self.asks_wait = ask_deadline is None  # for their answer, and raise if there is none
        self._deadline = None
        if isinstance(ask_deadline, str) and ask_deadline != "auto":
            raise InvalidValue(f"ask_deadline must be 'auto', seconds or None, got {show(ask_deadline)}")
        if ask_deadline is not None and ask_deadline != "auto":
            self._deadline = positive_seconds("ask_deadline", ask_deadline)
        self.signal = signal
        self.reset_after_fork()

    def reset_after_fork(self) -> None:
        """Forget requests that are on their way: in the child of a fork their answers do not come."""
        self.epoch = object()
        self.server = ServerState(self.url, self._deadline, self.timeout)

    def call(self, request: Request, *, idempotent: bool = True, timeout: float | None = None) -> Steps[HttpAnswer]:
        """The answer, with as many attempts as fit in `timeout`; else ServerUnavailable.

        `idempotent` False: it is retried only if the server certainly did nothing: it was not reached, or answered 429
        or 503.
        """
        whole = self.timeout if timeout is None else timeout
        until = time.monotonic() + whole
        for attempt in itertools.count(1):
            left = max(until - time.monotonic(), 0.01)
            try:
                answer: HttpAnswer = yield Attempt(request, min(left, max(whole / 3, 1.0)))
            except ServerUnavailable as error:
                pause = error.retry_after
                if pause is None:
                    pause = backoff(attempt, FIRST_WAIT_S, LONGEST_WAIT_S)
                safe = idempotent or error.retry_after is not None or not error.reached
                if not safe or time.monotonic() + pause >= until:
                    raise
                yield Wait(self.signal(), pause)
            except RaspError:
                self.server.record_success()  # a refusal is an answer, too
                raise
            else:
                self.server.record_success()
                return answer
        raise AssertionError("the loop ends by itself")


def parse_answer(url: str, path: str, status: int, headers: Mapping[str, str], content: bytes) -> HttpAnswer:
    """The answer, or the exception for its error."""
    foreign = False
    try:
        value = json.loads(content) if content else None
    except ValueError:
        value, foreign = None, True
    if (status < 300 or status == 304) and not foreign:
        return HttpAnswer(status, value)
    error = value.get("error") if isinstance(value, Mapping) else None
    if status in (429, 503) or status >= 500:
        said = error.get("message") if isinstance(error, Mapping) else f"status {status}"
        raise ServerUnavailable(f"{url} cannot now: {said}", _retry_after(headers.get("Retry-After", "")))
    if not isinstance(error, Mapping):
        raise errors.RequestRefused(
            f"{url} answered {path} with status {status} and no reason: is it a RASP server?", "foreign"
        )
    raise errors.exception_for(error, path.partition("?")[0].rsplit("/", 1)[-1])


def _retry_after(given: str) -> float | None:
    """Seconds; None if the header is missing or not in seconds."""
    return min(float(given), MAX_RETRY_AFTER_S) if given.isascii() and given.isdigit() else None


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
