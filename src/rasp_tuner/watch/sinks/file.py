"""A file with the parameters: JSON, `NAME=value` lines, or a template; replaced as a whole, never half written."""

import json
import os
import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from rasp_tuner.base.checks import one_of
from rasp_tuner.errors import InvalidSpace, SinkFailed, SnapshotFileError
from rasp_tuner.files import snapshot
from rasp_tuner.space import Params
from rasp_tuner.study_file import template
from rasp_tuner.watch.sinks.sink import SinkFields, placeholder_values, used_knobs

FORMATS = ("json", "env", "template")


@dataclass(frozen=True)
class Rendering:
    """Parameters as the text of a file."""

    format: str
    all_knobs: tuple[str, ...]
    prefix: str = ""  # of names in format env
    template: str = ""

    @property
    def knobs(self) -> tuple[str, ...]:
        return used_knobs(self.all_knobs, [self.template]) if self.format == "template" else self.all_knobs

    def text(self, params: Params) -> str:
        """
        >>> Rendering("env", ("workers",), "APP_").text({"workers": 8})
        'APP_WORKERS=8\\n'
        """
        if self.format == "json":
            return json.dumps(params, indent=1, ensure_ascii=False) + "\n"
        if self.format == "env":
            return "".join(f"{name}={value}\n" for name, value in self._variables(params).items())
        return template.fill(self.template, placeholder_values(self.all_knobs, params))

    def _variables(self, params: Params) -> Mapping[str, str]:
        return {f"{self.prefix}{n.upper()}": shlex.quote(template.as_text(v)) for n, v in params.items()}


def rendering(fields: SinkFields) -> Rendering:
    """From the fields `format`, `template` and `prefix` of a sink."""
    source = fields.take("template")
    given = fields.take("format", "json" if source is None else "template")
    form = one_of(f"{fields.where}.format", given, FORMATS, InvalidSpace)
    prefix = fields.take("prefix", "")
    if (source is not None) != (form == "template"):
        raise InvalidSpace(f"{fields.where}: a template goes with format template, and with no other")
    if not isinstance(prefix, str) or (prefix and form != "env"):
        raise InvalidSpace(f"{fields.where}.prefix must be a text, and goes with format env, got {prefix!r}")
    if source is None:
        return Rendering(form, fields.knobs, prefix)
    try:
        text = (fields.folder / str(source)).read_text()
    except (OSError, UnicodeDecodeError) as reason:
        raise InvalidSpace(f"{fields.where}.template cannot be read: {reason}") from reason
    template.check(f"{fields.where}.template", text, fields.knobs)
    return Rendering(form, fields.knobs, "", text)


@dataclass(frozen=True)
class FileSink:
    """Replaces one file: readers see the old one or the new one."""

    name: str
    modes: tuple[str, ...]
    path: Path
    knobs: tuple[str, ...]
    text: Callable[[Params], str]

    def deliver(self, params: Params) -> None:
        try:
            snapshot.write(self.path, self.text(params).encode("utf-8", "surrogateescape"))
        except (SnapshotFileError, UnicodeError) as reason:
            raise SinkFailed(
                f"sink {self.name!r}: {reason}; is the folder there, and may it be written to?"
            ) from reason

    def shown(self, params: Params) -> str:
        return f"writes {self.path}:\n{self.text(params)}".rstrip()

    def problems(self) -> list[str]:
        folder = self.path.resolve().parent
        if not folder.is_dir():
            return [f"sink {self.name!r}: there is no folder {str(folder)!r}: create it"]
        if not os.access(folder, os.W_OK):
            return [f"sink {self.name!r}: nobody lets this program write to {str(folder)!r}: change its rights"]
        return []


def file_sink(fields: SinkFields) -> FileSink:
    path, rendered = fields.path("file"), rendering(fields)
    return FileSink(fields.name, fields.modes, path, rendered.knobs, rendered.text)
