"""Answers sent by the rules of ASGI: bytes, streams, errors; each with the headers of a careful page."""

import asyncio
import logging
from collections.abc import AsyncIterator, Coroutine, Iterable
from contextlib import aclosing
from typing import Any

from rasp_tuner.service.http.route import JSON, Receive, Response, Send
from rasp_tuner.service.http_errors import HttpError
from rasp_tuner.service.json_codec import dumps

log = logging.getLogger("rasp_tuner.serve")

SECURITY_HEADERS = [
    (
        b"content-security-policy",
        b"default-src 'self'; base-uri 'none'; object-src 'none'; frame-ancestors 'none'; form-action 'self'",
    ),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cache-control", b"no-store"),
]


async def send_response(response: Response, *, is_head: bool, receive: Receive, send: Send) -> None:
    """Send it; to a HEAD request without its body, which is made all the same."""
    headers = [(name.lower().encode(), value.encode()) for name, value in response.headers.items()]
    kind = response.content_type
    if isinstance(response.body, bytes):
        await _send_bytes(response.status, kind, response.body, send, headers)
        return
    async with aclosing(response.body) as parts:
        first = await anext(parts, b"")  # what fails at once is an error yet, and no broken answer
        await send({"type": "http.response.start", "status": response.status, "headers": _headers(kind, headers)})
        if is_head:
            await send({"type": "http.response.body", "body": b""})
        else:
            await _until_disconnected(_send_parts(first, parts, send), receive)


async def send_json(status: int, body: bytes, send: Send, extra: Iterable[tuple[bytes, bytes]] = ()) -> None:
    """Send JSON as the answer."""
    await _send_bytes(status, JSON, body, send, extra)


async def send_error(error: HttpError, send: Send) -> None:
    """Send an error as the answer."""
    headers = [(name.lower().encode(), value.encode()) for name, value in error.headers().items()]
    if error.status == 401:
        headers.append((b"www-authenticate", b"Bearer"))
    if error.status == 413:
        headers.append((b"connection", b"close"))
    await send_json(error.status, dumps(error.body()), send, headers)


def _headers(kind: str | None, extra: Iterable[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    typed = [] if kind is None else [(b"content-type", kind.encode())]
    return [*typed, *SECURITY_HEADERS, *extra]


async def _send_bytes(
    status: int, kind: str | None, body: bytes, send: Send, extra: Iterable[tuple[bytes, bytes]]
) -> None:
    length = [] if status == 204 else [(b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": status, "headers": [*length, *_headers(kind, extra)]})
    await send({"type": "http.response.body", "body": body})


async def _send_parts(first: bytes, parts: AsyncIterator[bytes], send: Send) -> None:
    await send({"type": "http.response.body", "body": first, "more_body": True})
    async for part in parts:
        await send({"type": "http.response.body", "body": part, "more_body": True})
    await send({"type": "http.response.body", "body": b""})


async def _until_disconnected(sending: Coroutine[Any, Any, None], receive: Receive) -> None:
    """Run a coroutine to its end, or until the client has gone; if it fails, uvicorn closes the connection."""

    async def gone() -> None:
        while (await receive())["type"] != "http.disconnect":
            pass

    tasks = [asyncio.create_task(sending), asyncio.create_task(gone())]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        ended, _ = await asyncio.gather(*tasks, return_exceptions=True)
    if isinstance(ended, Exception):
        log.error("an answer broke off", exc_info=ended)
