"""Guard: stands before every route. Host, origin, key, scope, rate, type and size of the body; deny by default.

`TABLE` names every route with what it needs; a request that matches no row gets a 404 whatever the
application could do.
"""

import functools
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping, MutableMapping
from typing import Any, Literal

from rasp_tuner.service import http_errors as problems
from rasp_tuner.service.auth import Caller
from rasp_tuner.service.http_errors import Problem
from rasp_tuner.service.json_codec import dumps
from rasp_tuner.service.limits import Buckets
from rasp_tuner.service.service import Service
from rasp_tuner.service.study.definition import NAME

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Message, Receive, Send], Awaitable[None]]
Needs = Literal["nothing", "read", "write", "admin"]
Answer = tuple[int, Any]  # status, and what the JSON is made of
Direct = Callable[[str, bytes], Awaitable[Answer]]  # study and body -> answer

ONE = "/v1/studies/{name}"
TABLE: dict[tuple[str, str], Needs] = {
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
    ("GET", ONE): "read",
    ("DELETE", ONE): "admin",
    ("POST", f"{ONE}/ask"): "write",
    ("POST", f"{ONE}/ask/batch"): "write",
    ("POST", f"{ONE}/tell"): "write",
    ("POST", f"{ONE}/tell/batch"): "write",
    ("POST", f"{ONE}/tell_failed"): "write",
    ("POST", f"{ONE}/observe"): "write",
    ("POST", f"{ONE}/recommend"): "read",
    ("POST", f"{ONE}/freeze"): "admin",
    ("POST", f"{ONE}/unfreeze"): "admin",
    ("POST", f"{ONE}/forget"): "admin",
    ("GET", f"{ONE}/suggestions"): "read",
    ("GET", f"{ONE}/suggestions/{{id}}"): "read",
    ("GET", f"{ONE}/history"): "read",
    ("GET", f"{ONE}/memory"): "read",
    ("GET", f"{ONE}/live"): "read",
    ("GET", f"{ONE}/export"): "admin",
}
IMPORT = "/v1/studies/import"
LONGEST_PATH = 300  # characters that are looked at: more than a row with a name and an id can have
EVERY_STUDY = ("/openapi.json", "/metrics", "/v1/studies", IMPORT)  # not of one study: the key must be for all

PAGE_HEADERS = [
    (
        b"content-security-policy",
        b"default-src 'self'; base-uri 'none'; object-src 'none'; frame-ancestors 'none'; form-action 'self'",
    ),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cache-control", b"no-store"),
]


