"""HTTP errors: a status, a code and a sentence; never a stack trace."""

import re
from collections.abc import Mapping
from typing import Any

from rasp_tuner.errors import RaspError, UnknownSuggestion

FIELD_NAMES = (
    "context|params|metrics|space|default|preset|seed|guard|budget|holdout|max_change|approve_s|control|switching_cost|screen|max_pending|ttl_s|id|reason"
    "|variant|failed|constraints|Float|Int|Categorical|PowerOfTwo|Auto"
)

MAX_MESSAGE_CHARS, MAX_FIELD_CHARS = 1_000, 200  # messages quote what was sent


MOVED = "moved"  # the code of `moved`


class HttpError(Exception):
    """A refused request; `body()` is the JSON that the caller gets."""

    def __init__(
        self,
        status: int,
        code: str,
        message: str,
        field: str | None = None,
        retry_after: int | None = None,
        allow: str | None = None,
    ) -> None:
        """`allow`: the methods that a path takes, of a 405."""
        super().__init__(message)
        self.status, self.code, self.retry_after, self.allow = status, code, retry_after, allow
        self.message = message if len(message) <= MAX_MESSAGE_CHARS else f"{message[:MAX_MESSAGE_CHARS]}..."
        self.field = field and field[:MAX_FIELD_CHARS]

    def body(self) -> dict[str, Any]:
        error = {"code": self.code, "message": self.message}
        return {"error": {**error, "field": self.field} if self.field else error}

    def headers(self) -> Mapping[str, str]:
        known = {"Retry-After": self.retry_after, "Allow": self.allow}
        return {name: str(value) for name, value in known.items() if value is not None}


def invalid(message: str, field: str | None = None) -> HttpError:
    return HttpError(422, "invalid_value", message, field)


def unknown_study(name: str) -> HttpError:
    return HttpError(404, "unknown_study", f"no study {name!r}; GET /v1/studies lists them", "name")


def damaged_study(name: str) -> HttpError:
    message = f"study {name!r} cannot be built from its log: the server's log says why; other studies are served"
    return HttpError(500, "damaged", message, "name")


def storage_failed(retry_after: int = 1) -> HttpError:
    message = "the database cannot be written now: nothing was recorded, try again; recommend and views still answer"
    return HttpError(503, "storage", message, retry_after=retry_after)


def overloaded() -> HttpError:
    return HttpError(503, "overloaded", "more requests wait than the server keeps: nothing was done", retry_after=1)


def stopping() -> HttpError:
    return HttpError(503, "stopping", "the server stops: send it again once it is back", retry_after=1)


def lease_over() -> HttpError:
    message = "this server has lost touch with the database, and others may have its studies: nothing was recorded"
    return HttpError(503, "lease_over", message, retry_after=1)


def moved(name: str) -> HttpError:
    message = f"study {name!r} has just moved to another server: nothing was recorded, send it again"
    return HttpError(503, MOVED, message, retry_after=1)


def owner_away() -> HttpError:
    message = "the server that has this study does not answer: nothing was recorded; another takes it over, try again"
    return HttpError(503, "owner_away", message, retry_after=1)


def owner_lost() -> HttpError:
    """Without Retry-After: whether the request was done is not known, so only what is idempotent may be sent again."""
    message = "the server that has this study went away at work: it may have been recorded; a tell may be sent again"
    return HttpError(502, "owner_lost", message)


def internal_error() -> HttpError:
    return HttpError(500, "internal", "the server made a mistake; its log says more")


def from_library_error(error: RaspError) -> HttpError:
    """The HTTP error for an error of the library, whose message starts with the field."""
    if isinstance(error, UnknownSuggestion):
        return HttpError(404, "unknown_suggestion", str(error), "id")
    found = re.match(rf"({FIELD_NAMES})(\[[^\]]*\])?\b", str(error))
    return invalid(str(error), found[0] if found else None)
