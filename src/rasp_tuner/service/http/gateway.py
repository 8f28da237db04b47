"""Gateway: checks every request before its route: host, origin, key, scope, rate, type and size of the body.

`ROUTE_SCOPES` lists every route with the scope it needs. A request that matches no row gets a 404, even if FastAPI has
such a route.
"""

import functools
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping, MutableMapping
from typing import Any, Literal

from rasp_tuner.service import http_errors
from rasp_tuner.service.auth import Caller
from rasp_tuner.service.http_errors import HttpError
from rasp_tuner.service.json_codec import dumps
from rasp_tuner.service.limits import TokenBuckets
from rasp_tuner.service.service import Service, caller_name
from rasp_tuner.service.study.definition import NAME_PATTERN
from rasp_tuner.service.study.fallback_counts import HEADER as FALLBACKS_HEADER

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
AsgiApp = Callable[[Message, Receive, Send], Awaitable[None]]
RequiredScope = Literal["nothing", "read", "write", "admin"]
RouteAnswer = tuple[int, Any]  # status, and the value of the JSON body
FastRoute = Callable[[str, bytes], Awaitable[RouteAnswer]]  # study and body -> answer
Forward = Callable[[Message, Receive, str, str | None, Send], Awaitable[bool]]  # see forward.py

STUDY_PATH = "/v1/studies/{name}"
ROUTE_SCOPES: dict[tuple[str, str], RequiredScope] = {
    ("GET", "/"): "nothing",
    ("GET", "/studies/{name}"): "nothing",
    ("GET", "/static/{path:path}"): "nothing",
    ("GET", "/healthz"): "nothing",
    ("GET", "/readyz"): "nothing",
    ("GET", "/version"): "nothing",
    ("GET", "/openapi.json"): "read",
    ("GET", "/metrics"): "read",
    ("GET", "/v1/studies"): "read",
    ("POST", "/v1/studies"): "admin",
    ("POST", "/v1/studies/import"): "admin",
    ("GET", STUDY_PATH): "read",
    ("DELETE", STUDY_PATH): "admin",
    ("POST", f"{STUDY_PATH}/ask"): "write",
    ("POST", f"{STUDY_PATH}/ask/batch"): "write",
    ("POST", f"{STUDY_PATH}/tell"): "write",
    ("POST", f"{STUDY_PATH}/tell/batch"): "write",
    ("POST", f"{STUDY_PATH}/tell_failed"): "write",
    ("POST", f"{STUDY_PATH}/observe"): "write",
    ("POST", f"{STUDY_PATH}/recommend"): "read",
    ("POST", f"{STUDY_PATH}/freeze"): "admin",
    ("POST", f"{STUDY_PATH}/unfreeze"): "admin",
    ("POST", f"{STUDY_PATH}/forget"): "admin",
    ("GET", f"{STUDY_PATH}/suggestions"): "read",
    ("GET", f"{STUDY_PATH}/suggestions/{{id}}"): "read",
    ("GET", f"{STUDY_PATH}/history"): "read",
    ("GET", f"{STUDY_PATH}/memory"): "read",
    ("GET", f"{STUDY_PATH}/live"): "read",
    ("GET", f"{STUDY_PATH}/export"): "admin",
}
IMPORT_PATH = "/v1/studies/import"
MAX_PATH_CHARS = 300  # longer than any path with a name and an id
MAX_QUERY_BYTES = 1_024
HEADERS_READ = {b"host", b"authorization", b"content-type", b"content-length", b"origin", b"sec-fetch-site"}

SECURITY_HEADERS = [
    (
        b"content-security-policy",
        b"default-src 'self'; base-uri 'none'; object-src 'none'; frame-ancestors 'none'; form-action 'self'",
    ),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cache-control", b"no-store"),
]