class Guard:
    """An ASGI application around another; the routes in `direct` it answers itself."""

    def __init__(
        self, app: App, service: Service, hosts: Iterable[str], direct: Mapping[tuple[str, str], Direct]
    ) -> None:
        self._app, self._service, self._direct = app, service, direct
        self._keys, self._limits, self._rejected = service.keys, service.limits, service.telemetry.refused
        self._hosts = {host.lower() for host in hosts}
        self._buckets = Buckets(self._limits.rate, self._limits.burst)

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        try:
            path, study = await self._check(scope, receive)
            handler = self._direct.get((scope["method"], path))
            if handler is not None:
                status, value = await handler(study or "", scope.get("rasp.body", b""))
                await reply(status, dumps(value), send)
                return
        except Problem as problem:
            self._rejected(problem.code)
            await refuse(problem, send)
            return
        except Exception:
            await refuse(problems.internal(), send)
            raise  # so that the server's log says more

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message.get("headers", ()), *PAGE_HEADERS]
            await send(message)

        await self._app(scope, receive, send_with_headers)

    async def _check(self, scope: Message, receive: Receive) -> tuple[str, str | None]:
        """Path and study; caller and body are left in the scope. Or a Problem, as cheap ones as can be first."""
        headers = dict(scope["headers"])
        self._check_host(headers.get(b"host", b"").decode("latin-1"))
        method = "GET" if scope["method"] == "HEAD" else scope["method"]
        path, study, needs = _route(method, scope["path"][:LONGEST_PATH])
        if method != "GET":
            self._check_origin(headers)
        caller = self._caller(headers, needs, path, study)
        address = scope["client"][0] if scope.get("client") else "unknown"
        if not self._buckets.take(caller.name if caller.name != "local" else address):
            raise Problem(429, "rate_limited", f"more than {self._limits.rate:g} requests a second", retry_after=1)
        if needs == "write" and self._service.full:
            raise problems.overloaded()
        scope["rasp.caller"] = caller
        if method == "POST":
            kind = headers.get(b"content-type", b"").split(b";")[0].strip().lower()
            wanted = (b"application/x-ndjson", b"application/json") if path == IMPORT else (b"application/json",)
            if kind not in wanted:
                raise Problem(415, "unsupported_type", f"Content-Type must be {wanted[0].decode()}")
            most = self._limits.import_body if path == IMPORT else self._limits.body
            scope["rasp.body"] = await _body(headers, receive, most)
        return path, study

    def _check_host(self, host: str) -> None:
        name = host.rsplit(":", 1)[0] if not host.endswith("]") else host
        if name.strip("[]").lower() not in self._hosts:
            raise Problem(
                421, "wrong_host", f"this server is not {host[:80]!r}; start it with --allow-host to let it be"
            )

    def _check_origin(self, headers: dict[bytes, bytes]) -> None:
        """A browser says where a write comes from: only this server's own page may."""
        site = headers.get(b"sec-fetch-site", b"same-origin")
        origin = headers.get(b"origin")
        own = origin is None or origin.split(b"//", 1)[-1].lower() == headers.get(b"host", b"").lower()
        if site not in (b"same-origin", b"none") or not own:
            raise Problem(403, "forbidden", "writes from another site's page are refused")

    def _caller(self, headers: dict[bytes, bytes], needs: Needs, path: str, study: str | None) -> Caller:
        if needs == "nothing":
            return Caller("local", "read")
        word, _, key = headers.get(b"authorization", b"").decode("latin-1").partition(" ")
        caller = self._keys.caller(key.strip() if word.lower() == "bearer" else None)
        if caller is None:
            raise Problem(401, "unauthorized", "this needs a key: Authorization: Bearer rasp_...; see rasp keys create")
        if path == "/v1/studies" and needs == "read":
            study = caller.study  # the list shows what the key is for
        if path == "/openapi.json":
            study = caller.study
        if not caller.may(needs, study):
            whose = "every study" if study is None else f"study {study!r}"
            raise Problem(403, "forbidden", f"this key may not {needs} {whose}")
        return caller


async def refuse(problem: Problem, send: Send) -> None:
    """Answer with the problem."""
    headers = [(name.lower().encode(), value.encode()) for name, value in problem.headers().items()]
    if problem.status == 401:
        headers.append((b"www-authenticate", b"Bearer"))
    if problem.status == 413:
        headers.append((b"connection", b"close"))
    await reply(problem.status, dumps(problem.body()), send, headers)


async def reply(status: int, body: bytes, send: Send, extra: Iterable[tuple[bytes, bytes]] = ()) -> None:
    """Answer with JSON."""
    headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body)), *PAGE_HEADERS, *extra]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


async def _body(headers: dict[bytes, bytes], receive: Receive, most: int) -> bytes:
    length = headers.get(b"content-length", b"0")
    if not length.isdigit() or int(length) > most:
        raise Problem(413, "too_large", f"the body may have at most {most} bytes")
    parts, size = [], 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise Problem(400, "invalid_json", "the body ended early")
        part = message.get("body", b"")
        size += len(part)
        if size > most:
            raise Problem(413, "too_large", f"the body may have at most {most} bytes")
        parts.append(part)
        if not message.get("more_body", False):
            return b"".join(parts)


def _pattern(path: str) -> re.Pattern[str]:
    text = re.escape(path).replace(r"\{name\}", f"(?P<name>{NAME})")
    return re.compile(text.replace(r"\{id\}", "[^/]{1,40}").replace(r"\{path:path\}", ".+"))


ROUTES = [(method, path, _pattern(path), needs) for (method, path), needs in TABLE.items()]


@functools.lru_cache(1_024)
def _route(method: str, given: str) -> tuple[str, str | None, Needs]:
    """The row of the table, the study that is named, and what the row needs; or a 404, or a 405."""
    allowed = []
    for verb, path, pattern, needs in ROUTES:
        found = pattern.fullmatch(given)
        if found and verb == method:
            return path, found.groupdict().get("name"), needs
        if found:
            allowed.append(verb)
    if allowed:
        raise Problem(405, "method_not_allowed", f"this path takes {' and '.join(allowed)}")
    raise Problem(404, "not_found", "there is nothing here; GET /openapi.json lists all paths")
