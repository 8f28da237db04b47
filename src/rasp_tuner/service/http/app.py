"""framework: the FastAPI application, for all that the guard lets through and does not answer itself.

Routes are thin: parse, call the service, answer plain dictionaries.
"""

from fastapi import FastAPI, Request
from fastapi.responses import Response
from starlette.exceptions import HTTPException

from rasp_tuner import __version__
from rasp_tuner.service import http_errors as problems
from rasp_tuner.service.http import openapi as documents
from rasp_tuner.service.http import routes_admin, routes_page, routes_study
from rasp_tuner.service.http_errors import Problem
from rasp_tuner.service.json_codec import dumps
from rasp_tuner.service.service import Service


def framework(service: Service) -> FastAPI:
    app = FastAPI(title="RASP-Tuner", version=__version__, docs_url=None, redoc_url=None, openapi_url=None)
    for routes in (routes_page, routes_admin, routes_study):
        routes.add(app, service)
    documents.add(app)

    @app.exception_handler(Problem)
    async def problem(_: Request, error: Problem) -> Response:
        service.telemetry.refused(error.code)
        return Response(dumps(error.body()), error.status, error.headers(), "application/json")

    @app.exception_handler(HTTPException)
    async def http(_: Request, error: HTTPException) -> Response:
        known = Problem(error.status_code, "not_found" if error.status_code == 404 else "refused", str(error.detail))
        service.telemetry.refused(known.code)
        return Response(dumps(known.body()), known.status, media_type="application/json")

    @app.exception_handler(Exception)
    async def bug(_: Request, __: Exception) -> Response:
        return Response(dumps(problems.internal().body()), 500, media_type="application/json")

    return app
