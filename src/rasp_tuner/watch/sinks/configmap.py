"""A Kubernetes ConfigMap as a YAML file: one entry for each knob, or all of them in one entry that is a file."""

import re
from collections.abc import Mapping

from rasp_tuner.errors import InvalidSpace
from rasp_tuner.space import Params
from rasp_tuner.study_file.template import as_text
from rasp_tuner.watch.sinks.file import FileSink, rendering
from rasp_tuner.watch.sinks.sink import SinkFields

_KEY = re.compile(r"[-._a-zA-Z0-9]{1,253}")
_NAME = re.compile(r"[a-z0-9]([-.a-z0-9]{0,251}[a-z0-9])?")


def quoted(text: str) -> str:
    """A text as a double-quoted scalar of YAML, which needs no more than this to be safe.

    >>> quoted('on: "é"')
    '"on: \\\\"é\\\\""'
    """
    return '"' + "".join(map(_escaped, text)) + '"'


def _escaped(char: str) -> str:
    if char in '"\\':
        return f"\\{char}"
    if char == "\n":
        return "\\n"
    if char.isprintable() and char != "\ufeff":
        return char
    code = ord(char)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def manifest(map_name: str, namespace: str | None, entries: Mapping[str, str]) -> str:
    """The manifest; `kubectl apply -f`, a GitOps tool or a command sink after it brings it to the cluster."""
    lines = ["apiVersion: v1", "kind: ConfigMap", "metadata:", f"  name: {quoted(map_name)}"]
    lines += [] if namespace is None else [f"  namespace: {quoted(namespace)}"]
    lines += ["data:", *(f"  {quoted(name)}: {quoted(value)}" for name, value in entries.items())]
    return "\n".join(lines) + "\n"


def configmap_sink(fields: SinkFields) -> FileSink:
    path, key, namespace = fields.path("configmap"), fields.take("key"), fields.take("namespace")
    map_name = fields.text("map_name", fields.study.lower().replace("_", "-"))
    for word, name in (("map_name", map_name), ("namespace", namespace)):
        if name is not None and (not isinstance(name, str) or not _NAME.fullmatch(name)):
            raise InvalidSpace(f"{fields.where}.{word} must be lower-case letters, digits, - and ., got {name!r}")
    keys = fields.knobs if key is None else (key,)
    for name in keys:
        if not isinstance(name, str) or not _KEY.fullmatch(name):
            raise InvalidSpace(f"{fields.where}: a key of a ConfigMap has letters, digits, -, _ and ., got {name!r}")
    if key is None and ("format" in fields.rest or "template" in fields.rest):
        raise InvalidSpace(f'{fields.where}: format and template are of one entry: name it, as in key = "app.conf"')
    rendered = rendering(fields, "json")

    def text(params: Params) -> str:
        plain = {name: as_text(value) for name, value in params.items()}
        return manifest(map_name, namespace, plain if key is None else {key: rendered.text(params)})

    return FileSink(fields.name, fields.modes, path, rendered.knobs, text)
