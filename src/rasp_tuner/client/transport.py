"""Transport: HTTP requests with retries where they are safe, and with deadlines; error answers raise exceptions.

Thread-safe.
"""

import itertools
import json
import logging
import re
import secrets
import ssl
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import httpx

from rasp_tuner.client import errors
from rasp_tuner.client.errors import ServerUnavailable
from rasp_tuner.core.checks import number, show
from rasp_tuner.errors import InvalidValue, RaspError

MAX_WORKERS = 32  # requests with a deadline at a time; more wait, and their deadline runs
DEADLINE_MARGIN_S = 0.007  # kept back from a deadline, to wake up and answer
FIRST_WAIT_S, LONGEST_WAIT_S = 0.05, 2.0  # between attempts, doubling
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.25, 5.0  # without requests, after two failures in a row
MAX_RETRY_AFTER_S = 60.0  # a longer Retry-After is cut to this

JITTER = secrets.SystemRandom()  # only for waits; safe to share between threads and forks

log = logging.getLogger("rasp_tuner.client")


@dataclass(frozen=True, slots=True)
class HttpAnswer:
    """A status below 300 and the JSON body, None if it was empty."""

    status: int
    body: Any


class Transport:
    """One server, one key."""

    def __init__(self, url: str, key: str | None, timeout: float) -> None:
        self.url, self.timeout = _checked_url(url), positive_seconds("timeout", timeout)
        self._headers = {} if key is None else {"Authorization": f"Bearer {_checked_key(key)}"}
        self._closed = False
        self.reset_after_fork()

    def reset_after_fork(self) -> None:
        """Start without old connections, threads and locks, in the child of a fork, which has no threads."""
        parts = urlsplit(self.url)
        local = parts.hostname in ("127.0.0.1", "localhost", "::1")
        trust: ssl.SSLContext | bool = True
        if parts.scheme == "http":
            trust = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # trusts nobody: loading certificates takes time
        self._http = httpx.Client(base_url=self.url, headers=self._headers, verify=trust, trust_env=not local)
        self._pool = ThreadPoolExecutor(MAX_WORKERS, "rasp-client")
        self._lock = threading.Lock()
        self._failures = 0  # in a row
        self._resume_at = 0.0  # until then requests with a deadline are not tried
        self._failed_at = 0.0  # a request sent before that and failing too is the same failure

    def call(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        content: bytes | None = None,
        idempotent: bool = True,
        timeout: float | None = None,
    ) -> HttpAnswer:
        """The answer, with as many attempts as fit in `timeout`; else ServerUnavailable.

        `idempotent` False: it is retried only if the server certainly did nothing: it was not reached, or answered 429
        or 503.
        """
        self._check_open()
        whole = self.timeout if timeout is None else timeout
        until = time.monotonic() + whole
        for attempt in itertools.count(1):
            left = until - time.monotonic()
            try:
                answer = self.attempt(method, path, body, content, timeout=min(left, max(whole / 3, 1.0)))
            except ServerUnavailable as error:
                pause = error.retry_after
                if pause is None:
                    pause = backoff(attempt, FIRST_WAIT_S, LONGEST_WAIT_S)
                safe = idempotent or error.retry_after is not None or isinstance(error.__cause__, httpx.ConnectError)
                if not safe or time.monotonic() + pause >= until:
                    raise
                time.sleep(pause)
            except RaspError:
                self._record_success()  # a refusal is an answer, too
                raise
            else:
                self._record_success()
                return answer
        raise AssertionError("the loop ends by itself")

    def call_within(self, seconds: float, method: str, path: str, body: object = None) -> HttpAnswer:
        """The answer of one attempt, or ServerUnavailable after `seconds`, whatever the network does.

        It runs on another thread, because name resolution and slow answers ignore deadlines. After two failures in a
        row no request is made for a while: then this raises at once.
        """
        self._check_open()
        started = time.monotonic()
        if started < self._resume_at:
            raise ServerUnavailable(f"{self.url} failed {self._failures} times in a row; it is left alone for a moment")
        future = self._pool.submit(self.attempt, method, path, body, timeout=seconds)
        try:
            answer = future.result(max(started + seconds - min(DEADLINE_MARGIN_S, seconds / 5) - time.monotonic(), 0.0))
        except TimeoutError as reason:
            future.cancel()
            late = ServerUnavailable(f"no answer from {self.url} within {1e3 * seconds:g} ms")
            self._record_failure(late, started)
            raise late from reason
        except ServerUnavailable as error:
            self._record_failure(error, started)
            raise
        except RaspError:
            self._record_success()
            raise
        self._record_success()
        return answer

    def run_in_background(self, work: Callable[[], object]) -> None:
        """Run `work` on another thread; ServerUnavailable is ignored there."""
        future = self._pool.submit(work)
        future.add_done_callback(self._log_background_error)

    def lines(self, path: str, silence: float) -> Iterator[str]:
        """The lines of an answer as they arrive; ServerUnavailable after `silence` seconds without data."""
        self._check_open()
        with (
            _network_errors(self.url, silence),
            self._http.stream("GET", path, timeout=httpx.Timeout(silence)) as response,
        ):
            if response.status_code >= 300:
                self._parse_answer(response, response.read(), path)
            yield from response.iter_lines()

    def close(self) -> None:
        """Stop all requests, also those that hang."""
        self._closed = True
        self._pool.shutdown(wait=False, cancel_futures=True)
        self._http.close()
        self._pool.shutdown()

    def attempt(
        self, method: str, path: str, body: object = None, content: bytes | None = None, *, timeout: float
    ) -> HttpAnswer:
        """The answer of one attempt."""
        sent: dict[str, Any] = {"json": {} if body is None else body} if method == "POST" else {}
        if content is not None:
            sent = {"content": content, "headers": {"Content-Type": "application/x-ndjson"}}
        until = time.monotonic() + timeout
        each = httpx.Timeout(max(timeout, 0.001))  # to connect, to send, to receive each part
        with _network_errors(self.url, timeout), self._http.stream(method, path, timeout=each, **sent) as response:
            parts = []
            for part in response.iter_bytes():
                parts.append(part)
                if time.monotonic() > until:
                    raise httpx.ReadTimeout("the answer is too slow")
        return self._parse_answer(response, b"".join(parts), path)

    def _parse_answer(self, response: httpx.Response, content: bytes, path: str) -> HttpAnswer:
        """The answer, or the exception for its error."""
        status, foreign = response.status_code, False
        try:
            value = json.loads(content) if content else None
        except ValueError:
            value, foreign = None, True
        if status < 300 and not foreign:
            return HttpAnswer(status, value)
        error = value.get("error") if isinstance(value, Mapping) else None
        if status in (429, 503) or status >= 500:
            said = error.get("message") if isinstance(error, Mapping) else f"status {status}"
            raise ServerUnavailable(f"{self.url} cannot now: {said}", _retry_after(response))
        if not isinstance(error, Mapping):
            raise errors.RequestRefused(
                f"{self.url} answered {path} with status {status} and no reason: is it a RASP server?", "foreign"
            )
        raise errors.exception_for(error, path.partition("?")[0].rsplit("/", 1)[-1])

    def _record_success(self) -> None:
        with self._lock:
            if self._failures > 1:
                log.warning("%s answers again", self.url)
            self._failures, self._resume_at = 0, 0.0

    def _record_failure(self, error: ServerUnavailable, sent_at: float) -> None:
        """Pause requests if this was not the first failure, or if the server asked for a pause."""
        with self._lock:
            if sent_at < self._failed_at:
                return
            self._failures += 1
            if self._failures == 2:
                log.warning("%s: falling back to what is known until it answers again", error)
            pause = error.retry_after
            if pause is None:
                pause = backoff(self._failures - 1, FIRST_PAUSE_S, LONGEST_PAUSE_S) if self._failures > 1 else 0.0
            self._failed_at = time.monotonic()
            self._resume_at = self._failed_at + pause

    def _log_background_error(self, future: "Future[object]") -> None:
        error = None if future.cancelled() or self._closed else future.exception()
        if error is not None and not isinstance(error, ServerUnavailable):
            log.warning("in the background: %s", error)

    def _check_open(self) -> None:
        if self._closed:
            raise errors.RequestRefused(f"this client of {self.url} was closed", "closed")


