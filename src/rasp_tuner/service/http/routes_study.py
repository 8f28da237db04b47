"""Routes of one study: asking, telling, looking."""

from collections.abc import Awaitable, Callable
from typing import Any

from fastapi import FastAPI, Request
from fastapi.responses import Response, StreamingResponse

from rasp_tuner.service.http import schemas
from rasp_tuner.service.http.fast_routes import direct
from rasp_tuner.service.http.gateway import ONE, Direct
from rasp_tuner.service.http.openapi import describe
from rasp_tuner.service.http_errors import invalid
from rasp_tuner.service.json_codec import dumps, loads
from rasp_tuner.service.service import Service
from rasp_tuner.service.storage.transaction import Desk
from rasp_tuner.service.study.live_study import LiveStudy


def answer(value: Any, status: int = 200) -> Response:
    return Response(dumps(value), status, media_type="application/json")


def body(request: Request) -> Any:
    """The JSON the guard has read."""
    return loads(request.scope["rasp.body"])


def add(app: FastAPI, service: Service) -> None:
    _add_direct(app, service)
    _add_orders(app, service)
    _add_looks(app, service)


def _add_direct(app: FastAPI, service: Service) -> None:
    """Routes that the guard answers itself: here for the document."""
    said = {
        f"{ONE}/ask": describe("Parameters to run now", schemas.Ask, schemas.Suggested),
        f"{ONE}/tell": describe("What a suggestion led to", schemas.Tell, schemas.Told),
        f"{ONE}/ask/batch": describe("Many at once", schemas.AskBatch, schemas.SuggestedBatch),
        f"{ONE}/tell/batch": describe("Many at once", schemas.TellBatch, schemas.ToldBatch),
        "/readyz": describe("Tells can be taken", None, "application/json"),
    }
    for (method, path), handler in direct(service).items():
        app.add_api_route(path, _through_the_framework(handler), methods=[method], **said[path])


def _add_orders(app: FastAPI, service: Service) -> None:
    @app.post(f"{ONE}/tell_failed", **describe("It crashed or was invalid", schemas.TellFailed, schemas.Told))
    async def tell_failed(request: Request) -> Response:
        told = schemas.parse(schemas.TellFailed, body(request))
        return answer(await service.tell(request.path_params["name"], told.id, None, told.reason))

    @app.post(f"{ONE}/observe", **describe("A run nobody asked for", schemas.Observe, schemas.Observed))
    async def observe(request: Request) -> Response:
        seen = schemas.parse(schemas.Observe, body(request))
        return answer(
            await service.observe(request.path_params["name"], seen.context, seen.params, seen.metrics, seen.key)
        )

    @app.post(f"{ONE}/recommend", **describe("The best known; changes nothing", schemas.Ask, schemas.Recommended))
    async def recommend(request: Request) -> Response:
        context = schemas.parse(schemas.Ask, body(request)).context
        params = await service.look(request.path_params["name"], lambda live, _: live.tuner.recommend(context))
        return answer({"params": params})


def _through_the_framework(handler: Direct) -> Callable[[Request], Awaitable[Response]]:
    async def route(request: Request) -> Response:
        status, value = await handler(request.path_params.get("name", ""), request.scope.get("rasp.body", b""))
        return answer(value, status)

    route.__name__ = handler.__name__
    return route


def _add_looks(app: FastAPI, service: Service) -> None:
    @app.get(ONE, **describe("Definition and counts", None, schemas.StudyView))
    async def view(request: Request) -> Response:
        return answer(await service.look(request.path_params["name"], lambda live, desk: live.view(desk.now)))

    @app.get(f"{ONE}/suggestions", **describe("The newest suggestions", None, schemas.Suggestions, limit=50))
    async def suggestions(request: Request) -> Response:
        limit = _whole(request, "limit", 50, 200)
        shown = await service.look(request.path_params["name"], lambda live, desk: live.suggestions(limit, desk.now))
        return answer({"suggestions": shown})

    @app.get(f"{ONE}/suggestions/{{id}}", **describe("One, and why it was made", None, schemas.ExplainedSuggestion))
    async def suggestion(request: Request) -> Response:
        id = request.path_params["id"]

        def look(live: LiveStudy, desk: Desk) -> dict[str, Any]:
            return live.suggestion(id, desk.log(live), desk.now)

        return answer(await service.look(request.path_params["name"], look))

    @app.get(f"{ONE}/history", **describe("Series for the dashboard", None, schemas.HistoryView, points=600))
    async def history(request: Request) -> Response:
        points = _whole(request, "points", 600, 1_024)
        return answer(await service.look(request.path_params["name"], lambda live, _: live.history.drawn(points)))

    @app.get(f"{ONE}/memory", **describe("Situations in memory", None, schemas.MemoryView))
    async def memory(request: Request) -> Response:
        return answer(await service.look(request.path_params["name"], lambda live, _: live.history.slots(live.tuner)))

    @app.get(f"{ONE}/live", **describe("Server-sent events", None, "text/event-stream"))
    async def live(request: Request) -> Response:
        name = request.path_params["name"]
        await service.look(name, lambda live, _: live.seq)  # a 404 now rather than a stream of nothing
        service.hub.check_room()
        return StreamingResponse(service.hub.stream(name), media_type="text/event-stream")


def _whole(request: Request, name: str, usual: int, most: int) -> int:
    """A whole number from the query."""
    given = request.query_params.get(name, str(usual))
    if not (given.isascii() and given.isdigit()) or len(given) > 9 or not 1 <= int(given) <= most:
        raise invalid(f"{name} must be a whole number from 1 to {most}", name)
    return int(given)
