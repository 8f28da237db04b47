"""Values of other libraries as a tuner takes them: choices of any type, and contexts as JSON has them."""

import contextlib
from collections.abc import Mapping, Sequence
from typing import Any

from rasp_tuner.contexts import value_json
from rasp_tuner.errors import InvalidSpace
from rasp_tuner.space import Categorical, Value


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
