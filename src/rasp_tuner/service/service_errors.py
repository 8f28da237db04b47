"""Why the service did not do something: a word for programs and a sentence for people. http/ gives each its status."""

import re
from typing import Any

from rasp_tuner.errors import RaspError, UnknownSuggestion

FIELD_NAMES = (
    "name|context|params|metrics|space|default|preset|seed|guard|budget|holdout|max_change|approve_s|control"
    "|switching_cost|max_pending|id|reason|variant|failed|stopped|constraints"
    "|Float|Int|Categorical|PowerOfTwo|Auto"
)
MAX_MESSAGE_CHARS, MAX_FIELD_CHARS = 1_000, 200  # messages quote what was sent


class ServiceError(RaspError):
    """Nothing was done, unless the message says otherwise; `to_json()` is what the caller gets."""

    code = "internal"

    def __init__(
        self, message: str, field: str | None = None, code: str | None = None, retry_after: int | None = None
    ) -> None:
        """`field`: the part of the request that is wrong. `retry_after`: seconds, where trying again may help."""
        super().__init__(message)
        self.message = message if len(message) <= MAX_MESSAGE_CHARS else f"{message[:MAX_MESSAGE_CHARS]}..."
        self.field, self.retry_after = field and field[:MAX_FIELD_CHARS], retry_after
        self.code = code or self.code

    def to_json(self) -> dict[str, Any]:
        error = {"code": self.code, "message": self.message}
        return {"error": {**error, "field": self.field} if self.field else error}


class InvalidJson(ServiceError):
    """A text is not strict JSON."""

    code = "invalid_json"


class InvalidRequest(ServiceError):
    """A value breaks a rule."""

    code = "invalid_value"


class NotFound(ServiceError):
    """There is no such thing."""

    code = "not_found"


class Conflict(ServiceError):
    """It does not go with what is there already."""

    code = "conflict"


class TooMany(ServiceError):
    """The caller has as many as it may have."""

    code = "rate_limited"


class ServerFailed(ServiceError):
    """The server made a mistake, or its data are damaged; its log says more."""


class Unavailable(ServiceError):
    """The server cannot do it now: try again."""

    code = "storage"

    def __init__(self, message: str, code: str, retry_after: int = 1) -> None:
        super().__init__(message, None, code, retry_after)


class Moved(Unavailable):
    """Another server has the study now."""

    def __init__(self, name: str) -> None:
        super().__init__(
            f"study {name!r} has just moved to another server: nothing was recorded, send it again", "moved"
        )


def unknown_study(name: str) -> NotFound:
    return NotFound(f"no study {name!r}; GET /v1/studies lists them", "name", "unknown_study")


def damaged_study(name: str) -> ServerFailed:
    message = f"study {name!r} cannot be built from its log: the server's log says why; other studies are served"
    return ServerFailed(message, "name", "damaged")


def storage_failed() -> Unavailable:
    message = "the database cannot be written now: nothing was recorded, try again; recommend and views still answer"
    return Unavailable(message, "storage")


def overloaded() -> Unavailable:
    return Unavailable("more requests wait than the server keeps: nothing was done", "overloaded")


def stopping() -> Unavailable:
    return Unavailable("the server stops: send it again once it is back", "stopping")


def lease_over() -> Unavailable:
    message = "this server has lost touch with the database, and others may have its studies: nothing was recorded"
    return Unavailable(message, "lease_over")


def internal_error() -> ServerFailed:
    return ServerFailed("the server made a mistake; its log says more")


def as_service_error(error: RaspError) -> ServiceError:
    """An error of the library, whose message starts with the field, as one of the service."""
    if isinstance(error, ServiceError):
        return error
    if isinstance(error, UnknownSuggestion):
        return NotFound(str(error), "id", "unknown_suggestion")
    found = re.match(rf"({FIELD_NAMES})(\[[^\]]*\])?\b", str(error))
    return InvalidRequest(str(error), found[0] if found else None)
