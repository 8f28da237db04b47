"""Steps on record as rows of a History: names, values and reasons instead of arrays."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from rasp_tuner.base.checks import show
from rasp_tuner.base.numerics import Array
from rasp_tuner.contexts import Category, ContextKind, Name
from rasp_tuner.errors import InvalidValue
from rasp_tuner.records.ledger import Ledger
from rasp_tuner.records.step_record import FAILED, LONGEST_CONTEXT, STOPPED, StepRecord
from rasp_tuner.report.history import AFTER, History, Row
from rasp_tuner.space import Auto, Float, Knob, Space
from rasp_tuner.space.numbers import MOST_DIGITS
from rasp_tuner.types import Explanation
from rasp_tuner.types.explanation import chosen_by

Decoder = Callable[[Array], dict[str, Any] | list[Any]]  # a context [d_c] -> its values


@dataclass(frozen=True)
class Names:
    """What the numbers on record are called."""

    space: Space
    default: Array  # [d]
    context: Sequence[str]  # of each value of a context
    decode: Decoder
    metrics: Sequence[str]
    sign: float  # of errors in the units of the one metric: -1 if more of it is better


def history_of(record: StepRecord, ledger: Ledger, names: Names, learned: int, latest: int | None = None) -> History:
    """The steps on record; the latest so many, if that is given."""
    numbers, metrics, points, contexts = record.parts(latest)
    exact = _exact(names.space, names.default)
    rows = []
    every = zip(numbers.tolist(), metrics.tolist(), points, contexts, strict=True)
    for (step, asked, end), told, point, context in every:
        failed = end == FAILED
        id = None if asked < 0 else f"s{int(asked)}"
        why = ledger.answered.get(id) if id is not None else None
        ran = why.explanation() if why is not None else None
        row: Row = {
            "step": int(step),
            "id": id,
            "context": names.decode(context) if record.keeps_context else None,
            "params": exact.from_unit(point),
            "metrics": None if failed else dict(zip(names.metrics, told, strict=True)),
            **dict.fromkeys(AFTER),
            "failed": failed,
            "stopped": end == STOPPED,
            "default": bool((point == names.default).all()),
            "chosen_by": "observed" if id is None else None,
        }
        rows.append(row if ran is None else {**row, **_reasons(ran, names.sign)})
    context_names = names.context if record.keeps_context else []
    fields = {"context": context_names, "params": list(names.space.knobs), "metrics": names.metrics}
    return History(rows, fields, _note(record, names, learned))


def with_texts(decode: Decoder, kinds: Mapping[str, ContextKind], texts: Mapping[str, Iterable[str]]) -> Decoder:
    """The same with these texts, by the name of their context, in the place of their marks."""
    kinds = {name: kind for name, kind in kinds.items() if isinstance(kind, Category | Name)}
    if not isinstance(texts, Mapping):
        raise InvalidValue(
            f'texts must map names of contexts to their texts, as in {{"region": ["eu"]}}, got {show(texts)}'
        )
    known: dict[str, dict[Any, str]] = {}
    for name, given in texts.items():
        if name not in kinds:
            raise InvalidValue(f"texts: {show(name)} must be the name of a context that has texts, of {list(kinds)}")
        if isinstance(given, str | bytes) or not isinstance(given, Iterable):
            raise InvalidValue(f"texts[{name!r}] must be a list of texts, got {show(given)}")
        known[name] = {kinds[name].decode(kinds[name].encode(text)): text for text in given}

    def decoded(context: Array) -> dict[str, Any] | list[Any]:
        values = decode(context)
        if isinstance(values, dict):
            values |= {name: marks.get(values[name], values[name]) for name, marks in known.items()}
        return values

    return decoded


def _reasons(why: Explanation, sign: float) -> dict[str, Any]:
    def own(error: float | None) -> float | None:
        return None if error is None else sign * error

    return {
        "failure": why.failure,
        "chosen_by": chosen_by(why.source),
        "expert": why.expert or None,
        "expected": own(why.predicted),
        "deviation": why.deviation,
        "expected_default": own(why.level),
        "better": why.better,
        "target": None if why.failure is not None else own(why.error),
        "propensity": why.propensity,
    }


def _note(record: StepRecord, names: Names, learned: int) -> str:
    notes = []
    lost = learned - len(record)
    if lost and not len(record):
        notes.append(f"No steps on record: the {learned:,} runs learned so far came from a fleet or other tuners")
    elif lost:
        notes.append(f"{lost:,} earlier or merged runs are learned and no longer on record")
    if names.context and not record.keeps_context:
        notes.append(f"contexts of more than {LONGEST_CONTEXT} numbers are not kept")
    return "; ".join(notes)


def _exact(space: Space, default: Array) -> Space:
    """The same knobs with all digits and without constraints: what ran need not be what would be suggested."""
    return Space({name: _all_digits(knob) for name, knob in space.knobs.items()}, (), space.from_unit(default))


def _all_digits(knob: Knob) -> Knob:
    if isinstance(knob, Auto):
        return replace(knob, knob=_precise(knob.knob)) if isinstance(knob.knob, Float) else knob
    return _precise(knob) if isinstance(knob, Float) else knob


def _precise(knob: Float) -> Float:
    return replace(knob, digits=MOST_DIGITS) if knob.step is None else knob
