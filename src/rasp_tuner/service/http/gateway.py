"""Gateway: the ASGI application that checks every request, calls its route and sends the answer.

It checks host, origin, key, scope, rate, type and size of the body, in this order: what is cheap comes first.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from rasp_tuner.service import http_errors
from rasp_tuner.service.auth import Caller
from rasp_tuner.service.http.answers import send_error, send_json, send_response
from rasp_tuner.service.http.route import Message, Receive, Request, Response, Route, Send
from rasp_tuner.service.http.routes import match_route
from rasp_tuner.service.http_errors import HttpError
from rasp_tuner.service.json_codec import dumps, loads
from rasp_tuner.service.limits import Limits, TokenBuckets
from rasp_tuner.service.service import Service, caller_name
from rasp_tuner.service.study.fallback_counts import HEADER as FALLBACKS_HEADER

Forward = Callable[[Message, Receive, str, str | None, Send], Awaitable[bool]]  # see forward.py
Headers = dict[bytes, bytes]

MAX_QUERY_BYTES = 1_024
LARGE_BODY_BYTES = 65_536  # read beside the event loop: a MiB of JSON may take a third of a second
HEADERS_READ = {b"host", b"authorization", b"content-type", b"content-length", b"origin", b"sec-fetch-site"}


class Gateway:
    """All routes of one service."""

    def __init__(self, service: Service, hosts: Iterable[str], forward: Forward | None = None) -> None:
        self._service, self._forward = service, forward
        self._keys, self._limits, self._count_rejected = service.keys, service.limits, service.telemetry.count_rejected
        self._hosts = {host.lower() for host in hosts}
        self._buckets = TokenBuckets(self._limits.rate, self._limits.burst)
        self._held = {True: 0, False: 0}  # bytes of bodies, of imports and of other requests
        self._large_bodies = ThreadPoolExecutor(1, "rasp-json")  # one: who sends many waits for their own

    def close(self) -> None:
        self._large_bodies.shutdown(wait=False, cancel_futures=True)

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        bodies = _Bodies(self._held, self._limits)
        try:
            headers = _headers(scope)
            route, request = self._check(scope, headers)
            if route.method == "POST":
                request.body = scope["rasp.body"] = await bodies.read(route, headers, receive)
            study, parsed = request.parameters.get("name"), await self._parse(route, request.body)
            for has_moved in (False, True):
                if self._forward is not None and await self._forward(scope, receive, route.path, study, send):
                    return
                try:
                    answer = await route.handler(self._service, request, parsed)
                    break
                except HttpError as error:
                    if has_moved or error.code != http_errors.MOVED:  # it was not done: its new owner does it
                        raise
            if FALLBACKS_HEADER in headers and (live := self._service.writer.cache.live.get(study or "")) is not None:
                live.fallbacks.add(headers[FALLBACKS_HEADER], time.time())
            if isinstance(answer, Response):
                await send_response(answer, is_head=scope["method"] == "HEAD", receive=receive, send=send)
            else:
                await send_json(200, dumps(answer), send)
        except HttpError as error:
            self._count_rejected(error.code)
            await send_error(error, send)
        except Exception:
            await send_error(http_errors.internal_error(), send)
            raise  # for the server's log
        finally:
            bodies.release()

    def _check(self, scope: Message, headers: Headers) -> tuple[Route, Request]:
        """The route and the request, which is allowed as far as its head tells."""
        self._check_host(headers.get(b"host", b"").decode("latin-1"))
        if len(scope.get("query_string", b"")) > MAX_QUERY_BYTES:
            raise HttpError(414, "too_large", f"the query may have at most {MAX_QUERY_BYTES} bytes")
        route, parameters = match_route(scope["method"], scope["path"])
        if route.method != "GET":
            self._check_origin(headers)
        caller = self._caller(headers, route, parameters.get("name"))
        address = scope["client"][0] if scope.get("client") else "unknown"
        request = Request(scope, parameters, caller, caller.name if caller.name != "local" else address)
        if not self._buckets.take(request.account):
            raise HttpError(429, "rate_limited", f"more than {self._limits.rate:g} requests a second", retry_after=1)
        if route.needs == "write" and self._service.queue_is_full:
            raise http_errors.overloaded()
        scope["rasp.caller"] = caller
        caller_name.set(caller.name)
        return route, request

    def _check_host(self, host: str) -> None:
        name = host.rsplit(":", 1)[0] if not host.endswith("]") else host
        if name.strip("[]").lower() not in self._hosts:
            raise HttpError(
                421, "wrong_host", f"this server is not {host[:80]!r}; start it with --allow-host to let it be"
            )

    def _check_origin(self, headers: Headers) -> None:
        """Refuse writes from pages of other sites; browsers name the origin."""
        site = headers.get(b"sec-fetch-site", b"same-origin")
        origin = headers.get(b"origin")
        own = origin is None or origin.split(b"//", 1)[-1].lower() == headers.get(b"host", b"").lower()
        if site not in (b"same-origin", b"none") or not own:
            raise HttpError(403, "forbidden", "writes from another site's page are refused")

    def _caller(self, headers: Headers, route: Route, study: str | None) -> Caller:
        if route.needs == "nothing":
            return Caller("local", "read")
        word, _, key = headers.get(b"authorization", b"").decode("latin-1").partition(" ")
        caller = self._keys.find_caller(key.strip() if word.lower() == "bearer" else None)
        if caller is None:
            raise HttpError(
                401, "unauthorized", "this needs a key: Authorization: Bearer rasp_...; see rasp keys create"
            )
        if not caller.is_allowed(route.needs, caller.study if route.of_any_study else study):
            whose = "every study" if study is None else f"study {study!r}"
            raise HttpError(403, "forbidden", f"this key may not {route.needs} {whose}")
        return caller

    async def _parse(self, route: Route, body: bytes) -> Any:
        """The body as the model of the route; None if it has none."""
        if not isinstance(route.takes, type):
            return None
        if not body and route.body_is_optional:
            return route.read({}, self._limits)
        if len(body) < LARGE_BODY_BYTES:
            return route.read(loads(body), self._limits)
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._large_bodies, lambda: route.read(loads(body), self._limits))


class _Bodies:
    """The body of one request, counted among those of all requests until it is answered."""

    def __init__(self, held: dict[bool, int], limits: Limits) -> None:
        self._held, self._limits = held, limits
        self._size, self._is_import = 0, False

    async def read(self, route: Route, headers: Headers, receive: Receive) -> bytes:
        """The whole body; a 415, 413, 400 or 503 says why it is not read."""
        kind = headers.get(b"content-type", b"").split(b";")[0].strip().lower().decode("latin-1")
        if kind not in route.content_types:
            raise HttpError(415, "unsupported_type", f"Content-Type must be {route.content_types[0]}")
        self._is_import = route.is_import
        most = self._limits.import_body if self._is_import else self._limits.body
        together = self._limits.import_body if self._is_import else self._limits.bodies
        length = headers.get(b"content-length", b"0")
        if not length.isdigit() or int(length) > most:
            raise HttpError(413, "too_large", f"the body may have at most {most} bytes")
        parts = []
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise HttpError(400, "invalid_json", "the body ended early")
            part = message.get("body", b"")
            self._size += len(part)
            self._held[self._is_import] += len(part)
            if self._size > most:
                raise HttpError(413, "too_large", f"the body may have at most {most} bytes")
            if self._held[self._is_import] > together:
                raise http_errors.overloaded()
            parts.append(part)
            if not message.get("more_body", False):
                return b"".join(parts)

    def release(self) -> None:
        self._held[self._is_import] -= self._size


def _headers(scope: Message) -> Headers:
    """The headers by name; a 400 if one that is read here comes twice, since others may read the other one."""
    headers: Headers = {}
    for name, value in scope["headers"]:
        if name in headers and name in HEADERS_READ:
            raise HttpError(400, "invalid_request", f"the header {name.decode()} comes twice")
        headers[name] = value
    return headers
