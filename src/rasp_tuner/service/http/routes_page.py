"""Routes of the server itself, and of the dashboard's files."""

from pathlib import Path

from fastapi import FastAPI, Request
from fastapi.responses import FileResponse, Response

from rasp_tuner import __version__
from rasp_tuner.service.http.openapi import describe
from rasp_tuner.service.http.routes_study import json_response
from rasp_tuner.service.http_errors import HttpError
from rasp_tuner.service.service import Service
from rasp_tuner.service.storage.tables import SCHEMA_VERSION

DASHBOARD = Path(__file__).parents[1] / "dashboard"


def add(app: FastAPI, service: Service) -> None:
    @app.get("/healthz", **describe("The process answers", None, "application/json"))
    async def healthz() -> Response:
        return json_response({"status": "ok"})

    @app.get("/version", **describe("Versions of program and database", None, "application/json"))
    async def version() -> Response:
        return json_response({"version": __version__, "schema": SCHEMA_VERSION})

    @app.get("/metrics", **describe("For Prometheus", None, "text/plain"))
    async def metrics() -> Response:
        return Response(await service.metrics(), media_type="text/plain; version=0.0.4; charset=utf-8")

    @app.get("/openapi.json", include_in_schema=False)
    async def openapi() -> Response:
        return json_response(app.openapi())

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
    """A file from the dashboard's folder, and from no other."""
    path = (DASHBOARD / name).resolve() if "\0" not in name and len(name) < 200 else DASHBOARD
    if not path.is_relative_to(DASHBOARD.resolve()) or not path.is_file():
        raise HttpError(404, "not_found", "no such file")
    return FileResponse(path)
