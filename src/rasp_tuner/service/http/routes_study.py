"""Routes of one study: ask, tell, read."""

from collections.abc import Awaitable, Callable
from typing import Any

from fastapi import FastAPI, Request
from fastapi.responses import Response, StreamingResponse

from rasp_tuner.service.http import schemas
from rasp_tuner.service.http.fast_routes import fast_routes
from rasp_tuner.service.http.gateway import STUDY_PATH, FastRoute
from rasp_tuner.service.http.openapi import describe
from rasp_tuner.service.http.query import int_from_query
from rasp_tuner.service.json_codec import dumps, loads
from rasp_tuner.service.service import Service
from rasp_tuner.service.storage.transaction import UnitOfWork
from rasp_tuner.service.study.live_study import LiveStudy

MAX_UNIX_S = 10**11


def json_response(value: Any, status: int = 200) -> Response:
    return Response(dumps(value), status, media_type="application/json")


def json_body(request: Request) -> Any:
    """The JSON body, which the gateway has read."""
    return loads(request.scope["rasp.body"])


def add(app: FastAPI, service: Service) -> None:
    _add_fast_routes(app, service)
    _add_writes(app, service)
    _add_reads(app, service)


def _add_fast_routes(app: FastAPI, service: Service) -> None:
    """Routes that the gateway answers itself; added here for the OpenAPI document."""
    said = {
        f"{STUDY_PATH}/ask": describe("Parameters to run now", schemas.Ask, schemas.Suggested),
        f"{STUDY_PATH}/tell": describe("What a suggestion led to", schemas.Tell, schemas.Told),
        f"{STUDY_PATH}/ask/batch": describe("Many at once", schemas.AskBatch, schemas.SuggestedBatch),
        f"{STUDY_PATH}/tell/batch": describe("Many at once", schemas.TellBatch, schemas.ToldBatch),
        "/readyz": describe("Tells can be taken", None, "application/json"),
    }
    for (method, path), handler in fast_routes(service).items():
        app.add_api_route(path, _as_endpoint(handler), methods=[method], **said[path])


def _add_writes(app: FastAPI, service: Service) -> None:
    @app.post(f"{STUDY_PATH}/tell_failed", **describe("It crashed or was invalid", schemas.TellFailed, schemas.Told))
    async def tell_failed(request: Request) -> Response:
        told = schemas.parse(schemas.TellFailed, json_body(request))
        return json_response(await service.tell(request.path_params["name"], told.id, None, told.reason, told.params))

    @app.post(f"{STUDY_PATH}/observe", **describe("A run nobody asked for", schemas.Observe, schemas.Observed))
    async def observe(request: Request) -> Response:
        seen = schemas.parse(schemas.Observe, json_body(request))
        return json_response(
            await service.observe(request.path_params["name"], seen.context, seen.params, seen.metrics, seen.key)
        )

    @app.post(
        f"{STUDY_PATH}/recommend", **describe("The best known; changes nothing", schemas.Ask, schemas.Recommended)
    )
    async def recommend(request: Request) -> Response:
        context = schemas.parse(schemas.Ask, json_body(request)).context
        found = await service.read(request.path_params["name"], lambda live, _: live.recommend(context))
        return json_response(found)


def _as_endpoint(handler: FastRoute) -> Callable[[Request], Awaitable[Response]]:
    async def route(request: Request) -> Response:
        status, value = await handler(request.path_params.get("name", ""), request.scope.get("rasp.body", b""))
        return json_response(value, status)

    route.__name__ = handler.__name__
    return route


def _add_reads(app: FastAPI, service: Service) -> None:
    @app.get(STUDY_PATH, **describe("Definition and counts", None, schemas.StudyView))
    async def view(request: Request) -> Response:
        return json_response(await service.read(request.path_params["name"], service.view))

    @app.get(f"{STUDY_PATH}/suggestions", **describe("The newest suggestions", None, schemas.Suggestions, limit=50))
    async def suggestions(request: Request) -> Response:
        limit = int_from_query(request.query_params, "limit", 50, 1, 200)
        shown = await service.read(request.path_params["name"], lambda live, work: live.suggestions(limit, work.now))
        return json_response({"suggestions": shown})

    @app.get(
        f"{STUDY_PATH}/suggestions/{{id}}", **describe("One, and why it was made", None, schemas.ExplainedSuggestion)
    )
    async def suggestion(request: Request) -> Response:
        id = request.path_params["id"]

        def look(live: LiveStudy, work: UnitOfWork) -> dict[str, Any]:
            return live.suggestion(id, work.event_log(live), work.now)

        return json_response(await service.read(request.path_params["name"], look))

    @app.get(
        f"{STUDY_PATH}/history",
        **describe("Series for the dashboard", None, schemas.HistoryView, points=600, since=None),
    )
    async def history(request: Request) -> Response:
        points = int_from_query(request.query_params, "points", 600, 1, 1_024)
        since = (
            int_from_query(request.query_params, "since", 1, 1, MAX_UNIX_S) if "since" in request.query_params else None
        )
        return json_response(
            await service.read(request.path_params["name"], lambda live, _: live.history.chart_data(points, since))
        )

    @app.get(f"{STUDY_PATH}/memory", **describe("Situations in memory", None, schemas.MemoryView))
    async def memory(request: Request) -> Response:
        return json_response(
            await service.read(request.path_params["name"], lambda live, _: live.history.memory_map(live.tuner))
        )

    @app.get(f"{STUDY_PATH}/live", **describe("Server-sent events", None, "text/event-stream"))
    async def live(request: Request) -> Response:
        name, caller, whose = request.path_params["name"], request.scope["rasp.caller"], request.scope["rasp.whose"]
        await service.read(name, lambda live, _: live.seq)  # a 404 now instead of an empty stream
        service.broadcaster.check_stream_limit(whose)

        def may_go_on() -> bool:
            return service.keys.is_valid(caller) and service.holds_study(name)

        rows = service.broadcaster.stream(name, whose, may_go_on)
        return StreamingResponse(rows, media_type="text/event-stream")
