"""Routes of decisions at the edge: a policy that explores, and sums of what came of it (docs/EDGE.md)."""

import asyncio
import functools
import json
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

from rasp_tuner.policy.flagd import flagd_flags
from rasp_tuner.service.http.edge_schemas import FlagdFile, PolicyFile, TellSums, ToldSums
from rasp_tuner.service.http.query import int_from_query
from rasp_tuner.service.http.route import STUDY_PATH as STUDY
from rasp_tuner.service.http.route import Request, Response, Route
from rasp_tuner.service.http.routes_ofrep import has_etag
from rasp_tuner.service.http.schemas import parse_batch
from rasp_tuner.service.json_codec import dumps
from rasp_tuner.service.service import Service
from rasp_tuner.service.service_errors import Conflict
from rasp_tuner.service.storage.transaction import UnitOfWork
from rasp_tuner.service.study.live_study import LiveStudy
from rasp_tuner.tuner import Tuner

POLICY_EVERY_S = 1.0  # a policy is made anew at the most so often, however many ask for it
MOST_POLICIES = 256  # kept
STEPS_FOR_POLICY = 512  # of the latest, whose contexts a policy is made of
MANY = 10**11  # outcomes


@dataclass
class _Made:
    """The latest policy of a study."""

    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    at: float = -POLICY_EVERY_S
    of: tuple[int, int] | None = None  # the study's number, and its latest event by then
    etag: str = ""
    body: bytes = b""


class _Policy(NamedTuple):
    etag: str
    body: bytes


_made: WeakKeyDictionary[Service, dict[tuple[str, int, int], _Made]] = WeakKeyDictionary()


async def tell_sums(service: Service, request: Request, told: TellSums) -> Any:
    """Learn sums; what a source sends twice under one number counts once."""
    sums = [{name: x for name, x in one.model_dump().items() if x is not None} for one in told.sums]
    runs = sum(one.count for one in told.sums)

    def run(work: UnitOfWork) -> dict[str, Any]:
        live = work.study(request.study, writes=True)
        started = time.perf_counter()
        event = live.tell_sums(sums, told.source, told.sequence, work.now, work.store)
        if event is None:
            return {"status": "duplicate", "runs": runs}
        service.telemetry.tell(time.perf_counter() - started)
        work.add_event(live, event)
        return {"status": "learned", "runs": runs}

    return await service.submit(run, writes=True, weight=len(sums), study=request.study)


async def policy(service: Service, request: Request, _: None) -> Response:
    """A policy that explores, as the study knows by now."""
    made = await _latest(service, request)
    return _answer(request, made.etag, made.body)


async def flagd(service: Service, request: Request, _: None) -> Response:
    """The same as flags of flagd, for daemons and SDKs that fetch their flags from here."""
    made = await _latest(service, request)
    etag = f'{made.etag[:-1]}-flagd"'
    return _answer(
        request, etag, b"" if has_etag(request, etag) else dumps(flagd_flags(json.loads(made.body), request.study))
    )


def _answer(request: Request, etag: str, body: bytes) -> Response:
    if has_etag(request, etag):
        return Response(status=304, content_type=None, headers={"ETag": etag})
    return Response(body, headers={"ETag": etag})


async def _latest(service: Service, request: Request) -> "_Policy":
    """The policy, made in a thread of its own, so that nobody waits for it."""
    outcomes = int_from_query(request.query, "outcomes", MANY, 1, MANY)
    leaves = int_from_query(request.query, "leaves", 16, 1, 64)
    kept = _made.setdefault(service, {})
    key = (request.study, outcomes, leaves)
    made = kept[key] = kept.pop(key, _Made())  # the latest is the last
    if len(kept) > MOST_POLICIES:
        del kept[next(iter(kept))]
    async with made.lock:
        now = await service.read(request.study, lambda live, _: (live.id, live.seq))
        fresh = made.of is not None and made.of[0] == now[0] and time.monotonic() - made.at < POLICY_EVERY_S
        if made.of != now and not fresh:
            explore = True if outcomes == MANY else outcomes
            now, capture = await service.read(request.study, lambda live, _: _captured(live))
            made.etag, made.body = await asyncio.to_thread(_policy_of, capture, leaves, explore)
            made.of, made.at = now, time.monotonic()
        return _Policy(made.etag, made.body)


def _captured(live: LiveStudy) -> tuple[tuple[int, int], Callable[[], bytes]]:
    if live.approvals is not None:
        message = "suggestions of this study wait for a person, so that no policy can try them"
        raise Conflict(f"{message}: create it without approve_s")
    return (live.id, live.seq), live.tuner.capture(STEPS_FOR_POLICY)


def _policy_of(capture: Callable[[], bytes], leaves: int, explore: bool | int) -> tuple[str, bytes]:
    made = Tuner.from_bytes(capture()).policy(leaves, explore=explore).policy
    return f'"{made["explore"]["version"]}"', dumps(made)


ROUTES = [
    Route(
        "POST",
        f"{STUDY}/tells",
        "write",
        tell_sums,
        "Runs that were added up, which count once",
        TellSums,
        ToldSums,
        parse=functools.partial(parse_batch, TellSums, "sums"),
    ),
    Route(
        "GET",
        f"{STUDY}/policy",
        "read",
        policy,
        "A policy that explores, for decisions at the edge",
        gives=PolicyFile,
        query={"outcomes": MANY, "leaves": 16},
    ),
    Route(
        "GET",
        f"{STUDY}/flagd",
        "read",
        flagd,
        "The policy as flags of flagd",
        gives=FlagdFile,
        query={"outcomes": MANY, "leaves": 16},
    ),
]
