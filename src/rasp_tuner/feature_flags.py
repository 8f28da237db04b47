"""Flags of OpenFeature on studies: what a key, an evaluation context and a tracked event mean.

The key of a flag is a name, whose value is all knobs, or `name.knob`. A tracked event is called after the name, or
`name.metric`.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rasp_tuner.base.checks import number, same_names, show
from rasp_tuner.contexts import value_json
from rasp_tuner.errors import InvalidValue
from rasp_tuner.space import Params

FLAG_LEASE_S = 300.0  # for which a targeting key keeps its suggestion
MOST_LEASES = 4_096  # targeting keys of one study whose latest suggestion is known
LONGEST_TEXT = 1_024  # characters of a context's value, as in requests of the service
TARGETING_KEY = "targetingKey"
VALUE, VARIANT, FAILED, STOPPED = "value", "variant", "failed", "stopped"  # of a tracked event: no metrics
RECOMMENDATION = "recommendation"  # the variant of what nobody suggested: it cannot be told

# reasons of OpenFeature, and when we give them
EXPLORING = "SPLIT"  # tried to learn from it
BEST_KNOWN = "TARGETING_MATCH"  # the recommendation for this context
AS_DEFAULT = "DEFAULT"  # what the study has as its default
NOT_ASKED = "STALE"  # the best known, since no suggestion could be made or recorded


def readings(key: str) -> Iterator[tuple[str, str | None]]:
    """Each way to read a key as a name and what it has, the longest name first.

    >>> list(readings("web.pool.size"))
    [('web.pool.size', None), ('web.pool', 'size'), ('web', 'pool.size')]
    """
    yield key, None
    for i in range(len(key) - 1, 0, -1):
        if key[i] == "." and i + 1 < len(key):
            yield key[:i], key[i + 1 :]


def context_names(schema: Mapping[str, object] | Sequence[str] | int | None) -> list[str]:
    """The names of a context; of one without names the positions: "0", "1", ..."""
    if isinstance(schema, int):
        return [str(i) for i in range(schema)]
    return list(schema or ())


def known_context(attributes: Mapping[str, Any], schema: Mapping[str, object] | Sequence[str] | int | None) -> Any:
    """Of an evaluation context, what a study knows; None for a study without context.

    >>> known_context({"targetingKey": "host-7", "qps": 900, "country": "NZ"}, ["qps"])
    {'qps': 900.0}
    """
    names = context_names(schema)
    if not names:
        return None
    given = [name for name in names if name in attributes and name != TARGETING_KEY]
    known = {name: _context_value(f"context[{name!r}]", attributes[name]) for name in given}
    if isinstance(schema, int):
        missing = [name for name in names if name not in known]
        if missing:
            raise InvalidValue(f"context lacks {show(missing)}: this study's context has no names but positions")
        return [known[name] for name in names]
    return known


def _context_value(field: str, given: object) -> str | bool | float | None:
    if isinstance(given, str) and len(given) > LONGEST_TEXT:
        raise InvalidValue(f"{field} must have at most {LONGEST_TEXT:,} characters, got {len(given):,}")
    if isinstance(given, Mapping | Sequence) and not isinstance(given, str):
        raise InvalidValue(f"{field} must be a number, a text, a boolean or a time, got {show(given)}")
    return value_json(field, given)


def reason_for(params: Params, default: Params, recommended: Params) -> str:
    """Why these parameters, as OpenFeature says it."""
    if params == default:
        return AS_DEFAULT
    return BEST_KNOWN if params == recommended else EXPLORING


@dataclass(frozen=True, slots=True)
class TrackedOutcome:
    """What a tracked event says of a suggestion."""

    metrics: dict[str, float] | None  # None: it failed
    failure: str = ""
    variant: str | None = None  # the suggestion; None: that of the targeting key
    stopped: bool = False  # the run was ended: the metrics are at least so bad


def outcome(metrics: Iterable[str], named: str | None, details: Mapping[str, Any]) -> TrackedOutcome:
    """The outcome in the details of an event; `named` is the metric in the event's name, if there is one.

    A study with one metric takes `value`, one with several takes each by its name. Texts, objects and booleans under
    other names are the application's own.

    >>> outcome(["p99_ms"], None, {"value": 181, "variant": "s7"})
    TrackedOutcome(metrics={'p99_ms': 181.0}, failure='', variant='s7', stopped=False)
    """
    known = list(metrics)
    variant, failed, stopped = (None if name in known else details.get(name) for name in (VARIANT, FAILED, STOPPED))
    if variant is not None and (not isinstance(variant, str) or not variant):
        raise InvalidValue(f"{VARIANT} must be the id of a suggestion, as in 's7', got {show(variant)}")
    if named is not None and named not in known:
        raise InvalidValue(f"metrics has no {show(named)}; this study has {show(known)}")
    if stopped is not None and not isinstance(stopped, bool):
        raise InvalidValue(f"{STOPPED} must be true or false, got {show(stopped)}")
    if stopped and failed:
        raise InvalidValue(f"{STOPPED} and {FAILED}: a run that was ended has metrics, one that failed has none")
    if failed is not None and failed is not False:
        return TrackedOutcome(None, _failure(failed), variant)
    given = {name: details[name] for name in known if name in details}
    if VALUE not in known and details.get(VALUE) is not None:
        if named is None and len(known) > 1:
            raise InvalidValue(f"metrics: {VALUE} could be any of {show(known)}; give each metric by its name")
        target = named or known[0]
        if target in given:
            raise InvalidValue(f"metrics[{target!r}] is given twice: as {VALUE} and by its name")
        given[target] = details[VALUE]
    others = {name: value for name, value in details.items() if name not in (*known, VALUE, VARIANT)}
    given |= {name: value for name, value in others.items() if _is_number(value)}
    same_names("metrics", given, known)
    values = {name: number(f"metrics[{name!r}]", given[name]) for name in known}
    return TrackedOutcome(values, variant=variant, stopped=bool(stopped))


def _failure(given: object) -> str:
    if given is True:
        return ""
    if not isinstance(given, str) or len(given) > 2_000:
        raise InvalidValue(f"{FAILED} must be a text of at most 2,000 characters, or true, got {show(given)}")
    return given


def _is_number(value: object) -> bool:
    """Whether a field of another name looks like a metric."""
    return isinstance(value, int | float) and not isinstance(value, bool)
