"""Routes of one study: ask, tell, read."""

import functools
from collections.abc import Awaitable
from typing import Any

from rasp_tuner.answer_models import WhatIfAnswer
from rasp_tuner.service.http.query import int_from_query
from rasp_tuner.service.http.route import EVENT_STREAM, Request, Response, get, post
from rasp_tuner.service.http.route import STUDY_PATH as STUDY
from rasp_tuner.service.http.schemas import (
    Ask,
    AskBatch,
    ExplainedSuggestion,
    HistoryView,
    Observe,
    Observed,
    Partial,
    PartialAnswer,
    Recommended,
    SituationGains,
    StudyUsers,
    StudyView,
    Suggested,
    SuggestedBatch,
    Suggestions,
    Tell,
    TellBatch,
    TellFailed,
    Told,
    ToldBatch,
    Waiting,
    WhatIfRequest,
    parse_batch,
)
from rasp_tuner.service.service import Answer, Service
from rasp_tuner.service.service_errors import InvalidRequest
from rasp_tuner.service.sse import live_row
from rasp_tuner.service.storage.transaction import UnitOfWork
from rasp_tuner.service.study.live_study import LiveStudy

MAX_UNIX_S = 10**11
HISTORY_QUERY = {"points": 600, "since": None}


async def ask(service: Service, request: Request, asked: Ask) -> Any:
    return (await service.ask(request.study, [asked.context]))[0]


async def ask_batch(service: Service, request: Request, asked: AskBatch) -> Any:
    return {"suggestions": await service.ask(request.study, list(asked.contexts))}


def tell(service: Service, request: Request, told: Tell) -> Awaitable[Any]:
    return service.tell(request.study, Answer(told.id, told.metrics, "", told.params, told.stopped, told.control))


async def tell_batch(service: Service, request: Request, told: TellBatch) -> Any:
    for i, one in enumerate(told.tells):
        if (one.metrics is None) == (one.failed is None):
            raise InvalidRequest(f"tells.{i}: give metrics, or failed with a reason", f"tells.{i}")
        if one.metrics is None and (one.stopped or one.control is not None):
            said = "was not stopped" if one.stopped else "has no control"
            raise InvalidRequest(f"tells.{i}: a run that failed {said}", f"tells.{i}")
    tells = [Answer(one.id, one.metrics, one.failed or "", one.params, one.stopped, one.control) for one in told.tells]
    return {"results": await service.tell_batch(request.study, tells)}


def tell_failed(service: Service, request: Request, told: TellFailed) -> Awaitable[Any]:
    return service.tell(request.study, Answer(told.id, None, told.reason, told.params))


async def partial(service: Service, request: Request, running: Partial) -> Any:
    return await service.read(request.study, lambda live, _: live.partial(running.id, running.metrics))


def observe(service: Service, request: Request, seen: Observe) -> Awaitable[Any]:
    def run(live: LiveStudy, work: UnitOfWork) -> dict[str, Any]:
        event = live.observe(seen.context, seen.params, seen.metrics, seen.key, work.now, work.store, seen.stopped)
        if event is not None:
            work.add_event(live, event)
        return {"status": "duplicate" if event is None else "learned"}

    return service.write(request.study, run)


async def recommend(service: Service, request: Request, asked: Ask) -> Any:
    return await service.read(request.study, lambda live, _: live.recommend(asked.context))


async def what_if(service: Service, request: Request, asked: WhatIfRequest) -> Any:
    return await service.read(request.study, lambda live, _: live.what_if(asked.context, asked.params))


async def view(service: Service, request: Request, _: None) -> Any:
    return await service.read(request.study, service.view)


async def users(service: Service, request: Request, _: None) -> Any:
    name = request.study
    return {"users": await service.read(name, lambda _, work: service.users_of(name, work.now))}


async def suggestions(service: Service, request: Request, _: None) -> Any:
    limit = int_from_query(request.query, "limit", 50, 1, 200)
    shown = await service.read(request.study, lambda live, work: live.suggestions(limit, work.now))
    return {"suggestions": shown}


async def suggestion(service: Service, request: Request, _: None) -> Any:
    def look(live: LiveStudy, work: UnitOfWork) -> dict[str, Any]:
        return live.suggestion(request.parameters["id"], work.store, work.now)

    return await service.read(request.study, look)


async def waiting(service: Service, request: Request, _: None) -> Any:
    return {"waiting": await service.read(request.study, lambda live, work: live.waiting(work.now))}


async def history(service: Service, request: Request, _: None) -> Any:
    given = request.query
    points = int_from_query(given, "points", 600, 1, 1_024)
    since = int_from_query(given, "since", 1, 1, MAX_UNIX_S) if "since" in given else None
    return await service.read(request.study, lambda live, _: live.chart_data(points, since))


async def situations(service: Service, request: Request, _: None) -> Any:
    return {"situations": await service.read(request.study, lambda live, _: live.situations())}


async def live(service: Service, request: Request, _: None) -> Response:
    name = request.study
    latest = await service.read(name, lambda live, _: live_row(live))  # a 404 now instead of an empty stream
    service.broadcaster.check_stream_limit(request.account)

    def is_allowed() -> bool:
        return service.keys.is_valid(request.caller) and service.holds_study(name)

    rows = service.broadcaster.stream(name, latest, request.account, is_allowed)
    return Response(rows, content_type=EVENT_STREAM)


_parse_asks = functools.partial(parse_batch, AskBatch, "contexts")
_parse_tells = functools.partial(parse_batch, TellBatch, "tells")

ROUTES = [
    post(f"{STUDY}/ask", "write", ask, "Parameters to run now", Ask, Suggested),
    post(f"{STUDY}/ask/batch", "write", ask_batch, "Many at once", AskBatch, SuggestedBatch, parse=_parse_asks),
    post(f"{STUDY}/tell", "write", tell, "What a suggestion led to", Tell, Told),
    post(f"{STUDY}/tell/batch", "write", tell_batch, "Many at once", TellBatch, ToldBatch, parse=_parse_tells),
    post(f"{STUDY}/tell_failed", "write", tell_failed, "It crashed or was invalid", TellFailed, Told),
    post(f"{STUDY}/partial", "read", partial, "Whether a run should be ended", Partial, PartialAnswer),
    post(f"{STUDY}/observe", "write", observe, "A run nobody asked for", Observe, Observed),
    post(f"{STUDY}/recommend", "read", recommend, "The best known; changes nothing", Ask, Recommended),
    post(f"{STUDY}/what-if", "read", what_if, "What is expected of parameters", WhatIfRequest, WhatIfAnswer),
    get(STUDY, "read", view, "Definition and counts", gives=StudyView),
    get(f"{STUDY}/users", "read", users, "Who asked or told in the last hour", gives=StudyUsers),
    get(f"{STUDY}/suggestions", "read", suggestions, "The newest suggestions", gives=Suggestions, query={"limit": 50}),
    get(f"{STUDY}/suggestions/{{id}}", "read", suggestion, "One, and why it was made", gives=ExplainedSuggestion),
    get(f"{STUDY}/waiting", "read", waiting, "Suggestions that wait for a person", gives=Waiting),
    get(f"{STUDY}/history", "read", history, "Series for the dashboard", gives=HistoryView, query=HISTORY_QUERY),
    get(
        f"{STUDY}/situations", "read", situations, "What is recommended where, and what it gains", gives=SituationGains
    ),
    get(f"{STUDY}/live", "read", live, "Server-sent events", gives=EVENT_STREAM),
]