def backoff(attempt: int, first: float, longest: float) -> float:
    """Seconds to wait after attempt 1, 2, ...: doubling, bounded, with jitter."""
    return JITTER.uniform(0.5, 1.0) * min(first * 2.0 ** min(attempt - 1, 30), longest)


@contextmanager
def _network_errors(url: str, timeout: float) -> Iterator[None]:
    try:
        yield
    except httpx.TimeoutException as reason:
        raise ServerUnavailable(f"no answer from {url} within {timeout:.3g} s") from reason
    except httpx.TransportError as reason:
        raise ServerUnavailable(f"no server at {url} ({str(reason) or type(reason).__name__})") from reason
    except (httpx.HTTPError, httpx.InvalidURL, httpx.StreamError) as reason:
        raise errors.RequestRefused(f"{url}: {reason}", "protocol") from reason


def _retry_after(response: httpx.Response) -> float | None:
    """Seconds; None if the header is missing or not in seconds."""
    given = response.headers.get("Retry-After", "")
    return min(float(given), MAX_RETRY_AFTER_S) if given.isascii() and given.isdigit() else None


def _checked_url(url: object) -> str:
    try:
        parts = urlsplit(str(url))
        sound = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0 and not parts.username
    except ValueError:
        sound = False
    if not isinstance(url, str) or not sound:
        raise InvalidValue(f"url must look like http://127.0.0.1:8321, got {show(url)}")
    return url.rstrip("/")


def _checked_key(key: object) -> str:
    if not isinstance(key, str) or not re.fullmatch(r"[!-~]+", key):
        raise InvalidValue("key must be one word of printable ASCII, as `rasp keys create` printed it")  # it is secret
    return key


def positive_seconds(field: str, value: object) -> float:
    seconds = number(field, value)
    if seconds <= 0.0:
        raise InvalidValue(f"{field} must be positive seconds, got {seconds!r}")
    return seconds
