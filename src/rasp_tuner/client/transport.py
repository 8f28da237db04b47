"""Transport: performs the steps of calls with threads. Thread-safe."""

import logging
import ssl
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, TypeVar, cast
from urllib.parse import urlsplit

import httpx

from rasp_tuner.client.errors import RequestRefused, ServerUnavailable
from rasp_tuner.client.exchange import Attempt, HttpAnswer, Start, Steps, Wait, parse_answer

MAX_WORKERS = 32  # requests with a deadline at a time; more wait, and their deadline runs
CLOSE_WAIT_S = 1.0  # for the request that the queue is sending

T = TypeVar("T")

log = logging.getLogger("rasp_tuner.client")


class Transport:
    """One server, one key."""

    def __init__(self, url: str, headers: dict[str, str]) -> None:
        self.url, self._headers = url, headers
        self._closed = False
        self.reset_after_fork()

    def reset_after_fork(self) -> None:
        """Start without old connections and threads, in the child of a fork, which has no threads."""
        self._http = httpx.Client(**connection_settings(self.url, self._headers))
        self._pool = ThreadPoolExecutor(MAX_WORKERS, "rasp-client")
        self._lasting: list[threading.Thread] = []

    def run(self, steps: Steps[T]) -> T:
        """Perform the steps; gives what they return, or raises what they raise.

        Waiting is for an answer on another thread, because name resolution and slow answers ignore deadlines.
        """
        try:
            step = next(steps)
            while True:
                try:
                    value = self._perform(step)
                except Exception as error:  # noqa: BLE001 - the steps decide
                    step = steps.throw(error)
                else:
                    step = steps.send(value)
        except StopIteration as end:
            result: T = end.value
            return result

    def _perform(self, step: Attempt | Wait | Start) -> Any:
        if isinstance(step, Attempt):
            return self._attempt(step)
        if isinstance(step, Wait):
            return cast(threading.Event, step.signal).wait(step.seconds)
        if self._closed:
            raise closed_error(self.url)
        if step.lasting:
            self._lasting.append(threading.Thread(target=self._run_beside, args=[step.steps], daemon=True))
            return self._lasting[-1].start()
        return self._pool.submit(self.run, step.steps).add_done_callback(self._log_background_error)

    def _attempt(self, step: Attempt) -> HttpAnswer:
        if self._closed:
            raise closed_error(self.url)
        request, until = step.request, time.monotonic() + step.timeout
        content, headers = request.as_sent()
        each = httpx.Timeout(max(step.timeout, 0.001))  # to connect, to send, to receive each part
        with (
            network_errors(self.url, step.timeout),
            self._http.stream(request.method, request.path, content=content, headers=headers, timeout=each) as response,
        ):
            parts = []
            for part in response.iter_bytes():
                parts.append(part)
                if time.monotonic() > until:
                    raise httpx.ReadTimeout("the answer is too slow")
        return parse_answer(self.url, request.path, response.status_code, response.headers, b"".join(parts))

    def lines(self, path: str, silence: float) -> Iterator[str]:
        """The lines of an answer as they arrive; ServerUnavailable after `silence` seconds without data."""
        if self._closed:
            raise closed_error(self.url)
        with (
            network_errors(self.url, silence),
            self._http.stream("GET", path, timeout=httpx.Timeout(silence)) as response,
        ):
            if response.status_code >= 300:
                parse_answer(self.url, path, response.status_code, response.headers, response.read())
            yield from response.iter_lines()

    def close(self) -> None:
        """Stop all requests. Those that hang end by themselves; nobody waits for them."""
        self._closed = True
        self._pool.shutdown(wait=False, cancel_futures=True)
        self._http.close()
        for thread in self._lasting:
            thread.join(CLOSE_WAIT_S)

    def _run_beside(self, steps: Steps[Any]) -> None:
        try:
            self.run(steps)
        except Exception:
            if not self._closed:
                log.exception("the queue stopped")

    def _log_background_error(self, future: "Future[object]") -> None:
        error = None if future.cancelled() or self._closed else future.exception()
        if error is not None and not isinstance(error, ServerUnavailable):
            log.warning("in the background: %s", error)


def connection_settings(url: str, headers: dict[str, str]) -> dict[str, Any]:
    """Arguments of httpx.Client and httpx.AsyncClient."""
    parts = urlsplit(url)
    local = parts.hostname in ("127.0.0.1", "localhost", "::1")
    trust: ssl.SSLContext | bool = True
    if parts.scheme == "http":
        trust = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # trusts nobody: loading certificates takes time
    return {"base_url": url, "headers": headers, "verify": trust, "trust_env": not local}


def closed_error(url: str) -> RequestRefused:
    return RequestRefused(f"this client of {url} was closed", "closed")


@contextmanager
def network_errors(url: str, timeout: float) -> Iterator[None]:
    """Errors of httpx as those of the client."""
    try:
        yield
    except httpx.TimeoutException as reason:
        reached = not isinstance(reason, httpx.ConnectTimeout | httpx.PoolTimeout)
        raise ServerUnavailable(f"no answer from {url} within {timeout:.3g} s", reached=reached) from reason
    except httpx.TransportError as reason:
        reached = not isinstance(reason, httpx.ConnectError)
        message = f"no server at {url} ({str(reason) or type(reason).__name__})"
        raise ServerUnavailable(message, reached=reached) from reason
    except (httpx.HTTPError, httpx.InvalidURL, httpx.StreamError) as reason:
        raise RequestRefused(f"{url}: {reason}", "protocol") from reason
