"""A command: its words and environment variables hold the parameters. It exits with 0 once they are in use."""

import contextlib
import os
import shlex
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from rasp_tuner.base.checks import show
from rasp_tuner.errors import InvalidSpace, SinkFailed
from rasp_tuner.space import Params
from rasp_tuner.study_file import template
from rasp_tuner.study_file.fields import seconds
from rasp_tuner.watch.sinks.sink import Sink, SinkFields

SHOWN_TEXT = 300  # last characters of what a command said
TAIL_BYTES = 4 * SHOWN_TEXT
MOST_OUTPUT_BYTES = 1_000_000  # of it that are kept while it runs
LOOK_EVERY_S = 0.02


@dataclass(frozen=True)
class CommandSink(Sink):
    """Runs a program in the study's folder. No shell reads the values."""

    words: tuple[str, ...]
    env: Mapping[str, str]
    timeout_s: float
    folder: Path

    def deliver(self, params: Params) -> None:
        words, env = self._filled(params)
        shown = shlex.join(words)
        with tempfile.TemporaryFile("a+b") as output:  # a pipe would be kept open by a daemon that it starts
            try:
                process = subprocess.Popen(  # noqa: S603 - the operator's own command
                    words,
                    cwd=self.folder,
                    env={**os.environ, **env},
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
            except (OSError, ValueError) as reason:
                raise SinkFailed(f"sink {self.name!r}: cannot start {shown}: {reason}") from reason
            try:
                code = _exit_status(process, output, self.timeout_s)
            except BaseException as reason:
                _end(process)
                if isinstance(reason, subprocess.TimeoutExpired):
                    raise SinkFailed(
                        f"sink {self.name!r}: {shown} took longer than {self.timeout_s:g} s and was ended"
                    ) from reason
                raise
            if code:
                raise SinkFailed(f"sink {self.name!r}: {shown} exits with {code}: {_tail(output)}")

    def _filled(self, params: Params) -> tuple[list[str], dict[str, str]]:
        values = self.placeholder_values(params)
        env = {name: template.fill(text, values) for name, text in self.env.items()}
        return template.fill_words(self.words, values), env

    def shown(self, params: Params) -> str:
        words, env = self._filled(params)
        return "runs " + " ".join([*(f"{name}={shlex.quote(value)}" for name, value in env.items()), shlex.join(words)])

    def problems(self) -> list[str]:
        program = self.words[0]
        found = (self.folder / program).is_file() if "/" in program else shutil.which(program) is not None
        if found or template.placeholders(program):
            return []
        return [f"sink {self.name!r}: the program {program!r} was not found: check its name and PATH"]


def command_sink(fields: SinkFields) -> CommandSink:
    given, env = fields.take("command"), fields.take("env", {})
    try:
        words = shlex.split(given) if isinstance(given, str) else list(given)
    except (TypeError, ValueError):
        words = []
    if not words or not all(isinstance(word, str) for word in words):
        raise InvalidSpace(
            f'{fields.where}.command must be words, as in ["app", "-w", "{{workers}}"], got {show(given)}'
        )
    if not isinstance(env, Mapping) or not all(isinstance(v, str) for pair in env.items() for v in pair):
        raise InvalidSpace(
            f'{fields.where}.env must be a table of texts, as in {{ WORKERS = "{{workers}}" }}, got {env!r}'
        )
    knobs = fields.used_knobs(fields.where, [*words, *env.values()])
    timeout_s = seconds(f"{fields.where}.timeout", fields.take("timeout", 30)) or 0.0
    return CommandSink(fields.name, fields.modes, knobs, tuple(words), env, timeout_s, fields.folder.resolve())


def _exit_status(process: "subprocess.Popen[bytes]", output: IO[bytes], timeout_s: float) -> int:
    """How a command ended; while it runs, what it says does not fill the disk."""
    deadline = time.monotonic() + timeout_s
    while True:
        try:
            return process.wait(max(0.0, min(LOOK_EVERY_S, deadline - time.monotonic())))
        except subprocess.TimeoutExpired:
            if time.monotonic() >= deadline:
                raise
        file, size = output.fileno(), os.fstat(output.fileno()).st_size
        if size > MOST_OUTPUT_BYTES:
            end = os.pread(file, size, size - TAIL_BYTES)[-TAIL_BYTES:]  # up to where it ends by now
            os.ftruncate(file, 0)
            os.write(file, end)  # it may be the last that the command says


def _tail(output: IO[bytes]) -> str:
    """The end of what a command said, on one line."""
    output.seek(max(0, output.seek(0, os.SEEK_END) - TAIL_BYTES))
    text = "".join(c if c.isprintable() else " " for c in output.read().decode("utf-8", "replace"))
    return " ".join(text.split())[-SHOWN_TEXT:] or "it said nothing"


def _end(process: "subprocess.Popen[bytes]") -> None:
    """With all that it started."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
