"""Admin routes: create, list, delete, freeze, export and import studies; approve suggestions; erase records."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Iterator
from typing import Any

from rasp_tuner.service.http import schemas
from rasp_tuner.service.http.list_response import list_response
from rasp_tuner.service.http.query import list_query
from rasp_tuner.service.http.route import (
    IMPORT_PATH,
    NDJSON,
    STUDY_PATH,
    Request,
    Response,
    Route,
    get,
    json_response,
    post,
)
from rasp_tuner.service.http.transfer import export_lines, read_import
from rasp_tuner.service.service import Service
from rasp_tuner.service.storage.transaction import UnitOfWork
from rasp_tuner.service.study.live_study import LiveStudy
from rasp_tuner.service.study.study_summary import SORTS


async def create(service: Service, request: Request, wanted: schemas.NewStudy) -> Response:
    new, view = await service.create(wanted.model_dump(exclude_unset=True), request.caller)
    return json_response(view, 201 if new else 200)


async def studies(service: Service, request: Request, _: None) -> Response:
    return list_response(await service.list_studies(list_query(request.query, request.caller.study)))


async def delete(service: Service, request: Request, _: None) -> Response:
    def run(work: UnitOfWork) -> None:
        work.delete_study(request.study)
        work.audit(request.caller.name, "study deleted", request.study)

    await service.submit(run, writes=True, study=request.study)
    service.users.pop(request.study, None)
    return Response(status=204, content_type=None)


async def export(service: Service, request: Request, _: None) -> Response:
    def look(live: LiveStudy, _: UnitOfWork) -> tuple[int, dict[str, Any], float, int]:
        return live.id, live.definition.to_wire(), live.created, live.seq

    found = await service.read(request.study, look)
    await service.submit(lambda work: work.audit(request.caller.name, "study exported", request.study), writes=True)
    headers = {"Content-Disposition": f'attachment; filename="{request.study}.ndjson"'}
    return Response(_in_thread(export_lines(service.store, *found)), content_type=NDJSON, headers=headers)


async def _in_thread(parts: Iterator[bytes]) -> AsyncGenerator[bytes, None]:
    """The parts, each read from the database beside the event loop."""
    while part := await asyncio.to_thread(next, parts, b""):
        yield part


async def take(service: Service, request: Request, _: None) -> Response:
    new = await asyncio.to_thread(read_import, request.body, request.query.get("name"), service.limits)
    return json_response(await service.import_study(new.live, new.events, request.caller), 201)


async def forget(service: Service, request: Request, wanted: schemas.Forget) -> Any:
    return await service.forget(request.study, wanted.model_dump(exclude_defaults=True), request.caller)


def freeze(service: Service, request: Request, wanted: schemas.Freeze | None) -> Awaitable[Any]:
    """Stop exploring; start again if nothing is wanted."""
    frozen, by = wanted is not None, request.caller.name
    default = wanted is not None and wanted.at == "default"

    def run(live: LiveStudy, work: UnitOfWork) -> dict[str, Any]:
        event = live.freeze(frozen, work.now, default=default, by=by)
        if event is not None:
            work.add_event(live, event)
            work.audit(by, f"study {'frozen' if frozen else 'unfrozen'}{' at default' * default}", request.study)
        return {"frozen": frozen, "serves": live.serves, "switched": live.switched}

    return service.write(request.study, run)


def unfreeze(service: Service, request: Request, _: None) -> Awaitable[Any]:
    return freeze(service, request, None)


def approve(service: Service, request: Request, said: schemas.Approve | schemas.Refuse) -> Awaitable[Any]:
    """Approve a suggestion that waits, or refuse it for a while."""
    id, by, for_s = said.id, request.caller.name, said.for_s if isinstance(said, schemas.Refuse) else None

    def run(live: LiveStudy, work: UnitOfWork) -> dict[str, Any]:
        event = live.decide(id, for_s is None, work.now, for_s or 0.0, by=by)
        work.add_event(live, event)
        status = "refused" if for_s else "approved"
        work.audit(by, f"suggestion {status}", f"{request.study}: {id}")
        return {"id": id, "status": status, "until": event.body.get("until")}

    return service.write(request.study, run)


def refuse(service: Service, request: Request, said: schemas.Refuse) -> Awaitable[Any]:
    return approve(service, request, said)


ROUTES = [
    post(
        "/v1/studies",
        "admin",
        create,
        "Make a study",
        schemas.NewStudy,
        schemas.StudyView,
        status=201,
        parse=schemas.parse_study,
    ),
    get(
        "/v1/studies",
        "read",
        studies,
        "All studies the key is for",
        gives=schemas.StudyList,
        query={"limit": None, "offset": 0, "find": "", "sort": SORTS},
        of_any_study=True,
    ),
    post(IMPORT_PATH, "admin", take, "Take in an export", NDJSON, schemas.StudyView, status=201),
    Route("DELETE", STUDY_PATH, "admin", delete, "Delete it with all it learned", gives=None, status=204),
    get(f"{STUDY_PATH}/export", "admin", export, "The log, as lines of JSON", gives=NDJSON),
    post(f"{STUDY_PATH}/forget", "admin", forget, "Erase records", schemas.Forget, schemas.Forgotten),
    post(
        f"{STUDY_PATH}/freeze", "admin", freeze, "Stop exploring", schemas.Freeze, schemas.Frozen, body_is_optional=True
    ),
    post(f"{STUDY_PATH}/approve", "admin", approve, "It may run", schemas.Approve, schemas.Decided),
    post(f"{STUDY_PATH}/refuse", "admin", refuse, "Not this one", schemas.Refuse, schemas.Decided),
    post(f"{STUDY_PATH}/unfreeze", "admin", unfreeze, "Explore again", gives=schemas.Frozen),
]
