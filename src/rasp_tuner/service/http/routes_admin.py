"""Admin routes: create, list, delete, freeze, export and import studies; erase records."""

import asyncio
from typing import Any

from fastapi import FastAPI, Request
from fastapi.responses import Response, StreamingResponse

from rasp_tuner.service.http import schemas
from rasp_tuner.service.http.gateway import STUDY_PATH
from rasp_tuner.service.http.openapi import describe
from rasp_tuner.service.http.query import list_query
from rasp_tuner.service.http.routes_study import json_body, json_response
from rasp_tuner.service.http.transfer import export_lines, read_import
from rasp_tuner.service.service import Service
from rasp_tuner.service.storage.transaction import UnitOfWork
from rasp_tuner.service.study.live_study import LiveStudy
from rasp_tuner.service.study_list import SORTS


def add(app: FastAPI, service: Service) -> None:
    @app.post("/v1/studies", **describe("Make a study", schemas.NewStudy, schemas.StudyView, status=201))
    async def create(request: Request) -> Response:
        wanted = schemas.parse_study(json_body(request), service.limits)
        new, view = await service.create(wanted.model_dump(exclude_unset=True), request.scope["rasp.caller"])
        return json_response(view, 201 if new else 200)

    @app.get(
        "/v1/studies",
        **describe("All studies the key is for", None, schemas.StudyList, limit=None, offset=0, find="", sort=SORTS),
    )
    async def studies(request: Request) -> Response:
        return json_response(
            await service.list_studies(list_query(request.query_params, request.scope["rasp.caller"].study))
        )

    @app.delete(STUDY_PATH, **describe("Delete it with all it learned", None, None, status=204))
    async def delete(request: Request) -> Response:
        await service.delete(request.path_params["name"], request.scope["rasp.caller"])
        return Response(status_code=204)

    @app.get(f"{STUDY_PATH}/export", **describe("The log, as lines of JSON", None, "application/x-ndjson"))
    async def export(request: Request) -> Response:
        name, caller = request.path_params["name"], request.scope["rasp.caller"]

        def look(live: LiveStudy, _: UnitOfWork) -> tuple[int, dict[str, Any], float, int]:
            return live.id, live.definition.to_wire(), live.created, live.seq

        found = await service.read(name, look)
        await service.audit(caller, "study exported", name)
        headers = {"Content-Disposition": f'attachment; filename="{name}.ndjson"'}
        return StreamingResponse(
            export_lines(service.store, *found), media_type="application/x-ndjson", headers=headers
        )

    @app.post(
        "/v1/studies/import", **describe("Take in an export", "application/x-ndjson", schemas.StudyView, status=201)
    )
    async def take(request: Request) -> Response:
        name = request.query_params.get("name")
        new = await asyncio.to_thread(read_import, request.scope["rasp.body"], name, service.limits)
        return json_response(await service.import_study(new.live, new.events, request.scope["rasp.caller"]), 201)

    @app.post(f"{STUDY_PATH}/forget", **describe("Erase records", schemas.Forget, schemas.Forgotten))
    async def forget(request: Request) -> Response:
        wanted = schemas.parse(schemas.Forget, json_body(request)).model_dump(exclude_defaults=True)
        return json_response(await service.forget(request.path_params["name"], wanted, request.scope["rasp.caller"]))

    @app.post(f"{STUDY_PATH}/freeze", **describe("Stop exploring", schemas.Freeze, schemas.Frozen))
    async def freeze(request: Request) -> Response:
        body = json_body(request) if request.scope["rasp.body"] else {}  # none in calls of version 0.1
        default = schemas.parse(schemas.Freeze, body).at == "default"
        caller = request.scope["rasp.caller"]
        return json_response(await service.freeze(request.path_params["name"], True, caller, default=default))

    @app.post(f"{STUDY_PATH}/unfreeze", **describe("Explore again", None, schemas.Frozen))
    async def unfreeze(request: Request) -> Response:
        return json_response(await service.freeze(request.path_params["name"], False, request.scope["rasp.caller"]))
