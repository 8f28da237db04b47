"""Strict JSON: finite numbers, no repeated names, valid UTF-8 text, objects of bounded size."""

import json
import math
from collections import Counter
from typing import Any

from rasp_tuner.service.service_errors import InvalidJson

MAX_INT_DIGITS = 40  # more than any knob or metric needs; longer numbers would be slow
MAX_NAMES = 1_024  # of one object: more than a study's knobs or context have


def loads(body: bytes | str) -> Any:
    """The value of a JSON text; raises InvalidJson, which says what is wrong."""
    try:
        told = body if isinstance(body, str) else body.decode(json.detect_encoding(body), "surrogatepass")
        value = _DECODER.decode(told)
        if b"\\u" in body if isinstance(body, bytes) else "\\u" in body:
            json.dumps(value, ensure_ascii=False).encode()  # raises on half a surrogate pair
    except (ValueError, RecursionError) as reason:
        raise InvalidJson(f"the body is not strict JSON: {_reason(reason)}") from None
    return value


def dumps(value: Any) -> bytes:
    """ASCII JSON; raises if a number is not finite."""
    return _ENCODER.encode(value).encode()


def dumps_text(value: Any) -> str:
    return _ENCODER.encode(value)


def _unique_names(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len(pairs) > MAX_NAMES:
        raise ValueError(f"an object has {len(pairs)} names, at most {MAX_NAMES} are read")
    result = dict(pairs)
    if len(result) < len(pairs):
        twice = Counter(name for name, _ in pairs).most_common(1)[0][0]
        raise ValueError(f"the name {twice[:80]!r} comes twice in one object")
    return result


def _finite_float(digits: str) -> float:
    value = float(digits)
    if not math.isfinite(value):
        raise ValueError(f"the number {digits[:40]} is too large")
    return value


def _bounded_int(digits: str) -> int:
    if len(digits) > MAX_INT_DIGITS:
        raise ValueError(f"the whole number {digits[:20]}... has more than {MAX_INT_DIGITS} digits")
    return int(digits)


def _refuse_constant(name: str) -> float:
    raise ValueError(f"{name} is not JSON")


def _reason(reason: Exception) -> str:
    if isinstance(reason, RecursionError):
        return "it is nested too deeply"
    if isinstance(reason, UnicodeError):
        return "it holds bytes or characters that are not text in UTF-8"
    return str(reason)[:200]


_DECODER = json.JSONDecoder(
    object_pairs_hook=_unique_names, parse_float=_finite_float, parse_int=_bounded_int, parse_constant=_refuse_constant
)  # made once, not for each body
_ENCODER = json.JSONEncoder(allow_nan=False, separators=(",", ":"))
