"""Fast routes: ask, tell and /readyz, which the gateway calls without FastAPI because most requests go there.

So a server answers asks and tells before FastAPI is loaded. FastAPI has these routes too, for the OpenAPI document.
"""

from rasp_tuner.service.http import schemas
from rasp_tuner.service.http.gateway import STUDY_PATH, FastRoute, RouteAnswer
from rasp_tuner.service.http_errors import invalid
from rasp_tuner.service.json_codec import loads
from rasp_tuner.service.service import Answer, Service


def fast_routes(service: Service) -> dict[tuple[str, str], FastRoute]:
    """Handlers by method and path, as in `ROUTE_SCOPES`."""

    async def ask(name: str, body: bytes) -> RouteAnswer:
        asked = schemas.parse(schemas.Ask, loads(body))
        return 200, (await service.ask(name, [asked.context]))[0]

    async def tell(name: str, body: bytes) -> RouteAnswer:
        told = schemas.parse(schemas.Tell, loads(body))
        return 200, await service.tell(name, told.id, told.metrics, params=told.params)

    async def ask_batch(name: str, body: bytes) -> RouteAnswer:
        asked = schemas.parse_batch(schemas.AskBatch, loads(body), "contexts", service.limits)
        return 200, {"suggestions": await service.ask(name, list(asked.contexts))}

    async def tell_batch(name: str, body: bytes) -> RouteAnswer:
        told = schemas.parse_batch(schemas.TellBatch, loads(body), "tells", service.limits)
        for i, tell in enumerate(told.tells):
            if (tell.metrics is None) == (tell.failed is None):
                raise invalid(f"tells.{i}: give metrics, or failed with a reason", f"tells.{i}")
        tells = [Answer(tell.id, tell.metrics, tell.failed or "", tell.params) for tell in told.tells]
        return 200, {"results": await service.tell_batch(name, tells)}

    async def readyz(_: str, __: bytes) -> RouteAnswer:
        reason = await service.why_not_ready()
        return (200, {"ready": True}) if reason is None else (503, {"ready": False, "reason": reason})

    return {
        ("POST", f"{STUDY_PATH}/ask"): ask,
        ("POST", f"{STUDY_PATH}/tell"): tell,
        ("POST", f"{STUDY_PATH}/ask/batch"): ask_batch,
        ("POST", f"{STUDY_PATH}/tell/batch"): tell_batch,
        ("GET", "/readyz"): readyz,
    }
