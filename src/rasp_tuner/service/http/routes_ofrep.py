"""Routes of OFREP: flags of OpenFeature on studies, one or all, and what came of them (docs/OPENFEATURE.md)."""

import asyncio
import hashlib
import itertools
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any
from urllib.parse import quote

from rasp_tuner.feature_flags import TARGETING_KEY, readings
from rasp_tuner.service.http import schemas
from rasp_tuner.service.http.flags import (
    FLAG_NOT_FOUND,
    TARGETING_KEY_MISSING,
    Target,
    evaluate,
    evaluate_by_policy,
    flag_not_found,
    one_knob,
    track,
)
from rasp_tuner.service.http.http_errors import HttpError, status_of
from rasp_tuner.service.http.ofrep_schemas import (
    EvaluatedFlag,
    EvaluatedFlags,
    EvaluateFlag,
    OfrepError,
    TrackedEvent,
    TrackedEvents,
    TrackedResult,
)
from rasp_tuner.service.http.origins import PREFLIGHT
from rasp_tuner.service.http.route import OFREP_PATH, Request, Response, Route, error_response, etag_response, post
from rasp_tuner.service.json_codec import dumps
from rasp_tuner.service.limits import Limits
from rasp_tuner.service.service import Service
from rasp_tuner.service.service_errors import InvalidRequest, ServiceError
from rasp_tuner.service.study.definition import NAME_PATTERN

FLAGS_PATH = f"{OFREP_PATH}evaluate/flags/"
OWN_CODES: Mapping[str, tuple[int, str]] = {  # code -> status and OFREP's code
    "invalid_json": (400, "PARSE_ERROR"),
    "unsupported_type": (415, "PARSE_ERROR"),
    "unknown_study": (404, "FLAG_NOT_FOUND"),
    "unknown_suggestion": (404, "GENERAL"),
    FLAG_NOT_FOUND: (404, "FLAG_NOT_FOUND"),
    TARGETING_KEY_MISSING: (400, "TARGETING_KEY_MISSING"),
}
BULK_BODY_BYTES = 65_536  # it is read once for each study
ASKING, POLICY = "asking", "policy"  # how a flag is evaluated
BY_POLICY = f"by={POLICY}"
AT_A_TIME = 64  # parts of one request


async def one_flag(service: Service, request: Request, asked: EvaluateFlag) -> Any:
    key, by = request.parameters["key"], request.query.get("by", ASKING)
    if by not in (ASKING, POLICY):
        raise InvalidRequest(f"by must be {ASKING} or {POLICY}", "by")
    find = evaluate if by == ASKING else evaluate_by_policy
    return {"key": key, **await find(service, *_find(service, request, key), _target(asked.context))}


async def all_flags(service: Service, request: Request, asked: EvaluateFlag) -> Response:
    """Every study that the key may use, and each of its knobs; what is wrong with one does not hide the others.

    By policies that explore: nothing is written, however many poll.
    """
    if _target(asked.context).key is None:
        message = f"{TARGETING_KEY} is missing: it decides which setting of a policy is tried, and keeps it the same"
        raise HttpError(400, TARGETING_KEY_MISSING, message, f"context.{TARGETING_KEY}")
    if len(request.body) > BULK_BODY_BYTES:
        raise HttpError(413, "too_large", f"the body may have at most {BULK_BODY_BYTES} bytes here")
    only = request.caller.study
    names = [name for name in await service.study_names() if only in (None, name)]
    if len(names) > service.limits.batch:
        message = f"there are {len(names)} studies, at most {service.limits.batch} are evaluated at once"
        raise HttpError(400, "too_many", f"{message}: evaluate each by its key, or use an API key for one study")
    paths = [FLAGS_PATH + quote(name, safe="") for name in names]
    answers = await _parts(
        request,
        ONE_FLAG,
        (
            replace(
                request,
                path=path,
                target=f"{path}?{BY_POLICY}".encode(),
                query_string=BY_POLICY.encode(),
                parameters={"key": name},
            )
            for name, path in zip(names, paths, strict=True)
        ),
    )
    flags: dict[str | None, Any] = {}
    for flag in itertools.chain.from_iterable(map(_flags_in, answers)):
        flags.pop(flag.get("key"), None)  # a knob, whose key is also that of a study with a longer name
        flags[flag.get("key")] = flag
    body = dumps({"flags": list(flags.values())})
    return etag_response(request, f'"{hashlib.blake2b(body, digest_size=16).hexdigest()}"', lambda: body)


