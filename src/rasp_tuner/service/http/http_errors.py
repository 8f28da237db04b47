"""Statuses of errors: those of the service by their class, and what HTTP itself refuses."""

from collections.abc import Mapping

from rasp_tuner.service.service_errors import (
    Conflict,
    InvalidJson,
    InvalidRequest,
    NotFound,
    ServerFailed,
    ServiceError,
    TooMany,
    Unavailable,
)

STATUSES: Mapping[type[ServiceError], int] = {
    InvalidJson: 400,
    NotFound: 404,
    Conflict: 409,
    InvalidRequest: 422,
    TooMany: 429,
    ServerFailed: 500,
    Unavailable: 503,
}


class HttpError(ServiceError):
    """A request that HTTP's own rules refuse: keys, methods, sizes, types, hosts."""

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
        super().__init__(message, field, code, retry_after)
        self.status, self.allow = status, allow


def status_of(error: ServiceError) -> int:
    if isinstance(error, HttpError):
        return error.status
    return next((STATUSES[kind] for kind in type(error).__mro__ if kind in STATUSES), 500)


def headers_of(error: ServiceError) -> dict[str, str]:
    known = {
        "Retry-After": error.retry_after,
        "Allow": error.allow if isinstance(error, HttpError) else None,
        "www-authenticate": "Bearer" if status_of(error) == 401 else None,
    }
    return {name: str(value) for name, value in known.items() if value is not None}


def owner_away() -> Unavailable:
    message = "the server that has this study does not answer: nothing was recorded; another takes it over, try again"
    return Unavailable(message, "owner_away")


def owner_lost() -> HttpError:
    """Without Retry-After: whether the request was done is not known, so only what is idempotent may be sent again."""
    message = "the server that has this study went away at work: it may have been recorded; a tell may be sent again"
    return HttpError(502, "owner_lost", message)
