"""The table of all routes. A request that matches no row gets a 404 or a 405."""

import asyncio
import functools

from rasp_tuner.service.http import routes_admin, routes_edge, routes_ofrep, routes_page, routes_study
from rasp_tuner.service.http.http_errors import HttpError
from rasp_tuner.service.http.route import Request, Response, Route
from rasp_tuner.service.json_codec import dumps
from rasp_tuner.service.service import Service

MAX_PATH_CHARS = 300  # longer than any path with a name and an id


async def openapi(_: Service, __: Request, ___: None) -> Response:
    return Response(await asyncio.to_thread(_openapi_document))


@functools.cache
def _openapi_document() -> bytes:
    from rasp_tuner.service.http.openapi import document  # takes long to load, and few read it

    return dumps(document(ROUTES))


ROUTES = [
    *routes_study.ROUTES,
    *routes_edge.ROUTES,
    *routes_admin.ROUTES,
    *routes_ofrep.ROUTES,
    *routes_page.ROUTES,
    Route("GET", "/openapi.json", "read", openapi, of_any_study=True),
]
_PATTERNS = [(route, route.pattern) for route in ROUTES]


@functools.lru_cache(1_024)
def match_route(method: str, path: str) -> tuple[Route, dict[str, str]]:
    """The route and the parameters in the path; HEAD is answered as GET. Raises a 404 or a 405."""
    allowed = []
    for route, pattern in _PATTERNS:
        found = pattern.fullmatch(path) if len(path) <= MAX_PATH_CHARS else None
        if found and route.method == ("GET" if method == "HEAD" else method):
            return route, found.groupdict()
        if found:
            allowed.append(route.method)
    if allowed:
        message = f"this path takes {' and '.join(allowed)}"
        raise HttpError(405, "method_not_allowed", message, allow=", ".join(allowed))
    raise HttpError(404, "not_found", "there is nothing here; GET /openapi.json lists all paths")
