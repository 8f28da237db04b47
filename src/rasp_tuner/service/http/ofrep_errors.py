"""Errors as OFREP has them: a code of OpenFeature and the details, with the key of the flag."""

from collections.abc import Mapping
from typing import Any

from rasp_tuner.service.http.flags import FLAG_NOT_FOUND, TARGETING_KEY_MISSING, flag_not_found
from rasp_tuner.service.http.http_errors import status_of
from rasp_tuner.service.http.route import OFREP_PATH, Request, Response, error_response
from rasp_tuner.service.json_codec import dumps
from rasp_tuner.service.service_errors import ServiceError

FLAGS_PATH = f"{OFREP_PATH}evaluate/flags/"
OWN_CODES: Mapping[str, tuple[int, str]] = {  # code -> status and OFREP's code
    "invalid_json": (400, "PARSE_ERROR"),
    "unsupported_type": (415, "PARSE_ERROR"),
    "unknown_study": (404, "FLAG_NOT_FOUND"),
    "unknown_suggestion": (404, "GENERAL"),
    FLAG_NOT_FOUND: (404, "FLAG_NOT_FOUND"),
    TARGETING_KEY_MISSING: (400, "TARGETING_KEY_MISSING"),
}


def flag_error(error: ServiceError, key: str | None) -> dict[str, Any]:
    """The body of an error; `code` is ours, and says more."""
    told = {"errorCode": _status_and_code(error)[1], "errorDetails": error.message, "code": error.code}
    return told if key is None else {"key": key, **told}


def ofrep_error(error: ServiceError, request: Request) -> Response:
    """The answer to a request that failed or is refused."""
    plain, key = error_response(error), request.parameters.get("key")
    if status_of(error) == 421:
        return plain  # of one server to another, or to somebody who meant another
    if key is None and request.path.startswith(FLAGS_PATH):  # refused before its route was known
        key = request.path[len(FLAGS_PATH) :]
        error = flag_not_found(key) if key and error.code == "not_found" else error
    return Response(
        dumps(flag_error(error, key)), _status_and_code(error)[0], headers=plain.headers, closes=plain.closes
    )


def _status_and_code(error: ServiceError) -> tuple[int, str]:
    if error.code == "invalid_value":
        field = error.field or ""
        if field.startswith("context"):
            return 400, "INVALID_CONTEXT"
        return 400, "PARSE_ERROR" if not field or field.startswith(("tracking", "events")) else "GENERAL"
    return OWN_CODES.get(error.code, (status_of(error), "GENERAL"))