class Gateway:
    """An ASGI application around another; it answers the routes in `fast_routes` itself."""

    def __init__(
        self,
        app: AsgiApp,
        service: Service,
        hosts: Iterable[str],
        fast_routes: Mapping[tuple[str, str], FastRoute],
        forward: Forward | None = None,
    ) -> None:
        self._app, self._service, self._fast_routes, self._forward = app, service, fast_routes, forward
        self._keys, self._limits, self._count_rejected = service.keys, service.limits, service.telemetry.count_rejected
        self._hosts = {host.lower() for host in hosts}
        self._buckets = TokenBuckets(self._limits.rate, self._limits.burst)

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        try:
            path, study = await self._check(scope, receive)
            if self._forward is not None and await self._forward(scope, receive, path, study, send):
                return
            handler = self._fast_routes.get((scope["method"], path))
            if handler is not None:
                status, value = await handler(study or "", scope.get("rasp.body", b""))
                self._count_fallbacks(scope, study)
                await send_json(status, dumps(value), send)
                return
        except HttpError as error:
            self._count_rejected(error.code)
            await send_error(error, send)
            return
        except Exception:
            await send_error(http_errors.internal_error(), send)
            raise  # for the server's log

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message.get("headers", ()), *SECURITY_HEADERS]
            await send(message)

        await self._app(scope, receive, send_with_headers)

    async def _check(self, scope: Message, receive: Receive) -> tuple[str, str | None]:
        """Path and study; stores caller and body in the scope. Raises an HttpError; cheap checks come first."""
        headers = _headers(scope)
        self._check_host(headers.get(b"host", b"").decode("latin-1"))
        if len(scope.get("query_string", b"")) > MAX_QUERY_BYTES:
            raise HttpError(414, "too_large", f"the query may have at most {MAX_QUERY_BYTES} bytes")
        method = "GET" if scope["method"] == "HEAD" else scope["method"]
        path, study, needs = _match_route(method, scope["path"][:MAX_PATH_CHARS])
        if method != "GET":
            self._check_origin(headers)
        caller = self._caller(headers, needs, path, study)
        address = scope["client"][0] if scope.get("client") else "unknown"
        whose = caller.name if caller.name != "local" else address
        if not self._buckets.take(whose):
            raise HttpError(429, "rate_limited", f"more than {self._limits.rate:g} requests a second", retry_after=1)
        if needs == "write" and self._service.queue_is_full:
            raise http_errors.overloaded()
        scope["rasp.caller"], scope["rasp.whose"] = caller, whose
        caller_name.set(caller.name)
        if method == "POST":
            kind = headers.get(b"content-type", b"").split(b";")[0].strip().lower()
            wanted = (b"application/x-ndjson", b"application/json") if path == IMPORT_PATH else (b"application/json",)
            if kind not in wanted:
                raise HttpError(415, "unsupported_type", f"Content-Type must be {wanted[0].decode()}")
            most = self._limits.import_body if path == IMPORT_PATH else self._limits.body
            scope["rasp.body"] = await _read_body(headers, receive, most)
        return path, study

    def _count_fallbacks(self, scope: Message, study: str | None) -> None:
        """Add what a client reports with a request that was answered."""
        for name, value in scope["headers"]:
            if name == FALLBACKS_HEADER and study is not None:
                self._service.add_fallbacks(study, value)

    def _check_host(self, host: str) -> None:
        name = host.rsplit(":", 1)[0] if not host.endswith("]") else host
        if name.strip("[]").lower() not in self._hosts:
            raise HttpError(
                421, "wrong_host", f"this server is not {host[:80]!r}; start it with --allow-host to let it be"
            )

    def _check_origin(self, headers: dict[bytes, bytes]) -> None:
        """Refuse writes from pages of other sites; browsers name the origin."""
        site = headers.get(b"sec-fetch-site", b"same-origin")
        origin = headers.get(b"origin")
        own = origin is None or origin.split(b"//", 1)[-1].lower() == headers.get(b"host", b"").lower()
        if site not in (b"same-origin", b"none") or not own:
            raise HttpError(403, "forbidden", "writes from another site's page are refused")

    def _caller(self, headers: dict[bytes, bytes], needs: RequiredScope, path: str, study: str | None) -> Caller:
        if needs == "nothing":
            return Caller("local", "read")
        word, _, key = headers.get(b"authorization", b"").decode("latin-1").partition(" ")
        caller = self._keys.find_caller(key.strip() if word.lower() == "bearer" else None)
        if caller is None:
            raise HttpError(
                401, "unauthorized", "this needs a key: Authorization: Bearer rasp_...; see rasp keys create"
            )
        if path == "/v1/studies" and needs == "read":
            study = caller.study  # the list shows only the studies of the key
        if path == "/openapi.json":
            study = caller.study
        if not caller.is_allowed(needs, study):
            whose = "every study" if study is None else f"study {study!r}"
            raise HttpError(403, "forbidden", f"this key may not {needs} {whose}")
        return caller


def _headers(scope: Message) -> dict[bytes, bytes]:
    """The headers by name; a 400 if one that is read here comes twice, since others may read the other one."""
    headers: dict[bytes, bytes] = {}
    for name, value in scope["headers"]:
        if name in headers and name in HEADERS_READ:
            raise HttpError(400, "invalid_request", f"the header {name.decode()} comes twice")
        headers[name] = value
    return headers


async def send_error(error: HttpError, send: Send) -> None:
    """Send an error as the answer."""
    headers = [(name.lower().encode(), value.encode()) for name, value in error.headers().items()]
    if error.status == 401:
        headers.append((b"www-authenticate", b"Bearer"))
    if error.status == 413:
        headers.append((b"connection", b"close"))
    await send_json(error.status, dumps(error.body()), send, headers)


async def send_json(status: int, body: bytes, send: Send, extra: Iterable[tuple[bytes, bytes]] = ()) -> None:
    """Send JSON as the answer."""
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", b"%d" % len(body)),
        *SECURITY_HEADERS,
        *extra,
    ]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


async def _read_body(headers: dict[bytes, bytes], receive: Receive, most: int) -> bytes:
    length = headers.get(b"content-length", b"0")
    if not length.isdigit() or int(length) > most:
        raise HttpError(413, "too_large", f"the body may have at most {most} bytes")
    parts, size = [], 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise HttpError(400, "invalid_json", "the body ended early")
        part = message.get("body", b"")
        size += len(part)
        if size > most:
            raise HttpError(413, "too_large", f"the body may have at most {most} bytes")
        parts.append(part)
        if not message.get("more_body", False):
            return b"".join(parts)


def _pattern(path: str) -> re.Pattern[str]:
    text = re.escape(path).replace(r"\{name\}", f"(?P<name>{NAME_PATTERN})")
    return re.compile(text.replace(r"\{id\}", "[^/]{1,40}").replace(r"\{path:path\}", ".+"))


_ROUTES = [(method, path, _pattern(path), needs) for (method, path), needs in ROUTE_SCOPES.items()]


@functools.lru_cache(1_024)
def _match_route(method: str, given: str) -> tuple[str, str | None, RequiredScope]:
    """The route, the name of the study, and the scope it needs; raises a 404 or a 405."""
    allowed = []
    for verb, path, pattern, needs in _ROUTES:
        found = pattern.fullmatch(given)
        if found and verb == method:
            return path, found.groupdict().get("name"), needs
        if found:
            allowed.append(verb)
    if allowed:
        raise HttpError(405, "method_not_allowed", f"this path takes {' and '.join(allowed)}")
    raise HttpError(404, "not_found", "there is nothing here; GET /openapi.json lists all paths")
