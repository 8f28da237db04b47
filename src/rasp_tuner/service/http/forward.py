"""Forwarder: sends a request for a study of another server on to that server, and its answer back.

So any server answers for any study, behind any load balancer. The request goes to the address in the table of servers,
with the caller's own key and a header that says it was sent on already: it is sent on once, never around in circles.
"""

import asyncio
import contextlib
import json
import re
from collections.abc import AsyncGenerator, Awaitable, Mapping
from dataclasses import replace
from typing import Any, TypeVar
from urllib.parse import urlencode

from sqlalchemy.exc import SQLAlchemyError

from rasp_tuner.feature_flags import readings
from rasp_tuner.http_client import HttpClient, HttpReply, NotSent
from rasp_tuner.service import service_errors
from rasp_tuner.service.http.http_errors import HttpError, owner_away, owner_lost
from rasp_tuner.service.http.list_response import list_response
from rasp_tuner.service.http.query import MOST_IN_PAGE, list_query
from rasp_tuner.service.http.route import IMPORT_PATH, OFREP_PATH, Request, Response, Route
from rasp_tuner.service.service import Service
from rasp_tuner.service.service_errors import NotFound, Unavailable
from rasp_tuner.service.storage.leases import BeingTaken, Leases, Peer
from rasp_tuner.service.storage.store import StoredStudy
from rasp_tuner.service.study.definition import NAME_PATTERN
from rasp_tuner.service.study.study_summary import place
from rasp_tuner.service.study.suggestion_record import put_bounded

T = TypeVar("T")

FORWARDED = b"rasp-forwarded"  # the header that marks a request which was sent on
PASSED_ON = (b"authorization", b"x-api-key", b"content-type", b"accept", b"traceparent")
KEPT = (b"retry-after", b"allow", b"www-authenticate", b"content-disposition")  # of answers; others are ours as well
NOT_OWNER = "not_owner"  # the code of a server that was taken for the owner
STUDIES_PATH = "/v1/studies"
MAX_HEADER_BYTES = 1_048_576  # of an import's first line
CONNECT_S = 2.0  # for a connection to another server
MAX_TRIES = 4  # to find the owner, while studies change hands
TRY_AGAIN_S = 0.05
CHECK_PEER_S = 0.5  # between looks whether a server that does not answer still has its lease
LIST_S = 2.0  # that other servers have to name their studies
MAX_ROUTES = 10_000  # studies of other servers whose owner is remembered


