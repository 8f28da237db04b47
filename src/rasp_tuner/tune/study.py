"""TuneStudy: what is tuned, by which knobs, measured how. Built from a study file, options or Python; checks itself."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rasp_tuner.base.checks import show, whole
from rasp_tuner.errors import InvalidSpace
from rasp_tuner.study_file import template
from rasp_tuner.study_file.caller import SHELL, StudyCaller
from rasp_tuner.study_file.fields import check_fields, parse_knobs, seconds, table
from rasp_tuner.study_file.study import FileStudy, rules_of
from rasp_tuner.tune.command import Command
from rasp_tuner.tune.context_sources import ContextSource, context_of
from rasp_tuner.tune.metric_sources import MetricSource, check_alias, metric_of

STEPS = 60  # where neither steps nor a time are given
KNOB_EXAMPLE = "--knob threads=int:1..32:log"
INTERPRETER = re.compile(r"(python|pypy|node|perl|ruby|bash|sh)[0-9.]*")  # what runs is named by the next word
RESERVED = ("input", "scratch", "run")  # placeholders that are no knobs
FIELDS = (
    *("name", "command", "shell", "call", "knobs", "default", "metrics", "contexts", "inputs", "env", "files"),
    *("constraints", "timeout", "warmup", "repeats", "seed", "budget", "redo", "paired", "max_change", "steps"),
    *("time", "final"),
)
STUDY_TABLES = ("knobs", "default", "metrics", "contexts", "env", "files")


@dataclass(frozen=True)
class StopRules:
    """How long to go on; may differ when a study is continued."""

    steps: int | None = None  # settings measured, runs of the default among them
    time_s: float | None = None
    final_pairs: int | None = None  # of the final comparison, in each situation; 0: none

    @classmethod
    def parse(cls, fields: Mapping[str, Any]) -> "StopRules":
        steps, time_s, final = fields.get("steps"), seconds("time", fields.get("time")), fields.get("final")
        if steps is None and time_s is None:
            steps = STEPS
        return cls(
            None if steps is None else whole("steps", steps, 1, 10**7, InvalidSpace),
            time_s,
            None if final is None else whole("final", final, 0, 10**6, InvalidSpace),
        )


@dataclass(frozen=True, kw_only=True)
class TuneStudy(FileStudy[MetricSource]):
    """Everything that makes two runs of `rasp tune` the same study."""

    contexts: dict[str, ContextSource] = field(default_factory=dict)
    command: Command | None = None
    call: str | None = None  # module:function
    inputs: tuple[str, ...] = ()  # patterns
    env: dict[str, str] = field(default_factory=dict)
    files: dict[str, str] = field(default_factory=dict)  # file to write -> its template
    timeout_s: float | None = None
    warmup: int = 0
    repeats: int = 1
    redo: bool = False  # whether the default runs after a run that was stopped or failed, to do its work
    paired: bool = False  # whether the default runs beside every candidate, on the same input
    assumed: tuple[str, ...] = ()  # knobs whose default nobody gave
    named: bool = True  # whether somebody gave its name; else it is the program's
    caller: StudyCaller = SHELL

    def to_json(self) -> dict[str, Any]:
        """The definition, for the journal's first line."""
        command = self.command
        return {
            **self.shared_json(),
            "command": None if command is None else list(command.words),
            "shell": command is not None and command.shell,
            "call": self.call,
            "metrics": {
                name: {**source.metric.to_json(), "from": f"{source.kind}:{source.detail}"}
                for name, source in self.metrics.items()
            },
            "contexts": {name: str(source) for name, source in self.contexts.items()},
            "inputs": list(self.inputs),
            "env": self.env,
            "files": self.files,
            "timeout": self.timeout_s,
            "warmup": self.warmup,
            "repeats": self.repeats,
            **({"redo": True} if self.redo else {}),
            **({"paired": True} if self.paired else {}),
        }

    @property
    def can_stop(self) -> bool:
        """Whether a run may be ended at its stop: one run of a command counts, its time is minimised, and all that is
        measured is known of a part of it."""
        minimised = [source for source in self.metrics.values() if source.metric.weight]
        known = all(source.kind in ("wall", "cpu", "memory") for source in self.metrics.values())
        return self.command is not None and self.repeats == 1 and known and [m.kind for m in minimised] == ["wall"]

    def find_inputs(self) -> list[str]:
        """The files that the patterns name now, sorted; a word that is no pattern and no file is an input itself."""
        found: dict[str, None] = {}
        for pattern in self.inputs:
            matched = sorted(str(path) for path in _glob(pattern))
            if not matched and any(sign in pattern for sign in "*?["):
                raise InvalidSpace(f"inputs: no file matches {pattern!r} in {str(Path.cwd())!r}")
            found.update(dict.fromkeys(matched or [pattern]))
        return list(found)


