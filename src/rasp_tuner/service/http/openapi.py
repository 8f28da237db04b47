"""The OpenAPI document, made from the table of routes and the models of requests and answers."""

import re
from collections.abc import Iterable, Sequence
from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from rasp_tuner import __version__
from rasp_tuner.service.http.route import JSON, Route

COMPONENT = "#/components/schemas/{model}"


def document(routes: Iterable[Route]) -> dict[str, Any]:
    """The whole document."""
    routes = list(routes)
    bodies: list[type[BaseModel]] = [
        body for route in routes for body in (route.takes, route.gives, route.fails) if isinstance(body, type)
    ]
    models: list[type[BaseModel]] = list(dict.fromkeys(bodies))
    _, definitions = models_json_schema([(m, "validation") for m in models], ref_template=COMPONENT)
    paths: dict[str, dict[str, Any]] = {}
    for route in routes:
        if route.summary:
            paths.setdefault(route.path, {})[route.method.lower()] = _operation(route)
    return {
        "openapi": "3.1.0",
        "info": {"title": "RASP-Tuner", "version": __version__},
        "paths": paths,
        "components": {
            "schemas": definitions["$defs"],
            "securitySchemes": {
                "key": {"type": "http", "scheme": "bearer"},
                "header": {"type": "apiKey", "in": "header", "name": "X-API-Key"},
            },
        },
        "security": [{"key": []}, {"header": []}, {}],
    }


def _operation(route: Route) -> dict[str, Any]:
    good: dict[str, Any] = {"description": route.summary}
    if route.gives is not None:
        good["content"] = _content(route.gives)
    bad = {"description": "Refused", "content": _content(route.fails)}
    named = re.sub(r"\W", "_", f"{route.handler.__name__}{route.path}")
    operation: dict[str, Any] = {
        "summary": route.summary,
        "operationId": f"{named}_{route.method.lower()}",
        "parameters": [
            {"name": name, "in": "query", "schema": _query_schema(usual)} for name, usual in route.query.items()
        ]
        + [
            {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
            for name in re.findall(r"\{(\w+)\}", route.path)
        ],
        "responses": {str(route.status): good, "4XX": bad, "5XX": bad},
    }
    if route.takes is not None:
        operation["requestBody"] = {"required": not route.body_is_optional, "content": _content(route.takes)}
    return operation


def _query_schema(usual: int | str | Sequence[str] | None) -> dict[str, Any]:
    """Of a parameter by its default: a whole number, which may be absent (None), a text, or one of some words."""
    if isinstance(usual, str):
        return {"type": "string", "default": usual}
    if usual is None or isinstance(usual, int):
        schema: dict[str, Any] = {"type": "integer", "minimum": 0 if usual == 0 else 1}
        return schema if usual is None else {**schema, "default": usual}
    return {"type": "string", "enum": list(usual)}


def _content(what: type[BaseModel] | str) -> dict[str, Any]:
    if isinstance(what, str):
        return {what: {"schema": {} if what == JSON else {"type": "string"}}}
    return {JSON: {"schema": {"$ref": COMPONENT.format(model=what.__name__)}}}
