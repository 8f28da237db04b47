"""A look at a study without running it: every query is asked once, and what would be written is shown."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial

from rasp_tuner.errors import InvalidSpace, InvalidValue, NoData, QueryFailed
from rasp_tuner.page.words import counted, duration_words, settings_words, value_words
from rasp_tuner.watch.queries import long_ranges
from rasp_tuner.watch.reader import Part, Reader
from rasp_tuner.watch.study import Mode, WatchStudy


@dataclass
class Check:
    """What was seen, and what is wrong."""

    lines: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        verdict = counted(len(self.problems), "problem") if self.problems else "ready"
        return "\n".join(
            [
                *self.lines,
                *(f"note      {note}" for note in self.notes),
                *(f"PROBLEM   {problem}" for problem in self.problems),
                verdict,
            ]
        )


def check_study(study: WatchStudy, mode: Mode) -> Check:
    """Everything that can be found out without changing anything; a value that is waited for is asked for once."""
    found = Check()
    reader = Reader(replace(study, wait_s=0.0), lambda _: None)
    found.lines += [
        f"study     {study.name}, mode {mode}",
        f"asks      {study.prometheus.url}",
        f"default   {settings_words(study.default)}",
        f"step      settle {_length(study.settle_s)} after a change, window {_length(study.window_s)}",
    ]
    try:
        study.check_mode(mode)
    except InvalidSpace as reason:
        found.problems.append(str(reason))
    for name, source in study.contexts.items():
        _ask(found, f"context   {name}", partial(reader.context, name, source))
    parts: tuple[Part, ...] = ("canary", "control") if mode == "canary" and study.has_canaries else ("query",)
    for name, metric in study.metrics.items():
        for part in parts:
            label = f"metric    {name}{'' if part == 'query' else f' ({part})'}"
            _ask(found, label, partial(reader.metric, name, metric, part))
        for text in long_ranges(metric.query, study.window_s + study.settle_s):
            found.notes.append(
                f"metric {name!r} looks back over {text}, longer than settle and window: it mixes in what ran before."
                " Write [{window}], or make the window longer"
            )
    if study.running:
        _ask(found, "running   by its queries", lambda: settings_words(reader.running() or {}))
    for sink in study.sinks_of(mode):
        found.lines.append(f"sink      {sink.name} {_indented(sink.shown(study.default))}")
        found.problems += sink.problems()
    if mode == "shadow":
        found.lines.append("shadow    nothing is written")
    return found


def _ask(found: Check, label: str, read: Callable[[], object]) -> None:
    try:
        value = read()
    except (NoData, QueryFailed, InvalidValue) as reason:
        found.problems.append(str(reason))
        found.lines.append(f"{label}: no value")
    else:
        shown = value_words(value) if isinstance(value, float) else "missing" if value is None else str(value)
        found.lines.append(f"{label}: {shown}")


def _length(seconds: float) -> str:
    return duration_words(seconds) if seconds else "0s"


def _indented(text: str) -> str:
    return text.replace("\n", "\n          ")
