"""Routes of decisions at the edge: a policy that explores, and sums of what came of it (docs/EDGE.md)."""

import asyncio
import functools
import json
from typing import Any

from rasp_tuner.policy.flagd import flagd_flags
from rasp_tuner.policy.off_policy import EdgeGain, edge_gain
from rasp_tuner.service.http.edge_schemas import EdgeGained, FlagdFile, PolicyFile, TellSums, ToldSums
from rasp_tuner.service.http.latest_policy import DEFAULT_LEAVES, MANY, MadePolicy, policies_of
from rasp_tuner.service.http.query import int_from_query
from rasp_tuner.service.http.route import STUDY_PATH as STUDY
from rasp_tuner.service.http.route import Request, Response, etag_response, get, post
from rasp_tuner.service.http.schemas import parse_batch
from rasp_tuner.service.json_codec import dumps
from rasp_tuner.service.service import Service
from rasp_tuner.service.storage.transaction import UnitOfWork
from rasp_tuner.service.study.definition import StudyDefinition
from rasp_tuner.service.study.live_study import LiveStudy

EVENTS_FOR_GAIN = 20_000  # the latest


async def tell_sums(service: Service, request: Request, told: TellSums) -> Any:
    """Learn sums; what a source sends twice under one number counts once."""
    sums = [{name: x for name, x in one.model_dump().items() if x is not None} for one in told.sums]
    runs = sum(one.count for one in told.sums)

    def run(work: UnitOfWork) -> dict[str, Any]:
        live = work.study(request.study, writes=True)
        return {"status": service.learn_sums(work, live, sums, told.source, told.sequence), "runs": runs}

    return await service.submit(run, writes=True, weight=len(sums), study=request.study)


async def policy(service: Service, request: Request, _: None) -> Response:
    """A policy that explores, as the study knows by now."""
    made = await _latest(service, request)
    return etag_response(request, made.etag, lambda: made.body)


async def flagd(service: Service, request: Request, _: None) -> Response:
    """The same as flags of flagd, for daemons and SDKs that fetch their flags from here."""
    made = await _latest(service, request)
    etag = f'{made.etag[:-1]}-flagd"'
    return etag_response(request, etag, lambda: dumps(flagd_flags(json.loads(made.body), request.study)))


async def gained(service: Service, request: Request, _: None) -> Any:
    """What the latest runs at edges gained over the default, by the probabilities with which it was drawn."""

    def read(live: LiveStudy, _: UnitOfWork) -> tuple[int, int, StudyDefinition]:
        return live.id, live.seq, live.definition

    study, seq, definition = await service.read(request.study, read)
    signs = {name: -1.0 if one.get("direction") == "max" else 1.0 for name, one in definition.metrics.items()}

    def estimate() -> EdgeGain | None:
        told = service.store.latest_sums(study, max(seq - EVENTS_FOR_GAIN, 0))
        return edge_gain([one for event in told for one in event.body["sums"]], definition.default, signs)

    found = await asyncio.to_thread(estimate)
    return {"edge": None if found is None else found.to_json()}


async def _latest(service: Service, request: Request) -> MadePolicy:
    outcomes = int_from_query(request.query, "outcomes", MANY, 1, MANY)
    leaves = int_from_query(request.query, "leaves", DEFAULT_LEAVES, 1, 64)
    return await policies_of(service).latest(request.study, outcomes, leaves)


POLICY_QUERY = {"outcomes": MANY, "leaves": DEFAULT_LEAVES}
ADDED_UP, FOR_EDGES = "Runs that were added up, which count once", "A policy that explores, for decisions at the edge"
_parse_sums = functools.partial(parse_batch, TellSums, "sums")

ROUTES = [
    get(f"{STUDY}/edge", "read", gained, "What runs at edges gained over the default, measured", gives=EdgeGained),
    post(f"{STUDY}/tells", "write", tell_sums, ADDED_UP, TellSums, ToldSums, parse=_parse_sums),
    get(f"{STUDY}/policy", "read", policy, FOR_EDGES, gives=PolicyFile, query=POLICY_QUERY),
    get(f"{STUDY}/flagd", "read", flagd, "The policy as flags of flagd", gives=FlagdFile, query=POLICY_QUERY),
]
