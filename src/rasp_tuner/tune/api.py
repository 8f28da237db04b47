"""From a study to its result: resume, tune, compare, report. `tune` is the same for a Python function."""

import json
import logging
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from rasp_tuner.base.checks import show
from rasp_tuner.errors import InvalidSpace, JournalError, RaspError, SnapshotFileError, TuningStopped
from rasp_tuner.files import snapshot
from rasp_tuner.page.words import settings_words
from rasp_tuner.space import Knob, Value
from rasp_tuner.study_file.caller import PYTHON
from rasp_tuner.study_file.journal import Journal
from rasp_tuner.tune.changed_space import change_notes, may_go_on, own_folder
from rasp_tuner.tune.context_sources import ContextValue
from rasp_tuner.tune.knob_shares import Shares, check_knobs
from rasp_tuner.tune.loop import Session
from rasp_tuner.tune.measure import function_name, placeholder_values, runner_of
from rasp_tuner.tune.paired_comparison import compare, pairs_each
from rasp_tuner.tune.playoff import play_off
from rasp_tuner.tune.process import leftovers
from rasp_tuner.tune.progress import Progress
from rasp_tuner.tune.report import as_html
from rasp_tuner.tune.result import TuneResult, conclude
from rasp_tuner.tune.situations import situations_of
from rasp_tuner.tune.study import StopRules, TuneStudy, build_study
from rasp_tuner.types import Metric

log = logging.getLogger("rasp_tuner.tune")

NOISE_FROM_RUNS = 10  # on, it is looked at how much equal runs differ
EXTREME_NOISE = 0.2  # deviation of log(metric): a gain of a third is lost in it
TUNE_FOLDER = "rasp-tune"  # where studies live, unless said otherwise


def tune(
    function: Callable[..., Any],
    knobs: Mapping[str, Knob | str],
    metrics: Mapping[str, str | Metric] | None = None,
    *,
    default: Mapping[str, Value] | None = None,
    contexts: Mapping[str, str | Callable[[], ContextValue]] | None = None,
    inputs: str | Sequence[str] = (),
    steps: int | None = None,
    time: float | str | None = None,
    final: int | None = None,
    warmup: int = 0,
    repeats: int = 1,
    seed: int = 0,
    name: str | None = None,
    out: str | Path | None = None,
    fresh: bool = False,
    quiet: bool = False,
) -> TuneResult:
    """Tune a Python function: it is called with a value for each knob, and with `input` if there are inputs.

    knobs     name -> a knob, or words such as "int:1..32:log"
    metrics   name -> "min" or "max", with a weight or a limit ("min*0.5", "min<=1.05 default"), or a Metric; time_s and
              cpu_s are measured, others come from the mapping that the function returns (or from the number, if it
              returns one); by default {"time_s": "min"}
    contexts  name -> a function without arguments, or words such as "time:hour"
    name      of the study; by default the function's, and of a lambda its file and line, as in bench-line-12
    steps     settings to measure; `time`, such as "10m", ends it earlier
    final     pairs of the final comparison in each situation; 0 for none
    out       folder of the study, by default rasp-tune/NAME; the same call again goes on where it was stopped
    """
    readers = {key: read for key, read in (contexts or {}).items() if callable(read)}
    own = function_name(function)
    fields = {
        "name": name or own.name,
        "call": own.call,
        "knobs": _named("knobs", knobs),
        "default": _named("default", default),
        "metrics": _named("metrics", metrics),
        "contexts": {key: source for key, source in (contexts or {}).items() if key not in readers},
        "inputs": inputs,
        "warmup": warmup,
        "repeats": repeats,
        "seed": seed,
    }
    limits = StopRules.parse({"steps": steps, "time": time, "final": final})
    folder = Path(out) if out is not None else None
    study = replace(build_study(fields, PYTHON), named=name is not None)
    return run_study(study, limits, folder, fresh, Progress(quiet=quiet), function, readers)


def run_study(
    study: TuneStudy,
    limits: StopRules,
    folder: Path | None = None,
    fresh: bool = False,
    progress: Progress | None = None,
    function: Callable[..., Any] | None = None,
    readers: Mapping[str, Callable[[], ContextValue]] | None = None,
) -> TuneResult:
    """Run a study to its limits, or go on with it; then compare and report."""
    place = folder if folder is not None else own_folder(study, Path(TUNE_FOLDER))
    progress = progress or Progress(quiet=True)
    runner = runner_of(study, function)
    with Journal(place, study.to_json(), fresh, study.caller, may_go_on) as journal:
        session = Session(study, runner, journal, readers)
        _greet(session, progress, journal)
        warned = told = False
        try:
            while not session.is_over(limits):
                session.step()
                progress.step(session, limits)
                warned = warned or (len(session.runs) >= NOISE_FROM_RUNS and _warned_of_noise(session, progress))
                if not told and (told := session.left_behind > 0):
                    progress.say(_left_behind_words(session.left_behind))
            progress.close()
            result = _finish(session, limits, place, progress)
        except BaseException as error:
            progress.close()
            if not isinstance(error, (TuningStopped, JournalError)):  # which say themselves how to go on
                _leave(session, place, progress)
            raise
    return result


