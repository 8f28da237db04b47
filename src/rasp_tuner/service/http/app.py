"""The FastAPI application, for all requests that the gateway allows and does not answer itself.

Routes are thin: parse, call the service, answer with plain dictionaries.
"""

from fastapi import FastAPI, Request
from fastapi.responses import Response
from starlette.exceptions import HTTPException

from rasp_tuner import __version__
from rasp_tuner.service import http_errors
from rasp_tuner.service.http import openapi, routes_admin, routes_page, routes_study
from rasp_tuner.service.http_errors import HttpError
from rasp_tuner.service.json_codec import dumps
from rasp_tuner.service.service import Service


def create_fastapi(service: Service) -> FastAPI:
    app = FastAPI(title="RASP-Tuner", version=__version__, docs_url=None, redoc_url=None, openapi_url=None)
    for routes in (routes_page, routes_admin, routes_study):
        routes.add(app, service)
    openapi.add(app)

    @app.exception_handler(HttpError)
    async def refused(_: Request, error: HttpError) -> Response:
        service.telemetry.count_rejected(error.code)
        return Response(dumps(error.body()), error.status, error.headers(), "application/json")

    @app.exception_handler(HTTPException)
    async def unknown_route(_: Request, error: HTTPException) -> Response:
        known = HttpError(error.status_code, "not_found" if error.status_code == 404 else "refused", str(error.detail))
        service.telemetry.count_rejected(known.code)
        return Response(dumps(known.body()), known.status, media_type="application/json")

    @app.exception_handler(Exception)
    async def bug(_: Request, __: Exception) -> Response:
        return Response(dumps(http_errors.internal_error().body()), 500, media_type="application/json")

    return app
