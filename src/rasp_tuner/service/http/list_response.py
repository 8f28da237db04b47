"""The answer to GET /v1/studies: a long list is encoded piece by piece, so that other requests need not wait for it."""

import asyncio
from collections.abc import AsyncGenerator
from typing import Any

from rasp_tuner.service.http.route import Response, json_response
from rasp_tuner.service.json_codec import dumps

VIEWS_AT_ONCE = 100


def list_response(found: dict[str, Any]) -> Response:
    return json_response(found) if len(found["studies"]) <= VIEWS_AT_ONCE else Response(_pieces(**found))


async def _pieces(studies: list[dict[str, Any]], **more: Any) -> AsyncGenerator[bytes, None]:
    before = b'{"studies":['
    for first in range(0, len(studies), VIEWS_AT_ONCE):
        yield before + dumps(studies[first : first + VIEWS_AT_ONCE])[1:-1]
        before = b","
        await asyncio.sleep(0)
    yield b"]," + dumps(more)[1:]
