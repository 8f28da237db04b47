"""Route: one row of the table of routes, with all that is known of a path; and the request that its handler gets."""

import functools
import re
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal
from urllib.parse import parse_qs

from pydantic import BaseModel

from rasp_tuner.service.auth import Caller
from rasp_tuner.service.http import schemas
from rasp_tuner.service.http.http_errors import headers_of, status_of
from rasp_tuner.service.json_codec import dumps
from rasp_tuner.service.limits import HeldBody, Limits
from rasp_tuner.service.service import Service
from rasp_tuner.service.service_errors import ServiceError
from rasp_tuner.service.study.definition import NAME_PATTERN

RequiredScope = Literal["nothing", "read", "write", "admin"]

STUDY_PATH = "/v1/studies/{name}"
IMPORT_PATH = "/v1/studies/import"
OFREP_PATH = "/ofrep/v1/"
JSON, NDJSON, EVENT_STREAM = "application/json", "application/x-ndjson", "text/event-stream"
UNREAD = (413, 501)  # statuses of requests whose body is not read
NOBODY = Caller("nobody", "read")


@dataclass(slots=True)
class Request:
    """A request; what the gateway finds out about it is added."""

    method: str
    path: str
    query_string: bytes
    target: bytes  # path and query as they were sent
    headers: Mapping[bytes, bytes]  # names in lower case
    address: str  # of the client
    body: bytes = b""
    caller: Caller = NOBODY
    held: HeldBody | None = None  # what counts the bytes of its body
    account: str = ""  # whose share of streams and requests it takes: the caller's key, or an address without keys
    parameters: Mapping[str, str] = field(default_factory=dict)  # of the path
    study: str = ""  # that the path names
    again: "Callable[[Route, Request], Awaitable[Response]] | None" = None  # answers a part of it; see `has_parts`

    @property
    def query(self) -> dict[str, str]:
        """The query string; of a name that comes twice the last value."""
        given = parse_qs(self.query_string.decode("latin-1"), keep_blank_values=True)
        return {name: values[-1] for name, values in given.items()}


@dataclass(frozen=True, slots=True)
class Response:
    """Bytes, or a stream of them."""

    body: bytes | AsyncGenerator[bytes, None] = b""
    status: int = 200
    content_type: str | None = JSON
    headers: Mapping[str, str] = field(default_factory=dict)
    closes: bool = False  # the connection

    @property
    def is_endless(self) -> bool:
        """Whether it ends with its client."""
        return self.content_type == EVENT_STREAM


def json_response(value: Any, status: int = 200) -> Response:
    return Response(dumps(value), status)


def error_response(error: ServiceError) -> Response:
    status = status_of(error)
    return Response(dumps(error.to_json()), status, headers=headers_of(error), closes=status in UNREAD)


def has_etag(request: Request, etag: str) -> bool:
    """Whether the caller has this answer already."""
    given = request.headers.get(b"if-none-match", b"").decode("latin-1")
    return given.strip() == "*" or etag in (one.strip().removeprefix("W/") for one in given.split(","))


def etag_response(request: Request, etag: str, body: Callable[[], bytes]) -> Response:
    """The body, which is made only if the caller does not have it."""
    if has_etag(request, etag):
        return Response(status=304, content_type=None, headers={"ETag": etag})
    return Response(body(), headers={"ETag": etag})


# service, request and its body as a model -> a response, or the value of a JSON body
Handler = Callable[[Service, Request, Any], Awaitable[Any]]


@dataclass(frozen=True, slots=True)
class Route:
    """What a request must be, who may make it, what answers it; the OpenAPI document says the same."""

    method: str
    path: str
    needs: RequiredScope
    handler: Handler
    summary: str = ""  # empty: not in the document, for the dashboard's files
    takes: type[BaseModel] | str | None = None  # the body: a model, or a content type without one
    gives: type[BaseModel] | str | None = JSON  # the answer, in the same way
    status: int = 200
    query: Mapping[str, int | str | Sequence[str] | None] = field(default_factory=dict)  # see openapi.py
    body_is_optional: bool = False  # without one it is {}
    of_any_study: bool = False  # a key for one study will do, since the answer shows nothing of others
    fails: type[BaseModel] = schemas.Error  # what the answer is if it is an error
    has_parts: bool = False  # its handler has parts of the request answered one by one, each where its study is
    parse: Callable[[Any, Limits], Any] | None = None  # a JSON body as a model; None: `schemas.parse`, or no model

    content_types: tuple[str, ...] = field(init=False)  # that a body may have, the usual one first
    is_import: bool = field(init=False)  # its body may be large

    def __post_init__(self) -> None:
        is_import = isinstance(self.takes, str)
        object.__setattr__(self, "is_import", is_import)
        object.__setattr__(self, "content_types", (self.takes, JSON) if is_import else (JSON,))
        if self.parse is None and isinstance(self.takes, type):
            object.__setattr__(self, "parse", functools.partial(schemas.parse, self.takes))

    @property
    def pattern(self) -> re.Pattern[str]:
        """Of paths that belong here."""
        text = re.escape(self.path).replace(r"\{name\}", f"(?P<name>{NAME_PATTERN})")
        text = text.replace(r"\{id\}", "(?P<id>[^/]{1,40})").replace(r"\{key\}", "(?P<key>.{1,256})")
        return re.compile(text.replace(r"\{path:path\}", "(?P<path>.+)"), re.DOTALL)


get, post = functools.partial(Route, "GET"), functools.partial(Route, "POST")
