"""Routes of the server itself, and of the dashboard's files."""

from pathlib import Path
from typing import Any

from rasp_tuner import __version__
from rasp_tuner.service.http.http_errors import HttpError
from rasp_tuner.service.http.route import Request, Response, get, json_response
from rasp_tuner.service.service import Service
from rasp_tuner.service.storage.tables import SCHEMA_VERSION

DASHBOARD = Path(__file__).parents[1] / "dashboard"
CONTENT_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
    ".png": "image/png",
}


async def healthz(_: Service, __: Request, ___: None) -> Any:
    return {"status": "ok"}


async def readyz(service: Service, _: Request, __: None) -> Response:
    reason = await service.why_not_ready()
    return json_response({"ready": True}) if reason is None else json_response({"ready": False, "reason": reason}, 503)


async def version(_: Service, __: Request, ___: None) -> Any:
    return {"version": __version__, "schema": SCHEMA_VERSION}


async def metrics(service: Service, _: Request, __: None) -> Response:
    return Response(await service.metrics(), content_type="text/plain; version=0.0.4; charset=utf-8")


async def page(_: Service, __: Request, ___: None) -> Response:
    return _file("index.html")


async def static(_: Service, request: Request, __: None) -> Response:
    return _file(request.parameters["path"])


def _file(name: str) -> Response:
    """A file from the dashboard's folder, and from no other."""
    path = (DASHBOARD / name).resolve() if "\0" not in name and len(name) < 200 else DASHBOARD
    kind = CONTENT_TYPES.get(path.suffix)
    if kind is None or not path.is_relative_to(DASHBOARD.resolve()) or not path.is_file():
        raise HttpError(404, "not_found", "no such file")
    return Response(path.read_bytes(), content_type=kind)


ROUTES = [
    get("/healthz", "nothing", healthz, "The process answers"),
    get("/readyz", "nothing", readyz, "Tells can be taken"),
    get("/version", "nothing", version, "Versions of program and database"),
    get("/metrics", "read", metrics, "For Prometheus", gives="text/plain"),
    get("/", "nothing", page),
    get("/studies/{name}", "nothing", page),
    get("/static/{path:path}", "nothing", static),
]
