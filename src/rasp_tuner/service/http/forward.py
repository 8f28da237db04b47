"""Forwarder: sends a request for a study of another server on to that server, and its answer back.

So any server answers for any study, behind any load balancer. The request goes to the address in the table of servers,
with the caller's own key and a header that says it was sent on already: it is sent on once, never around in circles.
"""

import asyncio
import contextlib
import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any
from urllib.parse import parse_qs, parse_qsl, urlencode

from sqlalchemy.exc import SQLAlchemyError

from rasp_tuner.service import http_errors
from rasp_tuner.service.http.answers import send_json
from rasp_tuner.service.http.peer_client import NotSent, PeerAnswer, PeerClient
from rasp_tuner.service.http.query import MOST_IN_PAGE, list_query
from rasp_tuner.service.http.route import IMPORT_PATH, Message, Receive, Send
from rasp_tuner.service.http_errors import HttpError
from rasp_tuner.service.json_codec import dumps
from rasp_tuner.service.service import Service
from rasp_tuner.service.storage.leases import BeingTaken, Leases, Peer
from rasp_tuner.service.storage.store import StudyRow
from rasp_tuner.service.study.fallback_counts import HEADER as FALLBACKS_HEADER
from rasp_tuner.service.study.study_summary import place

FORWARDED = b"rasp-forwarded"  # the header that marks a request which was sent on
PASSED_ON = (b"authorization", b"content-type", b"accept", FALLBACKS_HEADER)
DROPPED = {b"connection", b"keep-alive", b"transfer-encoding", b"date", b"server"}  # of answers: they are of one hop
NOT_OWNER = "not_owner"  # the code of a server that was taken for the owner
STUDIES_PATH = "/v1/studies"
MAX_HEADER_BYTES = 1_048_576  # of an import's first line
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
        self._searches: dict[str, asyncio.Task[Peer | StudyRow | None]] = {}
        self._client = PeerClient()

    def close(self) -> None:
        self._client.close()

    async def __call__(self, scope: Message, receive: Receive, path: str, study: str | None, send: Send) -> bool:
        """Whether the request was answered here; if not, this server owns its study, or it is about none."""
        if not path.startswith(STUDIES_PATH):
            return False
        marked = any(name == FORWARDED for name, _ in scope["headers"])
        if path == STUDIES_PATH and scope["method"] in ("GET", "HEAD"):
            if not marked:
                await send_json(200, dumps(await self._list(scope)), send)
            return not marked
        name = study or _named_in_body(path, scope)
        if name is None:
            return False  # wrong in a way that the route explains
        for _ in range(MAX_TRIES):
            peer = await self._owner(name, new=study is None, look_again=marked)
            if peer is None:
                return False
            if marked:
                raise HttpError(421, NOT_OWNER, f"study {name!r} belongs to another server", retry_after=1)
            status = 0
            try:
                status = await self._send_on(peer, scope, receive, send)
            finally:
                if not 200 <= status < 300 or scope["method"] == "DELETE":
                    self._routes.pop(name, None)
            if status:
                return True
            await asyncio.sleep(TRY_AGAIN_S)
        raise http_errors.owner_away()

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
            self._routes[name] = found
            if len(self._routes) > MAX_ROUTES:
                del self._routes[next(iter(self._routes))]
            return found
        if found is None and not new:
            raise http_errors.unknown_study(name)
        return None

    async def _search(self, name: str) -> Peer | StudyRow | None:
        if not self._leases.holds:
            raise http_errors.lease_over()
        for _ in range(MAX_TRIES):
            try:
                return await asyncio.to_thread(self._leases.find, name)
            except BeingTaken:
                await asyncio.sleep(TRY_AGAIN_S)
            except SQLAlchemyError as error:
                raise http_errors.storage_failed() from error
        raise http_errors.owner_away()

    async def _send_on(self, peer: Peer, scope: Message, receive: Receive, send: Send) -> int:
        """The status of the answer, which was passed on; 0 if that server is not the owner. Given up with its lease."""
        started = False

        async def noted(message: Message) -> None:
            nonlocal started
            started = True
            await send(message)

        self._service.telemetry.forwarded.inc()
        exchange = asyncio.create_task(self._exchange(peer, scope, receive, noted))
        try:
            while not exchange.done():
                await asyncio.wait({exchange}, timeout=CHECK_PEER_S)
                if not exchange.done() and not self._leases.is_alive(peer):
                    raise http_errors.owner_lost()
            return exchange.result()
        except HttpError:
            if not started:
                raise
            return 502  # the answer has begun: all that is left is to end it
        finally:
            exchange.cancel()
            await asyncio.gather(exchange, return_exceptions=True)

    async def _exchange(self, peer: Peer, scope: Message, receive: Receive, send: Send) -> int:
        """Send the request and pass the answer on, unless that server does not own the study."""
        try:
            answer = await self._send(peer, scope)
        except NotSent as error:
            raise http_errors.owner_away() from error
        except ConnectionError as error:
            raise http_errors.owner_lost() from error
        try:
            if answer.status == 421 and NOT_OWNER.encode() in await answer.read():
                return 0
            await self._pass_on(answer, scope["method"] == "HEAD", receive, send)
        except ConnectionError as error:
            raise http_errors.owner_lost() from error
        finally:
            answer.close()
        return answer.status

    async def _pass_on(self, answer: PeerAnswer, is_head: bool, receive: Receive, send: Send) -> None:
        headers = [header for header in answer.headers if header[0] not in DROPPED]
        start = {"type": "http.response.start", "status": answer.status, "headers": headers}
        if any(name == b"content-length" for name, _ in headers) or answer.status == 204:
            body = await answer.read()
            await send(start)
            await send({"type": "http.response.body", "body": b"" if is_head else body})
            return
        await send(start)
        leaving = asyncio.create_task(_disconnected(receive))
        reading = asyncio.create_task(_copy(answer, send))
        try:
            await asyncio.wait({leaving, reading}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (leaving, reading):
                task.cancel()
            await asyncio.gather(leaving, reading, return_exceptions=True)

    async def _send(self, peer: Peer, scope: Message) -> PeerAnswer:
        headers = [(name, value) for name, value in scope["headers"] if name in PASSED_ON]
        headers.append((FORWARDED, self._leases.id.encode()))
        path, query = scope.get("raw_path") or scope["path"].encode(), scope["query_string"]
        method = "GET" if scope["method"] == "HEAD" else scope["method"]
        body = scope.get("rasp.body") or b""
        return await self._client.send(peer.url, method, path + b"?" + query if query else path, headers, body)

    async def _list(self, scope: Message) -> dict[str, Any]:
        """A page of the studies of all servers; `missing` names those that nobody has shown."""
        given = dict(parse_qsl(scope["query_string"].decode("latin-1")))
        query = list_query(given, scope["rasp.caller"].study)
        end = None if query.limit is None else min(query.offset + query.limit, MOST_IN_PAGE)
        wanted = {**given, "offset": "0"} | ({} if end is None else {"limit": str(end)})
        own, names, *others = await asyncio.gather(
            self._service.list_studies(replace(query, offset=0, limit=end)),
            asyncio.to_thread(self._leases.names),
            *(self._list_of(peer, scope, wanted) for peer in self._leases.peers()),
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

    async def _list_of(self, peer: Peer, scope: Message, wanted: Mapping[str, str]) -> dict[str, Any]:
        asked = {**scope, "query_string": urlencode(wanted).encode()}
        async with asyncio.timeout(LIST_S):
            answer = await self._send(peer, asked)
            try:
                listed: dict[str, Any] = json.loads(await answer.read())
            finally:
                answer.close()
        if answer.status != 200:
            raise ConnectionError(f"{peer.url} answered {answer.status}")
        return listed


def _named_in_body(path: str, scope: Mapping[str, Any]) -> str | None:
    """The study that a request makes; None if it does not say, or if it cannot be read."""
    body: bytes = scope.get("rasp.body", b"")
    with contextlib.suppress(ValueError, KeyError, TypeError, RecursionError):
        if path == IMPORT_PATH:
            query = parse_qs(scope["query_string"].decode("latin-1"))
            name = (
                query["name"][0]
                if "name" in query
                else json.loads(body[:MAX_HEADER_BYTES].partition(b"\n")[0])["definition"]["name"]
            )
        else:
            name = json.loads(body)["name"]
        return name if isinstance(name, str) and "\0" not in name else None
    return None


async def _copy(answer: PeerAnswer, send: Send) -> None:
    """Pass on a stream; it ends early if the other server does."""
    async for part in answer.parts():
        await send({"type": "http.response.body", "body": part, "more_body": True})
    await send({"type": "http.response.body", "body": b""})


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
