"""create_app: the FastAPI application. Routes are thin: parse, call the service, answer plain dictionaries."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Iterable

from fastapi import FastAPI, Request
from fastapi.responses import Response
from sqlalchemy.exc import SQLAlchemyError
from starlette.exceptions import HTTPException

from rasp_tuner import __version__
from rasp_tuner.serve import documents, routes_admin, routes_page, routes_study
from rasp_tuner.serve.guard import Guard
from rasp_tuner.serve.limits import Limits
from rasp_tuner.serve.problems import Problem
from rasp_tuner.serve.service import Service
from rasp_tuner.serve.store import Store
from rasp_tuner.serve.strict import dumps

LOOPBACK = ("127.0.0.1", "localhost", "::1")
REREAD_S = 0.5  # between looks at the keys, which another process may change

log = logging.getLogger("rasp_tuner.serve")


def create_app(
    store: Store,
    *,
    hosts: Iterable[str] = LOOPBACK,
    limits: Limits | None = None,
    open_without_keys: bool = True,
) -> FastAPI:
    """The application on a store, which it closes at the end; `hosts` are the names it answers to."""
    service = Service(store, limits or Limits(), open_without_keys=open_without_keys)

    @contextlib.asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        service.writer.start()
        await asyncio.to_thread(service.writer.ready.wait)
        stopping = asyncio.Event()
        rereading = asyncio.create_task(_reread(service, stopping))
        yield
        stopping.set()
        await rereading
        service.hub.close()
        await asyncio.to_thread(service.writer.stop)
        store.close()

    app = FastAPI(
        title="RASP-Tuner", version=__version__, docs_url=None, redoc_url=None, openapi_url=None, lifespan=lifespan
    )
    app.state.service = service
    for routes in (routes_page, routes_admin, routes_study):
        routes.add(app, service)
    documents.add(app)

    def refused(code: str) -> None:
        service.telemetry.rejected.labels(code).inc()

    @app.exception_handler(Problem)
    async def problem(_: Request, error: Problem) -> Response:
        refused(error.code)
        return Response(dumps(error.body()), error.status, error.headers(), "application/json")

    @app.exception_handler(HTTPException)
    async def http(_: Request, error: HTTPException) -> Response:
        known = Problem(error.status_code, "not_found" if error.status_code == 404 else "refused", str(error.detail))
        refused(known.code)
        return Response(dumps(known.body()), known.status, media_type="application/json")

    @app.exception_handler(Exception)
    async def bug(_: Request, __: Exception) -> Response:
        known = Problem(500, "internal", "the server made a mistake; its log says more")
        return Response(dumps(known.body()), 500, media_type="application/json")

    app.add_middleware(
        Guard,
        keys=service.keys,
        limits=service.limits,
        hosts=list(hosts),
        rejected=refused,
        direct=routes_study.direct(service),
    )
    return app


async def _reread(service: Service, stopping: asyncio.Event) -> None:
    """Take note of keys made or revoked by `rasp keys`."""
    while not stopping.is_set():
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(stopping.wait(), REREAD_S)
        try:
            await asyncio.to_thread(service.keys.reload)
        except SQLAlchemyError as error:
            log.error("the keys could not be read, those known so far stay: %s", error)
