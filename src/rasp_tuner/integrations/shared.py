"""What adapters share: choices of any type as labels, contexts as JSON has them, tuners that go on in another run."""

import contextlib
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from typing import Any

from rasp_tuner.base.checks import show
from rasp_tuner.contexts import value_json
from rasp_tuner.errors import InvalidSpace
from rasp_tuner.files import snapshot
from rasp_tuner.presets import LIVE_OPTIONS
from rasp_tuner.space import Categorical, Value
from rasp_tuner.tuner import Tuner


def labels_of(choices: Sequence[Any]) -> tuple[Value, ...]:
    """The choices, or numbered texts in their place where a knob could not tell them apart, as 1 and True, or nan.

    >>> labels_of(["a", 2]), labels_of([1, True]), labels_of([[64], [64, 32]])
    (('a', 2), ('0: 1', '1: True'), ('0: [64]', '1: [64, 32]'))
    """
    with contextlib.suppress(InvalidSpace):
        return Categorical(choices).choices
    texts = [repr(choice) for choice in choices]  # an address would be another one in the next process
    return tuple(f"{i}: {text.partition(' at 0x')[0]}" for i, text in enumerate(texts))


def plain_context(context: Any) -> Any:
    """A context as JSON has it."""
    if context is None:
        return None
    named = isinstance(context, Mapping)
    values = [x if type(x) is int else value_json("context", x) for x in (context.values() if named else context)]
    return dict(zip(context, values, strict=True)) if named else values


def for_a_block(owner: object, name: str, value: object) -> AbstractContextManager[object]:
    """Set an attribute; at the end of a `with` statement it is again what it was."""
    block = ExitStack()
    block.callback(setattr, owner, name, getattr(owner, name))
    setattr(owner, name, value)
    return block


def check_alike(tuner: Tuner, other: Tuner) -> None:
    """A typed error if a tuner that has learned cannot go on in the place of another one."""
    one, two = (snapshot.decode(each.to_bytes())[0] for each in (tuner, other))
    for field in ("space", "metrics", "context", "default", "constraints"):
        if one.get(field) != two.get(field):
            raise InvalidSpace(
                f"what was learned so far has another {field}: {show(one.get(field))}; this run has"
                f" {show(two.get(field))}. Use another object for this run"
            )


def with_goal(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings of a tuner for a search, where the best run counts and not the sum of all; unless they say otherwise.

    >>> with_goal({}), with_goal({"guard": 0.1})
    ({'goal': 'find'}, {'guard': 0.1})
    """
    preset = settings.get("preset", "default")
    about_the_way = any(settings.get(name) for name in LIVE_OPTIONS)
    if "goal" in settings or about_the_way or getattr(preset, "name", preset) != "default":
        return dict(settings)
    return {"goal": "find", **settings}