def merged(fields: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """Fields with those of the command line on top; tables are joined name by name.

    >>> merged({"steps": 10, "default": {"a": 1, "b": 2}}, {"default": {"b": 3}})
    {'steps': 10, 'default': {'a': 1, 'b': 3}}
    """
    result = dict(fields)
    for name, value in given.items():
        if name in STUDY_TABLES and isinstance(result.get(name), Mapping):
            result[name] = {**result[name], **value}
        else:
            result[name] = value
    if "call" in given:
        for other in ("command", "shell"):
            result.pop(other, None)
    elif "command" in given:
        result.pop("call", None)
        if isinstance(result.get("shell"), str):
            result.pop("shell")
    return result


def build_study(fields: Mapping[str, Any], caller: StudyCaller = SHELL) -> TuneStudy:
    """A study from fields as a study file has them (docs/TUNE.md)."""
    check_fields("a study", fields, FIELDS)
    knobs, default = parse_knobs(
        fields, caller.option("knobs", {"threads": "int:1..32:log"}) if caller.in_python else KNOB_EXAMPLE
    )
    for name in knobs:
        if name in RESERVED:
            raise InvalidSpace(f"knob {name!r}: {{{name}}} has a meaning of its own; choose another name")
    metrics = {name: metric_of(name, spec) for name, spec in (table(fields, "metrics") or {"time_s": "min"}).items()}
    call, shell = fields.get("call"), fields.get("shell", False)
    line = shell if isinstance(shell, str) else fields.get("command")
    command = Command.parse(line, bool(shell)) if line else None
    if (command is None) == (call is None):
        raise InvalidSpace("say what to tune: a command after --, as in -- ./compress --level {level}, or --call m:f")
    if command is not None:
        for name, spec in table(fields, "metrics").items():
            check_alias(name, spec)
    inputs = fields.get("inputs", ())
    contexts = {name: context_of(name, source) for name, source in table(fields, "contexts").items()}
    if inputs and not contexts:  # then the inputs themselves are the situations
        contexts = {"input": ContextSource("text", "{input}", "category")}
    study = TuneStudy(
        name=str(fields.get("name") or _name_of(command, call)),
        knobs=knobs,
        default=default,
        metrics=metrics,
        contexts=contexts,
        command=command,
        call=call,
        inputs=(inputs,) if isinstance(inputs, str) else tuple(inputs),
        env={name: str(value) for name, value in table(fields, "env").items()},
        files={name: str(value) for name, value in table(fields, "files").items()},
        constraints=rules_of(fields.get("constraints", ())),
        timeout_s=seconds("timeout", fields.get("timeout")),
        warmup=whole("warmup", fields.get("warmup", 0), 0, 10**6, InvalidSpace),
        repeats=whole("repeats", fields.get("repeats", 1), 1, 10**6, InvalidSpace),
        seed=whole("seed", fields.get("seed", 0), 0, 2**63, InvalidSpace),
        budget=fields.get("budget"),
        redo=_flag("redo", fields.get("redo", False)),
        paired=_flag("paired", fields.get("paired", False)),
        max_change=fields.get("max_change"),
        assumed=tuple(name for name in default if name not in table(fields, "default")),
        named=bool(fields.get("name")),
        caller=caller,
    )
    _check(study)
    return study


def _flag(name: str, value: object) -> bool:
    if not isinstance(value, bool):
        raise InvalidSpace(f"{name} must be true or false, got {show(value)}")
    return value


def _name_of(command: Command | None, call: str | None) -> str:
    """From the program: ./compress --level 3 is the study `compress`, and so is python compress.py."""
    words = [] if command is None else [word for one in command.words for word in one.split()]
    first = call or (words[0] if words else "")
    if INTERPRETER.fullmatch(Path(first).name) and len(words) > 1 and re.fullmatch(r"[\w./]+", words[1]):
        first = Path(words[1]).stem
    plain = re.sub(r"[^\w.-]+", "-", Path(first).name.replace(":", ".")).strip("-.")
    return plain or "study"


def _check(study: TuneStudy) -> None:
    """The default keeps the constraints, placeholders have a knob, and knobs are used."""
    study.check()
    known = [*study.knobs, "scratch", "run", *(["input"] if study.inputs else [])]
    texts = {f"env {name}": text for name, text in study.env.items()}
    texts |= {f"files {name}": name for name in study.files}
    texts |= {f"metric {name}": m.detail for name, m in study.metrics.items() if m.kind != "regex"}
    texts |= {f"context {name}": source.detail for name, source in study.contexts.items()}
    if study.command is not None:
        texts |= {f"word {i} of the command": word for i, word in enumerate(study.command.words, 1)}
        study.command.check_program()
    example = study.caller.option("inputs", "data/*")
    for where, text in texts.items():
        if "{input}" in text and not study.inputs:
            raise InvalidSpace(f"{where} has the placeholder {{input}}: name the inputs, as in {example}")
        template.check(where, text, known, study.caller)
    contents = []
    for target, source in study.files.items():
        try:
            contents.append(Path(source).read_text())
        except OSError as reason:
            raise InvalidSpace(f"files: the template of {target!r} cannot be read: {reason}") from reason
    used = {name for text in [*texts.values(), *contents] for name in template.placeholders(text)}
    told = [text for where, text in texts.items() if not where.startswith(("metric ", "context "))]
    in_use = any("input" in template.placeholders(text) for text in [*told, *contents])
    if study.inputs and study.command is not None and not in_use:
        raise InvalidSpace(
            "inputs are given, but {input} is nowhere in the command: every run would do the same work. Put {input}"
            " where the file's name belongs, or leave --inputs out"
        )
    for name in study.knobs if study.command is not None else ():
        if name not in used:
            raise InvalidSpace(
                f"knob {name!r} is used nowhere: put {{{name}}} into the command, into an environment variable"
                f" (--env NAME={{{name}}}) or into a file (--file TEMPLATE:FILE)"
            )
    if study.call is not None and (study.timeout_s is not None or study.env or study.files):
        raise InvalidSpace("a Python function takes no timeout, env or files: those are for commands")


def _glob(pattern: str) -> Sequence[Path]:
    path = Path(pattern).expanduser()
    if not path.is_absolute():
        return [found for found in Path().glob(str(path)) if found.is_file()]
    return [found for found in Path(path.anchor).glob(str(path.relative_to(path.anchor))) if found.is_file()]
