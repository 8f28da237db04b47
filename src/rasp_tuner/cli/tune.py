"""`rasp tune`: from a slow command to proof that it is faster."""

import json
import logging
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from rasp_tuner.base.terminal_log import log_to_terminal
from rasp_tuner.cli.common import Json, app, echo, flag, one_line_errors
from rasp_tuner.errors import InvalidSpace

OTHER_NAMES = {
    **dict.fromkeys(("--runs", "--trials", "--n-trials", "--iterations", "--max-runs"), "--steps"),
    **dict.fromkeys(("--param", "--parameter"), "--knob"),
    "--objective": "--metric",
}
KNOBS, MEASURE, HOWLONG = "What to change", "What to measure", "How long"


def _option(help: str, panel: str | None = None, **more: Any) -> Any:
    return typer.Option(help=help, rich_help_panel=panel, show_default=False, **more)


class TuneCommand(TyperCommand):
    """Options that other tools have are answered with ours."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        try:
            return super().parse_args(ctx, args)
        except Exception as error:
            if (meant := OTHER_NAMES.get(getattr(error, "option_name", ""))) is not None:
                error.possibilities = [meant]  # type: ignore[attr-defined]
            raise


@app.command("tune", cls=TuneCommand)
def tune_command(
    words: Annotated[
        list[str] | None,
        typer.Argument(
            help="A study file (study.toml), or -- and the command with {placeholders}.", show_default=False
        ),
    ] = None,
    knob: Annotated[
        list[str] | None, _option("As threads=int:1..32:log, codec=cat:lz4,zstd; repeat it.", KNOBS)
    ] = None,
    default: Annotated[list[str] | None, _option("What runs today, as threads=4; repeat it.", KNOBS)] = None,
    env: Annotated[list[str] | None, _option("Environment variable, as OMP_NUM_THREADS={threads}.", KNOBS)] = None,
    file: Annotated[
        list[str] | None, _option("Write FILE from a template before each run, as conf.template:FILE.", KNOBS)
    ] = None,
    constraint: Annotated[
        list[str] | None, _option("A rule between knobs, as 'a * b <= 2048'; repeat it.", KNOBS)
    ] = None,
    call: Annotated[str | None, _option("A Python function in the place of a command, as module:function.")] = None,
    shell: Annotated[bool, flag("--shell", "The command is one line for /bin/sh; values are quoted in it.")] = False,
    metric: Annotated[
        list[str] | None,
        _option(
            "As time_s:min, cpu_s, memory_mb, 'speed:max=regex:([0-9.]+) MB/s', 'p99:min=json:latency.p99'; repeat it.",
            MEASURE,
        ),
    ] = None,
    limit: Annotated[
        list[str] | None, _option("What to stay within, as 'size<=1.05 default', memory_mb<=500; repeat it.", MEASURE)
    ] = None,
    context: Annotated[
        list[str] | None,
        _option("As 'size=stat -c %s {input}', size=size:{input}, hour=time:hour, host=env:HOST.", MEASURE),
    ] = None,
    inputs: Annotated[list[str] | None, _option("Files to run on in turn, as 'data/*'; repeat it.", MEASURE)] = None,
    timeout: Annotated[str | None, _option("Of one run, as 30s; by default 10 times the default's.", MEASURE)] = None,
    warmup: Annotated[int | None, _option("Runs dropped before each measurement.", MEASURE, min=0)] = None,
    repeats: Annotated[int | None, _option("Runs of each setting; their median counts.", MEASURE, min=1)] = None,
    steps: Annotated[int | None, _option("Settings to measure; by default 60.", HOWLONG, min=1)] = None,
    time: Annotated[str | None, _option("Time for tuning, as 10m or 1h30m.", HOWLONG)] = None,
    final: Annotated[
        int | None, _option("Pairs of the final comparison in each situation; 0 for none.", HOWLONG, min=0)
    ] = None,
    budget: Annotated[
        float | None, _option("For a live system: what exploring may cost, as a share of the default's.", min=0.0)
    ] = None,
    redo: Annotated[
        bool, flag("--redo", "Run the default after a run that was stopped or failed: its work gets done.")
    ] = False,
    paired: Annotated[
        bool,
        flag("--paired", "Run the default beside every suggestion, on the same input: less noise, twice the time."),
    ] = False,
    seed: Annotated[int | None, _option("Of all random choices.", min=0)] = None,
    name: Annotated[str | None, _option("Name of the study; by default the program's or the file's.")] = None,
    out: Annotated[Path | None, _option("Folder of the study; by default rasp-tune/NAME.")] = None,
    fresh: Annotated[bool, flag("--fresh", "Start over; an old journal is set aside.")] = False,
    dry_run: Annotated[bool, flag("--dry-run", "Print what would be run, and run nothing.")] = False,
    verbose: Annotated[bool, flag("--verbose", "Log every run.")] = False,
    as_json: Json = False,
) -> None:
    """Tune a command or a Python function, and prove that it got better. The same command goes on after a stop.

    Exit status: 0 better; 3 no difference shown; 4 worse: keep the default; 1 an error; 130 stopped, can go on.

    Example: rasp tune --knob level=int:1..9 --default level=6 --inputs 'data/*' -- gzip -c -{level} {input}
    """
    with one_line_errors("rasp-tuner[cli]"):
        from rasp_tuner.study_file.fields import read_study_file
        from rasp_tuner.tune import StopRules, build_study, run_study
        from rasp_tuner.tune.context_sources import split_context
        from rasp_tuner.tune.dry_run import plan_words
        from rasp_tuner.tune.metric_sources import split_metric, with_limits
        from rasp_tuner.tune.progress import Progress
        from rasp_tuner.tune.study import merged

        given: dict[str, Any] = {
            "knobs": _by_name("knob", knob),
            "default": _by_name("default", default),
            "env": _by_name("env", env),
            "files": _by_name("file", file, lambda text: _split("file", text, ":")[::-1]),
            "constraints": constraint,
            "call": call,
            "shell": shell or None,
            "metrics": _by_name("metric", metric, split_metric),
            "contexts": _by_name("context", context, split_context),
            "inputs": inputs,
            "timeout": timeout,
            "warmup": warmup,
            "repeats": repeats,
            "steps": steps,
            "time": time,
            "final": final,
            "budget": budget,
            "redo": redo or None,
            "paired": paired or None,
            "seed": seed,
            "name": name,
        }
        fields: dict[str, Any] = {}
        if words and words[0].endswith(".toml"):
            fields, words = read_study_file(Path(words[0])), words[1:]
        given["command"] = words or []
        fields = merged(fields, {key: value for key, value in given.items() if value not in (None, {}, [])})
        if limit:
            fields["metrics"] = with_limits(fields.get("metrics", {}), limit)
        if fields.get("call"):
            sys.path.insert(0, "")  # as `python -m` does: the function may lie in this folder
        study, limits = build_study(fields), StopRules.parse(fields)
        if dry_run:
            echo(plan_words(study, limits, out))
            return
        if verbose:
            log_to_terminal(logging.INFO, "%(asctime)s %(message)s")
        signal.signal(signal.SIGTERM, _interrupt)  # ends the running command, too
        try:
            result = run_study(study, limits, out, fresh, Progress(quiet=as_json and not sys.stderr.isatty()))
        except KeyboardInterrupt as stopped:
            raise typer.Exit(130) from stopped
        echo(json.dumps(result.to_json(), indent=1) if as_json else f"{result}\n  report: {result.report}")
        raise typer.Exit(result.exit_code)


def _interrupt(*_: object) -> None:
    raise KeyboardInterrupt


def _by_name(
    option: str, given: list[str] | None, split: Callable[[str], tuple[str, str]] | None = None
) -> dict[str, str]:
    """What was given of an option that may be repeated, once for each name."""
    found: dict[str, str] = {}
    for text in given or ():
        name, value = _split(option, text, "=") if split is None else split(text)
        if name in found:
            raise InvalidSpace(f"--{option} {name} is given twice, as {found[name]!r} and as {value!r}: leave one out")
        found[name] = value
    return found


def _split(option: str, text: str, sign: str) -> tuple[str, str]:
    name, between, value = text.partition(sign)
    if not name or not between:
        raise InvalidSpace(f"--{option} must look like NAME{sign}VALUE, got {text!r}")
    return name, value
