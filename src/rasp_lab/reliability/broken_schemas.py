"""Bodies from the OpenAPI document, each right but for one place; the same generator gives the same bodies."""

import copy
import json
import random
from collections.abc import Iterator
from typing import Any

NONSENSE: list[Any] = [{"\x00": [[]]}, [[[]]], [{"a": [{}]}], {"": {"": {}}}]  # wrong wherever they stand
MAX_DEPTH = 6


class BrokenSchemas:
    """Requests with a JSON body, by path; `body` makes a wrong one."""

    def __init__(self, document: dict[str, Any], rng: random.Random) -> None:
        self._models, self._rng = document["components"]["schemas"], rng
        self.paths: dict[str, dict[str, Any]] = {}
        for path, operations in document["paths"].items():
            content = operations.get("post", {}).get("requestBody", {}).get("content", {})
            if "application/json" in content:
                self.paths[path] = content["application/json"]["schema"]

    def body(self, path: str) -> bytes:
        """A body for this path with nonsense in one place, or with one field more or less."""
        value = self._value(self.paths[path], 0)
        places = [place for place in _places(value) if place]
        roll = self._rng.random()
        if roll < 0.1 or not places:
            value = self._rng.choice([*NONSENSE, None, 1, "x"])
        elif roll < 0.25:
            value["unknown"] = self._rng.choice(NONSENSE)
        else:
            *way, last = self._rng.choice(places)
            here = value
            for step in way:
                here = here[step]
            here[last] = copy.deepcopy(self._rng.choice(NONSENSE))
        return json.dumps(value).encode()

    def _value(self, schema: dict[str, Any], depth: int) -> Any:
        """A value that the schema allows."""
        while "$ref" in schema:
            schema = self._models[schema["$ref"].rpartition("/")[2]]
        if "const" in schema or "enum" in schema:
            return schema.get("const", schema.get("enum", [None])[0])
        if "oneOf" in schema or "anyOf" in schema:
            return self._value(self._rng.choice(schema.get("oneOf", schema.get("anyOf"))), depth)
        kind = schema.get("type")
        if kind == "object":
            required = schema.get("required", [])
            fields = schema.get("properties", {})
            chosen = [name for name in fields if name in required or (depth < MAX_DEPTH and self._rng.random() < 0.5)]
            made = {name: self._value(fields[name], depth + 1) for name in chosen}
            if not fields and isinstance(schema.get("additionalProperties"), dict):
                made["a"] = self._value(schema["additionalProperties"], depth + 1)
            return made
        if kind == "array":
            few = max(schema.get("minItems", 0), self._rng.randrange(3) if depth < MAX_DEPTH else 0)
            return [self._value(schema.get("items", {}), depth + 1) for _ in range(few)]
        plain = {"integer": 1, "number": 0.5, "boolean": True, "null": None}
        return plain[kind] if kind in plain else schema.get("examples", ["a" * schema.get("minLength", 1)])[0]


def _places(value: Any, way: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Ways to all values within a value."""
    yield way
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for step, part in inner:
        yield from _places(part, (*way, step))
