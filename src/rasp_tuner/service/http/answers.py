"""Answers as bytes of HTTP/1.1, each with the headers of a careful page."""

import functools
from http import HTTPStatus

from rasp_tuner.service.http.route import Response

SECURITY_HEADERS = (
    b"content-security-policy: default-src 'self'; base-uri 'none'; object-src 'none'; frame-ancestors 'none';"
    b" form-action 'self'\r\nx-content-type-options: nosniff\r\nreferrer-policy: no-referrer\r\n"
    b"cache-control: no-store\r\n"
)
WITHOUT_BODY = (HTTPStatus.NO_CONTENT, HTTPStatus.NOT_MODIFIED)
CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
LAST_CHUNK = b"0\r\n\r\n"


def head(response: Response, date: bytes, *, chunked: bool, closes: bool) -> bytes:
    """Status line and headers; `date` is a header line."""
    lines = [_first_lines(response.status, response.content_type), date]
    if isinstance(response.body, bytes) and response.status not in WITHOUT_BODY:
        lines.append(b"content-length: %d\r\n" % len(response.body))
    if chunked:
        lines.append(b"transfer-encoding: chunked\r\n")
    if closes:
        lines.append(b"connection: close\r\n")
    for name, value in response.headers.items():
        lines.append(f"{name.lower()}: {value}\r\n".encode())
    lines.append(b"\r\n")
    return b"".join(lines)


def chunk(part: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(part), part)


@functools.lru_cache(256)
def _first_lines(status: int, content_type: str | None) -> bytes:
    typed = b"" if content_type is None else f"content-type: {content_type}\r\n".encode()
    return f"HTTP/1.1 {status} {HTTPStatus(status).phrase}\r\n".encode() + typed + SECURITY_HEADERS
