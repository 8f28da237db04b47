"""Routes about the server itself, and the dashboard's files."""

from pathlib import Path

from fastapi import FastAPI, Request
from fastapi.responses import FileResponse, Response

from rasp_tuner import __version__
from rasp_tuner.service.http.openapi import describe
from rasp_tuner.service.http.routes_study import answer
from rasp_tuner.service.http_errors import Problem
from rasp_tuner.service.service import Service
from rasp_tuner.service.storage.tables import VERSION

DASHBOARD = Path(__file__).parents[1] / "dashboard"


def add(app: FastAPI, service: Service) -> None:
    @app.get("/healthz", **describe("The process answers", None, "application/json"))
    async def healthz() -> Response:
        return answer({"status": "ok"})

    @app.get("/version", **describe("Versions of program and database", None, "application/json"))
    async def version() -> Response:
        return answer({"version": __version__, "schema": VERSION})

    @app.get("/metrics", **describe("For Prometheus", None, "text/plain"))
    async def metrics() -> Response:
        return Response(await service.metrics(), media_type="text/plain; version=0.0.4; charset=utf-8")

    @app.get("/openapi.json", include_in_schema=False)
    async def openapi() -> Response:
        return answer(app.openapi())

    @app.get("/", include_in_schema=False)
    async def page() -> Response:
        return _file("index.html")

    @app.get("/studies/{name}", include_in_schema=False)
    async def study_page() -> Response:
        return _file("index.html")

    @app.get("/static/{path:path}", include_in_schema=False)
    async def static(request: Request) -> Response:
        return _file(request.path_params["path"])


def _file(name: str) -> Response:
    """A file of the dashboard's folder, and of no other."""
    path = (DASHBOARD / name).resolve() if "\0" not in name and len(name) < 200 else DASHBOARD
    if not path.is_relative_to(DASHBOARD.resolve()) or not path.is_file():
        raise Problem(404, "not_found", "no such file")
    return FileResponse(path)
