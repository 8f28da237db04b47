"""Arguments -> plain JSON values, checked like in the library."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from rasp_tuner.base.checks import number, show
from rasp_tuner.contexts import KINDS, kind_json, value_json
from rasp_tuner.contexts.context_encoder import Schema
from rasp_tuner.errors import InvalidSpace, InvalidValue
from rasp_tuner.space import Knob, Params, knob_to_json
from rasp_tuner.tuner import Context
from rasp_tuner.types import Direction, Metric


def context_json(context: Context) -> dict[str, Any] | list[Any] | None:
    if context is None:
        return None
    if isinstance(context, Mapping):
        return {_name("context", name): value_json(f"context[{name!r}]", value) for name, value in context.items()}
    if isinstance(context, (Sequence, np.ndarray)) and not isinstance(context, (str, bytes)):
        return [value_json(f"context[{i}]", value) for i, value in enumerate(context)]
    raise InvalidValue(f"context must be a mapping, a list of values or None, got {show(context)}")


def context_schema_json(schema: Schema) -> dict[str, Any] | list[str] | int | None:
    """Kinds as objects of the library, or already as JSON."""
    if isinstance(schema, Mapping):
        kinds = tuple(KINDS.values())
        return {name: kind_json(kind) if isinstance(kind, kinds) else kind for name, kind in schema.items()}
    return schema if schema is None or isinstance(schema, int) else list(schema)


def metrics_json(metrics: Mapping[str, float]) -> dict[str, float]:
    if not isinstance(metrics, Mapping):
        raise InvalidValue(f"metrics must be a mapping of names to numbers, got {show(metrics)}")
    return {_name("metrics", name): number(f"metrics[{name!r}]", value) for name, value in metrics.items()}


def params_json(params: Mapping[str, object], field: str = "params") -> Params:
    if not isinstance(params, Mapping):
        raise InvalidValue(f"{field} must be a mapping of names to values, got {show(params)}")
    plain: Params = {}
    for name, value in params.items():
        bare = value.item() if isinstance(value, np.generic) else value
        if bare is not None and not isinstance(bare, str | bool):
            number(f"{field}[{name!r}]", bare)
        if bare is not None and not isinstance(bare, (str, bool, int, float)):
            raise InvalidValue(f"{field}[{name!r}] must be a string, number, boolean or None, got {show(value)}")
        plain[_name(field, name)] = bare
    return plain


def space_json(space: Mapping[str, Knob | Mapping[str, Any]]) -> dict[str, Any]:
    """Knobs as objects of the library, or already as JSON."""
    if not isinstance(space, Mapping):
        raise InvalidSpace(f"space must map names to Float, Int, Categorical or another knob, got {show(space)}")
    return {name: knob if isinstance(knob, Mapping) else _knob_json(name, knob) for name, knob in space.items()}


def _knob_json(name: str, knob: Knob) -> dict[str, Any]:
    if not isinstance(knob, Knob):
        raise InvalidSpace(f"space[{name!r}] must be a knob or its JSON, got {show(knob)}")
    return knob_to_json(knob)


def metric_specs_json(metrics: Mapping[str, Metric | Direction | Mapping[str, Any]]) -> dict[str, Any]:
    if not isinstance(metrics, Mapping):
        raise InvalidSpace(f"metrics must map names to 'min', 'max' or a Metric, got {show(metrics)}")
    return {name: spec.to_json() if isinstance(spec, Metric) else spec for name, spec in metrics.items()}


def _name(field: str, name: object) -> str:
    if not isinstance(name, str):
        raise InvalidValue(f"{field} must have names that are strings, got {show(name)}")
    return name
