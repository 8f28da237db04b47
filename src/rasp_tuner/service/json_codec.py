"""JSON in and out, strictly: finite numbers, each name once, text that UTF-8 can hold."""

import json
import math
from typing import Any

from rasp_tuner.service.http_errors import Problem

LONGEST_INT = 40  # digits: far beyond any knob or metric, far below what slows arithmetic


def loads(body: bytes | str) -> Any:
    """The value a JSON text stands for, or a 400 that says what is wrong with it."""
    try:
        told = body if isinstance(body, str) else body.decode(json.detect_encoding(body), "surrogatepass")
        value = _DECODER.decode(told)
        if b"\\u" in body if isinstance(body, bytes) else "\\u" in body:
            json.dumps(value, ensure_ascii=False).encode()  # half of a surrogate pair is no text
    except (ValueError, RecursionError) as reason:
        raise Problem(400, "invalid_json", f"the body is not strict JSON: {_short_reason(reason)}") from None
    return value


def dumps(value: Any) -> bytes:
    """ASCII JSON; numbers are finite or this raises."""
    return _ENCODER.encode(value).encode()


def text(value: Any) -> str:
    return _ENCODER.encode(value)


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"the name {twice[:80]!r} comes twice in one object")
    return result


def _finite(digits: str) -> float:
    value = float(digits)
    if not math.isfinite(value):
        raise ValueError(f"the number {digits[:40]} is too large")
    return value


def _short(digits: str) -> int:
    if len(digits) > LONGEST_INT:
        raise ValueError(f"the whole number {digits[:20]}... has more than {LONGEST_INT} digits")
    return int(digits)


def _constant(name: str) -> float:
    raise ValueError(f"{name} is not JSON")


def _short_reason(reason: Exception) -> str:
    if isinstance(reason, RecursionError):
        return "it is nested too deeply"
    if isinstance(reason, UnicodeError):
        return "it holds bytes or characters that are not text in UTF-8"
    return str(reason)[:200]


_DECODER = json.JSONDecoder(
    object_pairs_hook=_unique, parse_float=_finite, parse_int=_short, parse_constant=_constant
)  # made once, not for every body
_ENCODER = json.JSONEncoder(allow_nan=False, separators=(",", ":"))