async def track_event(service: Service, request: Request, told: TrackedEvent | TrackedEvents) -> Any:
    """One event, or many in one request, each of which is taken or refused on its own."""
    if isinstance(told, TrackedEvents):
        answers = await _parts(request, ONE_EVENT, (replace(request, body=dumps(event)) for event in told.events))
        return {"results": [json.loads(_bytes(answer)) for answer in answers]}
    study, metric = _find(service, request, told.trackingEventName)
    result = await track(service, study, metric, _target(told.context), told.trackingEventDetails)
    return {"key": told.trackingEventName, "variant": result.pop("id"), **result}


async def preflight(_: Service, __: Request, ___: None) -> Response:
    """What a browser asks before a page of another site may send anything; the gateway has refused unknown sites."""
    return Response(status=204, content_type=None, headers=PREFLIGHT)


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


async def _parts(request: Request, route: Route, parts: Iterable[Request]) -> list[Response]:
    """The answers to the parts of a request, in order, as if each had come alone; other servers may answer some."""
    if request.again is None:
        raise RuntimeError("the route must say that it has parts")
    again, free = request.again, asyncio.Semaphore(AT_A_TIME)

    async def answer(part: Request) -> Response:
        async with free:
            return await again(route, part)

    return await asyncio.gather(*(answer(part) for part in parts))


def _flags_in(answer: Response) -> list[dict[str, Any]]:
    """The flags of one study: all knobs, and each; or its error.

    An error of the server, but for a study that is damaged, fails them all: a provider that is told so keeps the values
    it has, where one that is told of no value drops its own.
    """
    flag: dict[str, Any] = json.loads(_bytes(answer))
    if answer.status >= 500 and flag.get("code") != "damaged":
        wait = answer.headers.get("Retry-After", answer.headers.get("retry-after", ""))
        again = int(wait) if wait.isdigit() else None
        raise HttpError(answer.status, flag["code"], flag["errorDetails"], retry_after=again)
    if "value" not in flag:
        return [] if answer.status == 404 else [flag]
    knobs = [{**one_knob(flag, knob), "key": f"{flag['key']}.{knob}"} for knob in flag["value"]]
    return [flag, *(knob for knob in knobs if "value" in knob)]


def _bytes(answer: Response) -> bytes:
    if not isinstance(answer.body, bytes):
        raise TypeError("an answer of another server came as a stream")
    return answer.body


def _find(service: Service, request: Request, key: str) -> tuple[str, str | None]:
    """The study that a key begins with, the longest that there is, and what follows it."""
    allowed = [
        reading
        for reading in readings(key)
        if re.fullmatch(NAME_PATTERN, reading[0]) and request.caller.study in (None, reading[0])
    ]
    if not allowed and request.caller.study is not None:
        raise HttpError(403, "forbidden", f"this key may not write flag {key[:80]!r}, only {request.caller.study!r}")
    for study, rest in allowed:
        if service.holds_study(study):
            return study, rest
    raise flag_not_found(key)


def _target(given: Mapping[str, Any] | None) -> Target:
    context = given or {}
    key = context.get(TARGETING_KEY)
    if key is not None and not isinstance(key, str):
        raise InvalidRequest(f"context.{TARGETING_KEY} must be a text", f"context.{TARGETING_KEY}")
    return Target(context, key or None)


def _parse_events(value: Any, limits: Limits) -> TrackedEvent | TrackedEvents:
    if isinstance(value, dict) and "events" in value:
        return schemas.parse_batch(TrackedEvents, "events", value, limits)
    return schemas.parse(TrackedEvent, value)


ONE_FLAG = post(
    f"{FLAGS_PATH}{{key}}",
    "write",
    one_flag,
    "OFREP: a flag, which is a study or one of its knobs",
    EvaluateFlag,
    EvaluatedFlag,
    query={"by": [ASKING, POLICY]},
    body_is_optional=True,
    of_any_study=True,
    fails=OfrepError,
)
TRACK = post(
    f"{OFREP_PATH}track",
    "write",
    track_event,
    'What came of a flag: one event, or many as {"events": [...]}',
    TrackedEvent,
    TrackedResult,
    of_any_study=True,
    parse=_parse_events,
    fails=OfrepError,
    has_parts=True,
)
ONE_EVENT = replace(TRACK, parse=None, has_parts=False)  # an event among many
ALL_FLAGS = post(
    FLAGS_PATH.rstrip("/"),
    "write",
    all_flags,
    "OFREP: all flags that the key may use",
    EvaluateFlag,
    EvaluatedFlags,
    body_is_optional=True,
    of_any_study=True,
    fails=OfrepError,
    has_parts=True,
)
ROUTES = [ONE_FLAG, ALL_FLAGS, TRACK]
ROUTES += [Route("OPTIONS", route.path, "nothing", preflight) for route in ROUTES]