def _greet(session: Session, progress: Progress, journal: Journal) -> None:
    study = session.study
    if journal.dropped:
        progress.say(f"note: the last line of {journal.path} was torn and was dropped; its run was not counted")
    if not study.named and journal.path.parent.parent == Path(TUNE_FOLDER) and journal.path.parent.name != study.name:
        name = study.caller.option("name")
        other = f"{TUNE_FOLDER}/{study.name} is about another {'function' if study.call else 'command'}"
        progress.say(f"note: {other}; this study is in {str(journal.path.parent)!r} ({name} gives it a name)")
    if session.resumed:
        done = f"going on with {str(journal.path.parent)!r}: {session.resumed} runs are done"
        progress.say(f"{done}; if what runs has changed since, start over: {study.caller.option('fresh', True)}")
    for note in change_notes(journal.changed_from, session.study) if journal.changed_from else ():
        progress.say(f"note: {note}")
    if session.left_out:
        progress.say(f"note: the knobs have changed; {session.left_out} earlier runs do not count with those of today")
    if left := leftovers(study.name):
        progress.say(
            f"note: processes of an earlier session still run and disturb measurements: {', '.join(map(str, left))};"
            " wait for them or end them with kill"
        )
    if study.assumed and not session.resumed:
        shown = settings_words({name: study.default[name] for name in study.assumed})
        progress.say(f"note: no default was given for these knobs, so this is compared with: {shown}")


def _left_behind_words(count: int) -> str:
    several = count > 1
    return (
        f"note: the command ended while {count} process{'es' * several} that it started still ran; what a run starts is"
        " ended with it. If it is a server for later runs, start it before rasp tune"
    )


def _named(field: str, given: object) -> dict[str, Any]:
    """A mapping from names, as a copy; nothing is an empty one."""
    if given is not None and not isinstance(given, Mapping):
        example = {"knobs": '{"level": "int:1..9"}', "default": '{"level": 6}'}.get(field, '{"time_s": "min"}')
        raise InvalidSpace(f"{field} must be a mapping, as in {example}, got {show(given)}")
    return dict(given or {})


def _warned_of_noise(session: Session, progress: Progress) -> bool:
    """Say so where equal runs differ so much that little can be shown, and what would help; whether it did.

    Of few equal runs some are alike by chance, so it is asked again after every run.
    """
    noise, study = session.noise() or 0.0, session.study
    if noise < EXTREME_NOISE:
        return False
    wall = study.metrics[study.objective].kind == "wall" and study.command is not None
    advice = ["measure CPU time with --metric cpu_s:min"] if wall else []
    repeats = study.caller.option("repeats", max(3, 2 * study.repeats + 1))
    advice += [f"take the median of more runs with {repeats}"]
    percent = 100.0 * math.expm1(noise)
    progress.say(
        f"note: {study.objective} differs by {percent:.0f}% between runs of the same settings, so only large gains can"
        f" be shown: {', or '.join(advice)}"
    )
    return True


def _finish(session: Session, limits: StopRules, place: Path, progress: Progress) -> TuneResult:
    """The final comparison, then all files."""
    found = {} if limits.final_pairs == 0 else play_off(session, progress.play_off)
    shares: Shares = {}
    if found:
        moved = sum(params != session.study.default for params in found.values())
        found, shares = check_knobs(session, found, pairs_each(moved, limits.final_pairs), progress.knobs)
    situations = situations_of(session, found)
    compared = sum(situation.params != session.study.default for situation in situations)
    each = pairs_each(compared, limits.final_pairs)
    pairs = compare(session, situations, each, progress.pair) if each else []
    progress.close()
    result = conclude(session, situations, pairs, place, shares)
    _write(session, result, finished=True)
    return result


def _leave(session: Session, place: Path, progress: Progress) -> None:
    """Before an error or Ctrl-C ends the program: a report of what there is."""
    if not session.runs:
        return
    try:
        _write(session, conclude(session, situations_of(session), [], place), finished=False)
    except (OSError, RaspError) as reason:
        log.warning("the report could not be written: %s", reason)
    left = f"{len(session.runs)} runs are safe in {session.journal.path}"
    progress.say(f"stopped: {left}. {session.study.caller.again.capitalize()} goes on from there.")


def _write(session: Session, result: TuneResult, finished: bool) -> None:
    """The report, the settings, and the tuner itself, each whole or not at all."""
    study, input = session.study, "INPUT" if session.inputs else None
    page = as_html(result, lambda p: session.runner.shown(placeholder_values(study, p, input)), finished)
    files = {"report.html": page.encode()}
    if finished:
        files["settings.json"] = json.dumps(result.to_json(), indent=1).encode()
        files["tuner.rasp"] = session.tuner.to_bytes()
    for name, data in files.items():
        try:
            snapshot.write(result.folder / name, data)
        except SnapshotFileError as reason:
            raise JournalError(
                f"{reason}. All runs are in {session.journal.path}: {study.caller.again} writes it again"
            ) from reason
