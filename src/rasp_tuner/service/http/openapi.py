"""The OpenAPI document. Routes read their bodies themselves, so requests and answers are described here."""

from collections.abc import Sequence
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from fastapi.responses import Response
from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from rasp_tuner.service.http import schemas
from rasp_tuner.service.http.context_schemas import LazyModel

COMPONENT = "#/components/schemas/{model}"


def describe(
    summary: str,
    takes: type[BaseModel] | str | None,
    gives: type[BaseModel] | str | None,
    status: int = 200,
    **query: int | str | Sequence[str] | None,
) -> dict[str, Any]:
    """Arguments of a route's decorator; request and answer are a model, or a content type without one."""
    extra: dict[str, Any] = {}
    if takes is not None:
        extra["requestBody"] = {"required": True, "content": _content(takes)}
    if query:
        extra["parameters"] = [
            {"name": name, "in": "query", "schema": _query_schema(usual)} for name, usual in query.items()
        ]
    good: dict[str, Any] = {"description": summary}
    if gives is not None:
        good["content"] = _content(gives)
    bad = {"description": "Refused", "content": _content(schemas.Error)}
    return {
        "summary": summary,
        "openapi_extra": extra,
        "responses": {status: good, "4XX": bad, "5XX": bad},
        "status_code": status,
        "response_model": None,
        "response_class": Response,  # without a content type of its own, so that the document has only those given here
    }


def add(app: FastAPI) -> None:
    """Make `app.openapi()` return the whole document."""

    def openapi() -> dict[str, Any]:
        if app.openapi_schema is None:
            document = get_openapi(title=app.title, version=app.version, routes=app.routes)
            models = [
                model
                for model in vars(schemas).values()
                if isinstance(model, type) and issubclass(model, LazyModel) and model.model_fields
            ]
            _, definitions = models_json_schema([(m, "validation") for m in models], ref_template=COMPONENT)
            components = document.setdefault("components", {})
            components["schemas"] = definitions["$defs"]
            components["securitySchemes"] = {"key": {"type": "http", "scheme": "bearer"}}
            document["security"] = [{"key": []}, {}]
            for path, operations in document["paths"].items():
                for operation in operations.values():
                    _name_path(path, operation)
            app.openapi_schema = document
        return app.openapi_schema

    app.openapi = openapi  # type: ignore[method-assign]


def _query_schema(usual: int | str | Sequence[str] | None) -> dict[str, Any]:
    """Of a parameter by its default: a whole number, which may be absent (None), a text, or one of some words."""
    if isinstance(usual, str):
        return {"type": "string", "default": usual}
    if usual is None or isinstance(usual, int):
        schema: dict[str, Any] = {"type": "integer", "minimum": 0 if usual == 0 else 1}
        return schema if usual is None else {**schema, "default": usual}
    return {"type": "string", "enum": list(usual)}


def _name_path(path: str, operation: dict[str, Any]) -> None:
    """Describe the parameters of the path, which the routes read from the request."""
    known = operation.setdefault("parameters", [])
    for name in ("name", "id"):
        if f"{{{name}}}" in path and not any(parameter["name"] == name for parameter in known):
            known.append({"name": name, "in": "path", "required": True, "schema": {"type": "string"}})


def _content(what: type[BaseModel] | str) -> dict[str, Any]:
    if isinstance(what, str):
        return {what: {"schema": {} if what == "application/json" else {"type": "string"}}}
    return {"application/json": {"schema": {"$ref": COMPONENT.format(model=what.__name__)}}}