class Forwarder:
    """Called by the gateway for every request that it allows; all on the event loop."""

    def __init__(self, service: Service, leases: Leases) -> None:
        self._service, self._leases = service, leases
        self._routes: dict[str, Peer] = {}
        self._searches: dict[str, asyncio.Task[Peer | StoredStudy | None]] = {}
        self._client = HttpClient(CONNECT_S)

    def close(self) -> None:
        self._client.close()

    async def __call__(self, route: Route, request: Request) -> Response | None:
        """The answer of the server that owns the study; None: this one does, or the request is about none."""
        if route.method == "OPTIONS":
            return None
        path, study = route.path, request.parameters.get("name")
        marked = FORWARDED in request.headers
        if path.startswith(OFREP_PATH):
            study = await self._study_of_flag(request, marked)
            if study is None:
                return None
        elif not path.startswith(STUDIES_PATH):
            return None
        if path == STUDIES_PATH and route.method == "GET":
            return None if marked else list_response(await self._list(request))
        name = study or _named_in_body(path, request)
        if name is None:
            return None  # wrong in a way that the route explains
        for _ in range(MAX_TRIES):
            peer = await self._owner(name, new=study is None, look_again=marked)
            if peer is None:
                return None
            if marked:
                raise HttpError(421, NOT_OWNER, f"study {name!r} belongs to another server", retry_after=1)
            answer = None
            try:
                answer = await self._send_on(peer, request)
            finally:
                if answer is None or not 200 <= answer.status < 300 or request.method == "DELETE":
                    self._routes.pop(name, None)
            if answer is not None:
                return answer
            await asyncio.sleep(TRY_AGAIN_S)
        raise owner_away()

    async def _study_of_flag(self, request: Request, marked: bool) -> str | None:
        """The study that a flag or an event is about; None: there is none, or the request has parts."""
        key, unreachable = request.parameters.get("key") or _in_body(request, "trackingEventName"), None
        for name, _ in readings(key or ""):
            if re.fullmatch(NAME_PATTERN, name) and request.caller.study in (None, name):
                try:
                    await self._owner(name, new=False, look_again=marked)
                    return name
                except NotFound:
                    continue  # a shorter name may be one
                except Unavailable as error:  # nobody can say: a shorter name may be ours
                    unreachable = error
        if unreachable is not None:
            raise unreachable
        return None

    async def _owner(self, name: str, new: bool, look_again: bool) -> Peer | None:
        """The other server that owns a study; None if this one does, or if there is none and it may be made."""
        if self._service.holds_study(name):
            return None
        known = self._routes.get(name)
        if known is not None and not look_again and self._leases.is_alive(known):
            return known
        search = self._searches.get(name)
        if search is None:
            search = self._searches[name] = asyncio.create_task(self._search(name))
            search.add_done_callback(lambda _: self._searches.pop(name, None))
        found = await asyncio.shield(search)
        if isinstance(found, Peer):
            put_bounded(self._routes, name, found, MAX_ROUTES)
            return found
        if found is None and not new:
            raise service_errors.unknown_study(name)
        return None

    async def _search(self, name: str) -> Peer | StoredStudy | None:
        if not self._leases.holds:
            raise service_errors.lease_over()
        for _ in range(MAX_TRIES):
            try:
                return await asyncio.to_thread(self._leases.find, name)
            except BeingTaken:
                await asyncio.sleep(TRY_AGAIN_S)
            except SQLAlchemyError as error:
                raise service_errors.storage_failed() from error
        raise owner_away()

    async def _send_on(self, peer: Peer, request: Request) -> Response | None:
        """The answer of another server; None if it is not the owner."""
        self._service.telemetry.forwarded.inc()
        try:
            return await self._while_alive(peer, self._exchange(peer, request))
        except NotSent as error:
            raise owner_away() from error

    async def _exchange(self, peer: Peer, request: Request) -> Response | None:
        """The same, while that server lives; if it is a stream, only its head was read."""
        answer = await self._send(peer, request, request.target)
        status, headers = answer.status, answer.headers
        kind = headers[b"content-type"].decode("latin-1") if b"content-type" in headers else None
        kept = {name.decode(): headers[name].decode("latin-1") for name in KEPT if name in headers}
        if status != 204 and b"content-length" not in headers:
            return Response(self._parts(peer, answer), status, kind, kept)
        try:
            body = await answer.read()
        finally:
            answer.close()
        return None if status == 421 and NOT_OWNER.encode() in body else Response(body, status, kind, kept)

    async def _parts(self, peer: Peer, answer: HttpReply) -> AsyncGenerator[bytes, None]:
        """A stream as it comes; it breaks off if the other server goes away."""
        try:
            parts = answer.parts()
            while part := await self._while_alive(peer, anext(parts, b"")):
                yield part
        finally:
            answer.close()

    async def _while_alive(self, peer: Peer, doing: Awaitable[T]) -> T:
        """What another server gives; a 502 if it goes away, or loses its lease meanwhile."""
        task = asyncio.ensure_future(doing)
        try:
            while not task.done():
                await asyncio.wait({task}, timeout=CHECK_PEER_S)
                if not task.done() and not self._leases.is_alive(peer):
                    raise owner_lost()
            return task.result()
        except NotSent:
            raise
        except ConnectionError as error:
            raise owner_lost() from error
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def _send(self, peer: Peer, request: Request, target: bytes) -> HttpReply:
        headers = [(name, request.headers[name]) for name in PASSED_ON if name in request.headers]
        headers.append((FORWARDED, self._leases.id.encode()))
        method = "GET" if request.method == "HEAD" else request.method
        connection = await self._client.connect(peer.url)
        return await self._client.send(connection, method, target, headers, request.body)

    async def _list(self, request: Request) -> dict[str, Any]:
        """A page of the studies of all servers; `missing` names those that nobody has shown."""
        given = request.query
        query = list_query(given, request.caller.study)
        end = None if query.limit is None else min(query.offset + query.limit, MOST_IN_PAGE)
        wanted = {**given, "offset": "0"} | ({} if end is None else {"limit": str(end)})
        own, names, *others = await asyncio.gather(
            self._service.list_studies(replace(query, offset=0, limit=end)),
            asyncio.to_thread(self._leases.names),
            *(self._list_of(peer, request, wanted) for peer in self._leases.peers()),
            return_exceptions=True,
        )
        if isinstance(own, BaseException):
            raise own
        parts = [part for part in (*others, own) if isinstance(part, dict)]
        views = {view["name"]: view for part in parts for view in part["studies"]}
        damaged = {view["name"]: view for part in parts for view in part["damaged"]}
        ordered = sorted(views.values(), key=lambda view: (place(view, query.sort), view["name"]))
        page: dict[str, Any] = {
            "studies": ordered[query.offset : end],
            "damaged": [damaged[name] for name in sorted(damaged)],
            "total": sum(part["total"] for part in parts),
            "loading": sum(part["loading"] for part in parts),
        }
        if len(parts) <= len(others) and isinstance(names, list):  # somebody did not answer
            known = (name for name in names if query.only in (None, name))
            page["missing"] = sorted(set(known) - views.keys() - damaged.keys())
        return page

    async def _list_of(self, peer: Peer, request: Request, wanted: Mapping[str, str]) -> dict[str, Any]:
        target = f"{STUDIES_PATH}?{urlencode(wanted)}".encode()
        async with asyncio.timeout(LIST_S):
            answer = await self._send(peer, request, target)
            try:
                listed: dict[str, Any] = json.loads(await answer.read())
            finally:
                answer.close()
        if answer.status != 200:
            raise ConnectionError(f"{peer.url} answered {answer.status}")
        return listed


def _named_in_body(path: str, request: Request) -> str | None:
    """The study that a request makes; None if it does not say, or if it cannot be read."""
    if path != IMPORT_PATH:
        return _in_body(request, "name")
    if (given := request.query.get("name")) is not None:
        return _text(given)
    with contextlib.suppress(ValueError, KeyError, TypeError, RecursionError):
        header = json.loads(request.body[:MAX_HEADER_BYTES].partition(b"\n")[0])
        return _text(header["definition"]["name"])
    return None


def _in_body(request: Request, field: str) -> str | None:
    """A text in the JSON of a body; None if it is not there, or cannot be read."""
    with contextlib.suppress(ValueError, KeyError, TypeError, RecursionError):
        return _text(json.loads(request.body)[field])
    return None


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) and "\0" not in value else None
