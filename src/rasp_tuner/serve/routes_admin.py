"""Routes of administration: making, listing, deleting, freezing studies; moving them in and out."""

from fastapi import FastAPI, Request
from fastapi.responses import Response

from rasp_tuner.serve import schemas
from rasp_tuner.serve.definition import StudyDefinition
from rasp_tuner.serve.documents import describe
from rasp_tuner.serve.guard import ONE
from rasp_tuner.serve.limits import Limits
from rasp_tuner.serve.problems import invalid
from rasp_tuner.serve.routes_study import answer, body
from rasp_tuner.serve.service import Service


def add(app: FastAPI, service: Service) -> None:
    @app.post("/v1/studies", **describe("Make a study", schemas.NewStudy, schemas.StudyView, status=201))
    async def create(request: Request) -> Response:
        wanted = schemas.parse(schemas.NewStudy, body(request))
        check_size(wanted, service.limits)
        definition = StudyDefinition.from_wire(wanted.model_dump(exclude_unset=True))
        new, view = await service.create(definition, request.scope["rasp.caller"])
        return answer(view, 201 if new else 200)

    @app.get("/v1/studies", **describe("All studies the key is for", None, schemas.StudyList))
    async def studies(request: Request) -> Response:
        return answer({"studies": await service.views(request.scope["rasp.caller"].study)})

    @app.delete(ONE, **describe("Delete it with all it learned", None, None, status=204))
    async def delete(request: Request) -> Response:
        await service.delete(request.path_params["name"], request.scope["rasp.caller"])
        return Response(status_code=204)

    @app.post(f"{ONE}/freeze", **describe("Stop exploring", None, schemas.Frozen))
    async def freeze(request: Request) -> Response:
        return answer(await service.freeze(request.path_params["name"], True, request.scope["rasp.caller"]))

    @app.post(f"{ONE}/unfreeze", **describe("Explore again", None, schemas.Frozen))
    async def unfreeze(request: Request) -> Response:
        return answer(await service.freeze(request.path_params["name"], False, request.scope["rasp.caller"]))


def check_size(wanted: schemas.NewStudy, limits: Limits) -> None:
    """A 422 for a study larger than this server takes."""
    context = wanted.context if isinstance(wanted.context, int) else len(wanted.context or ())
    for field, count, most in (
        ("space", len(wanted.space), limits.knobs),
        ("metrics", len(wanted.metrics), limits.metrics),
        ("context", context, limits.context),
    ):
        if count > most:
            raise invalid(f"{field} may have at most {most} entries, got {count}", field)
    for name, knob in wanted.space.items():
        if isinstance(knob, schemas.CategoricalKnob) and len(knob.choices) > limits.choices:
            raise invalid(f"space.{name}.choices may have at most {limits.choices}", f"space.{name}.choices")
