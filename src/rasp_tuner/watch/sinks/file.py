"""A file with the parameters: JSON, `NAME=value` lines, or a template; replaced as a whole, never half written."""

import json
import os
import shlex
from dataclasses import dataclass
from pathlib import Path

from rasp_tuner.base.checks import one_of, show
from rasp_tuner.errors import InvalidSpace, SinkFailed, SnapshotFileError
from rasp_tuner.files import snapshot
from rasp_tuner.space import Params
from rasp_tuner.study_file import template
from rasp_tuner.watch.sinks.sink import Sink, SinkFields

FORMATS = ("json", "env", "template")


@dataclass(frozen=True)
class FileSink(Sink):
    """Replaces one file: readers see the old one or the new one."""

    path: Path
    format: str
    prefix: str = ""  # of names in format env
    template: str = ""

    def text(self, params: Params) -> str:
        """
        >>> FileSink("s", ("live",), ("workers",), Path("app.env"), "env", "APP_").text({"workers": 8})
        'APP_WORKERS=8\\n'
        """
        if self.format == "json":
            return json.dumps(params, indent=1, ensure_ascii=False) + "\n"
        if self.format == "env":
            words = {f"{self.prefix}{name.upper()}": template.as_text(value) for name, value in params.items()}
            return "".join(f"{name}={shlex.quote(text)}\n" for name, text in words.items())
        return template.fill(self.template, self.placeholder_values(params))

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
    given, source = fields.take("file"), fields.take("template")
    form = fields.take("format", "json" if source is None else "template")
    one_of(f"{fields.where}.format", form, FORMATS, InvalidSpace)
    prefix = fields.take("prefix", "")
    if not isinstance(given, str) or not given:
        raise InvalidSpace(f"{fields.where}.file must be a text, got {show(given)}")
    if (source is not None) != (form == "template"):
        raise InvalidSpace(f"{fields.where}: a template goes with format template, and with no other")
    if not isinstance(prefix, str) or (prefix and form != "env"):
        raise InvalidSpace(f"{fields.where}.prefix must be a text, and goes with format env, got {prefix!r}")
    text, knobs = "", fields.knobs
    if source is not None:
        try:
            text = (fields.folder / str(source)).read_text()
        except (OSError, UnicodeDecodeError) as reason:
            raise InvalidSpace(f"{fields.where}.template cannot be read: {reason}") from reason
        knobs = fields.used_knobs(f"{fields.where}.template", [text])
    path = fields.folder / Path(given).expanduser()
    return FileSink(fields.name, fields.modes, knobs, path, form, prefix, text)
