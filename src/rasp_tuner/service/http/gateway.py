"""Gateway: checks every request, calls its route and gives the answer.

`admit` looks at the head of a request: host, origin, key, scope, rate, type and size of the body, in this order, so
that what is cheap comes first. `hold` counts its body as it comes, in the share of its caller. `answer` is for the
whole request.
"""

import logging
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

from rasp_tuner.errors import RaspError
from rasp_tuner.service import service_errors
from rasp_tuner.service.auth import Caller
from rasp_tuner.service.http.fair_pool import FairPool
from rasp_tuner.service.http.http_errors import HttpError
from rasp_tuner.service.http.origins import NOWHERE, Origins
from rasp_tuner.service.http.route import OFREP_PATH, Request, Response, Route, error_response
from rasp_tuner.service.http.routes import match_route
from rasp_tuner.service.http.routes_ofrep import ofrep_error
from rasp_tuner.service.json_codec import dumps, loads
from rasp_tuner.service.limits import LARGE_BODY_BYTES, BodyRoom, HeldBody, TokenBuckets
from rasp_tuner.service.service import Service, caller_name
from rasp_tuner.service.service_errors import Moved, ServiceError

Forward = Callable[[Route, Request], Awaitable[Response | None]]  # see forward.py

MAX_QUERY_BYTES = 1_024
MAX_HOSTS_SEEN = 64
LARGE_BODY_THREADS = 4  # that read large bodies
HEADERS_READ = {
    b"host",
    b"authorization",
    b"content-type",
    b"content-length",
    b"transfer-encoding",
    b"origin",
    b"sec-fetch-site",
    b"x-api-key",
}

log = logging.getLogger("rasp_tuner.serve")


