"""The client's errors, and which answer of the server raises which."""

from collections.abc import Mapping
from typing import Any

from rasp_tuner.errors import AlreadyAnswered, InvalidSpace, InvalidValue, RaspError, UnknownSuggestion


class ClientError(RaspError):
    """Base of the errors only the client raises."""


class ServerUnavailable(ClientError, ConnectionError):
    """The server did not answer in time, or is not able to now; `retry_after` seconds if it said so."""

    def __init__(self, message: str, retry_after: float | None = None, *, reached: bool = True) -> None:
        super().__init__(message)
        self.retry_after = retry_after
        self.reached = reached  # False: the request certainly did not arrive


class AccessDenied(ClientError, PermissionError):
    """The key is missing, unknown, or may not do this."""


class UnknownStudy(ClientError, LookupError):
    """The server has no study of this name."""


class Conflict(ClientError, ValueError):
    """The name or key is already used for something else."""


class RequestRefused(ClientError, RuntimeError):
    """The server refuses such a request: too large, wrong host, no such path; `code` is its error code."""

    def __init__(self, message: str, code: str) -> None:
        super().__init__(message)
        self.code = code


EXCEPTION_BY_CODE: Mapping[str, type[RaspError]] = {
    "unauthorized": AccessDenied,
    "forbidden": AccessDenied,
    "unknown_study": UnknownStudy,
    "unknown_suggestion": UnknownSuggestion,
    "invalid_value": InvalidValue,
}


def exception_for(error: Mapping[str, Any], action: str) -> RaspError:
    """The exception for the server's `{"code", "message"}` in answer to `action`, the last word of the path."""
    code, message = str(error.get("code", "")), " ".join(str(error.get("message", "")).split())
    if code == "invalid_value" and action in ("studies", "import"):
        return InvalidSpace(message)
    if code == "conflict":
        return AlreadyAnswered(message) if action in ("tell", "tell_failed") else Conflict(message)
    if code in EXCEPTION_BY_CODE:
        return EXCEPTION_BY_CODE[code](message)
    return RequestRefused(message or f"the server refused with {code or 'no reason'}", code)


def closed_error(url: str) -> RequestRefused:
    return RequestRefused(f"this client of {url} was closed", "closed")
