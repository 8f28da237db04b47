"""Sinks: where parameters go. A file, an HTTP hook or a command; one row of KINDS for each."""

from collections.abc import Callable, Mapping
from pathlib import Path

from rasp_tuner.base.checks import show
from rasp_tuner.errors import InvalidSpace
from rasp_tuner.space import Knob
from rasp_tuner.watch.sinks.command import command_sink
from rasp_tuner.watch.sinks.file import file_sink
from rasp_tuner.watch.sinks.hook import hook_sink
from rasp_tuner.watch.sinks.sink import Sink, SinkFields

__all__ = ["Sink", "parse_sink"]

APPLIED_IN = ("canary", "live")


def parse_sink(study: str, name: str, spec: object, knobs: Mapping[str, Knob], folder: Path) -> Sink:
    """A sink from a table of a study file; files and templates are relative to `folder`."""
    if not isinstance(spec, Mapping):
        raise InvalidSpace(
            f'sinks.{name} must be a table, as in [sinks.{name}] file = "settings.json", got {show(spec)}'
        )
    kinds = [kind for kind in KINDS if kind in spec]
    if len(kinds) != 1:
        raise InvalidSpace(f"sinks.{name} must have one of {', '.join(KINDS)}, got {', '.join(spec) or 'nothing'}")
    rest = dict(spec)
    modes = rest.pop("modes", APPLIED_IN)
    words = tuple(modes) if isinstance(modes, (list, tuple)) else (modes,)
    if not words or any(word not in APPLIED_IN for word in words):
        raise InvalidSpace(f"sinks.{name}.modes must be of {', '.join(APPLIED_IN)}, got {show(modes)}")
    fields = SinkFields(study, name, words, tuple(knobs), folder, rest)
    sink = KINDS[kinds[0]](fields)
    fields.check_all_used()
    return sink


KINDS: dict[str, Callable[[SinkFields], Sink]] = {
    "file": file_sink,
    "url": hook_sink,
    "command": command_sink,
}