class Gateway:
    """All routes of one service."""

    def __init__(
        self, service: Service, hosts: Iterable[str], forward: Forward | None = None, origins: Origins = NOWHERE
    ) -> None:
        self._service, self._forward, self._origins = service, forward, origins
        self._keys, self._limits = service.keys, service.limits
        self._hosts = {host.lower() for host in hosts}
        self._buckets = TokenBuckets(self._limits.rate, self._limits.burst)
        self._hosts_seen: set[bytes] = set()  # headers of requests that meant this server, a few
        self._room, self._most_bytes = BodyRoom(self._limits), (self._limits.body, self._limits.import_body)
        self._large_bodies = FairPool(LARGE_BODY_THREADS, "rasp-json")

    def close(self) -> None:
        self._large_bodies.close()

    def admit(self, request: Request) -> Route:
        """The route of a request, which is allowed as far as its head tells; raises a ServiceError."""
        headers = request.headers
        if (
            headers.get(b"transfer-encoding", b"chunked").strip().lower() != b"chunked"
        ):  # no body that its sender did not mean
            raise HttpError(
                501, "not_implemented", "only chunked is known as Transfer-Encoding: send the body as it is"
            )
        if (host := headers.get(b"host", b"")) not in self._hosts_seen:
            self._check_host(host)
        if len(request.query_string) > MAX_QUERY_BYTES:
            raise HttpError(414, "too_large", f"the query may have at most {MAX_QUERY_BYTES} bytes")
        route, request.parameters = match_route(request.method, request.path)
        request.study = request.parameters.get("name", "")
        if route.method != "GET" and (b"origin" in headers or b"sec-fetch-site" in headers):
            self._check_origin(request)
        caller = request.caller = self._caller(request, route)
        request.account = caller.name if caller.name != "local" else request.address
        if not self._buckets.take(request.account):
            raise HttpError(429, "rate_limited", f"more than {self._limits.rate:g} requests a second", retry_after=1)
        if route.needs == "write" and self._service.queue_is_full:
            raise service_errors.overloaded()
        if route.method == "POST":
            kind = headers.get(b"content-type", b"").split(b";")[0].strip().lower().decode("latin-1")
            if kind not in route.content_types:
                raise HttpError(415, "unsupported_type", f"Content-Type must be {route.content_types[0]}")
            length = headers.get(b"content-length", b"0")
            if not length.isdigit():
                raise HttpError(400, "invalid_request", "Content-Length must be a number")
            if int(length) > self._most_bytes[route.is_import]:
                raise self._too_large(route)
            request.held = HeldBody(self._room, request.account, route.is_import)
        return route

    def hold(self, route: Route, body: HeldBody, more: int) -> None:
        """Count bytes of a body, until they are released; raises a 413 or a 503."""
        if body.size + more > self._most_bytes[route.is_import]:
            raise self._too_large(route)
        if not body.grow(more):
            raise service_errors.overloaded()

    def _too_large(self, route: Route) -> HttpError:
        most = self._most_bytes[route.is_import]
        return HttpError(413, "too_large", f"the body may have at most {most} bytes")

    def refuse(self, error: ServiceError, request: Request) -> Response:
        """The answer to a request that is not done."""
        self._service.telemetry.count_rejected(error.code)
        return self.failure(error, request)

    def failure(self, error: ServiceError, request: Request) -> Response:
        """An error in the shape that the path of the request has."""
        if not request.path.startswith(OFREP_PATH):
            return error_response(error)
        return self._origins.open(ofrep_error(error, request), request)

    async def answer(self, route: Route, request: Request) -> Response:
        """The answer to a request that was admitted and has come whole; raises nothing."""
        caller_name.set(request.caller.name)
        if route.has_parts:
            request.again = self.answer
        try:
            for has_moved in (False, True):
                if self._forward is not None and (answer := await self._forward(route, request)) is not None:
                    break
                parsed = None
                if route.parse is not None and len(request.body) > LARGE_BODY_BYTES:
                    parsed = await self._large_bodies.run(request.account, lambda: self._parse(route, request.body))
                elif route.parse is not None:
                    parsed = self._parse(route, request.body)
                try:
                    answer = await route.handler(self._service, request, parsed)
                    break
                except Moved:  # it was not done: its new owner does it
                    if has_moved:
                        raise
            response = answer if isinstance(answer, Response) else Response(dumps(answer))
        except RaspError as error:
            return self.refuse(service_errors.as_service_error(error), request)
        except Exception:
            log.exception("a request failed")
            return self.failure(service_errors.internal_error(), request)
        return self._origins.open(response, request) if b"origin" in request.headers else response

    def _parse(self, route: Route, body: bytes) -> Any:
        """The body as the model of the route."""
        value = {} if route.body_is_optional and not body else loads(body)
        return None if route.parse is None else route.parse(value, self._limits)

    def _check_host(self, given: bytes) -> None:
        host = given.decode("latin-1")
        name = host.rsplit(":", 1)[0] if not host.endswith("]") else host
        if name.strip("[]").lower() not in self._hosts:
            raise HttpError(
                421, "wrong_host", f"this server is not {host[:80]!r}; start it with --allow-host to let it be"
            )
        if len(self._hosts_seen) < MAX_HOSTS_SEEN:
            self._hosts_seen.add(given)

    def _check_origin(self, request: Request) -> None:
        """Refuse writes from pages of other sites, but those that may; browsers name the origin."""
        if self._origins.allow(request):
            return
        headers = request.headers
        site = headers.get(b"sec-fetch-site", b"same-origin")
        origin = headers.get(b"origin")
        own = origin is None or origin.split(b"//", 1)[-1].lower() == headers.get(b"host", b"").lower()
        if site not in (b"same-origin", b"none") or not own:
            raise HttpError(403, "forbidden", "writes from another site's page are refused (flags: --allow-origin)")

    def _caller(self, request: Request, route: Route) -> Caller:
        if route.needs == "nothing":
            return Caller("local", "read")
        study = request.parameters.get("name")
        word, _, key = request.headers.get(b"authorization", b"").decode("latin-1").partition(" ")
        if not word and b"x-api-key" in request.headers:  # as OFREP has it, too
            word, key = "bearer", request.headers[b"x-api-key"].decode("latin-1")
        caller = self._keys.find_caller(key.strip() if word.lower() == "bearer" else None)
        if caller is None:
            raise HttpError(
                401, "unauthorized", "this needs a key: Authorization: Bearer rasp_...; see rasp keys create"
            )
        if not caller.is_allowed(route.needs, caller.study if route.of_any_study else study):
            whose = "every study" if study is None else f"study {study!r}"
            raise HttpError(403, "forbidden", f"this key may not {route.needs} {whose}")
        return caller
