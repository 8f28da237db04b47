"""watch: a study, step after step, until it is stopped. Whatever goes wrong, the last good parameters are in place."""

import json
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rasp_tuner.engine.budget import START_STEPS
from rasp_tuner.errors import InvalidValue, NoData, QueryFailed, SinkFailed, SnapshotFileError
from rasp_tuner.files import snapshot
from rasp_tuner.page.words import number_words, settings_words
from rasp_tuner.space import Params
from rasp_tuner.study_file.caller import StudyCaller
from rasp_tuner.study_file.journal import Journal
from rasp_tuner.watch.delivery import Delivery
from rasp_tuner.watch.memory import WatchMemory
from rasp_tuner.watch.messages import gain_words, status, step_words
from rasp_tuner.watch.step import Stepper
from rasp_tuner.watch.study import Mode, WatchStudy

log = logging.getLogger("rasp_tuner.watch")

WATCH_FOLDER = "rasp-watch"  # where studies live, unless said otherwise
HOW_TO_RESUME = "To try again, stop this and give the same command with --resume"
SLICE_S = 0.1  # after which a pause looks whether it is to end


class Stopped(Exception):
    """Somebody asked the program to end."""


@dataclass(frozen=True)
class Result:
    """How a session ended."""

    tried: int
    measured: int
    rolled_back: str  # why, or empty
    stopped: bool


def watch(
    study: WatchStudy,
    *,
    mode: Mode | None = None,
    steps: int | None = None,
    folder: Path | None = None,
    fresh: bool = False,
    resume: bool = False,
    stopping: Callable[[], bool] = lambda: False,
) -> Result:
    """Watch a study for so many steps, or until `stopping()`; goes on where an earlier session ended.

    A step that could not be measured counts as tried. `resume` ends a rollback.
    """
    chosen = mode or study.mode
    study.check_mode(chosen)
    place = folder or Path(WATCH_FOLDER) / study.name
    with Journal(place, study.to_json(), fresh, StudyCaller("rasp watch", name="name or --out")) as journal:
        session = _Session(study, chosen, WatchMemory(study, journal), stopping)
        session.begin(resume)
        try:
            while steps is None or session.tried < steps:
                session.step()
        except Stopped:
            log.info("stopping")
        finally:
            session.leave()
        return Result(session.tried, session.measured, session.memory.state.rolled_back, stopping())


class _Session:
    """One run of the program."""

    def __init__(self, study: WatchStudy, mode: Mode, memory: WatchMemory, stopping: Callable[[], bool]) -> None:
        self.study, self.mode, self.memory, self._stopping = study, mode, memory, stopping
        self.delivery = Delivery(memory, study.sinks_of(mode), mode)
        self.stepper = Stepper(study, mode, memory, self.delivery, self.pause)
        self.tried, self.measured = 0, 0
        self._latest: dict[str, Any] | None = None
        self._problem: str | None = None

    def pause(self, seconds: float) -> None:
        """Wait; Stopped if the program is to end."""
        deadline = time.monotonic() + seconds
        while not self._stopping():
            left = deadline - time.monotonic()
            if left <= 0.0:
                return
            time.sleep(min(left, SLICE_S))
        raise Stopped

    def begin(self, resume: bool) -> None:
        state = self.memory.state
        log.info("%s, mode %s, in %s", self.study.name, self.mode, self.memory.folder)
        if state.steps:
            log.info("going on after %d steps; last good: %s", state.steps, settings_words(state.good))
        if resume:
            self._resume()
        elif state.rolled_back:
            log.warning("ROLLED BACK: %s. The default runs and is watched. %s", state.rolled_back, HOW_TO_RESUME)
        self._write_status()

    def step(self) -> None:
        """One step; if it cannot be done, the reason in the log, and the last good parameters in place."""
        if self._stopping():
            raise Stopped
        self.tried += 1
        try:
            entry = self.stepper.run()
        except (NoData, QueryFailed, InvalidValue) as reason:
            if isinstance(reason, NoData) and reason.kind == "changed":  # nothing is wrong, and it took its time
                self._not_counted(str(reason), "")
            else:
                self._not_counted(str(reason), self._retreat())
                self.pause(self.study.window_s)
        except SinkFailed as reason:
            is_good = self.memory.state.in_place == self.memory.state.good
            self._not_counted(str(reason), "" if is_good else self._retreat())
            self.pause(self.study.window_s)
        else:
            self.measured += 1
            self._latest, self._problem = entry, None
            log.info("%s", step_words(entry, self.memory))
            self._roll_back_if_needed(entry)
        self._write_status()

    def leave(self) -> None:
        """Put in place what shall stay, and write down what was learned."""
        state = self.memory.state
        if self.mode != "shadow":
            target = dict(self.study.default) if self.study.on_exit == "default" else state.good
            try:
                self.delivery.put(target, last=True)
                log.info("left in place: %s%s", settings_words(target), self._warning(target))
            except SinkFailed as reason:
                log.error("the parameters to leave in place could not be handed over: %s", reason)
        if state.steps:
            log.info("%s", gain_words(self.memory, self.mode))
        try:
            self.memory.tuner.save(self.memory.folder / "tuner.rasp")
        except SnapshotFileError as reason:
            log.warning("%s; the journal has all of it", reason)
        self._write_status(stopped=True)
        log.info("%d steps are safe in %s; the same command goes on", state.steps, self.memory.journal.path)

    def _warning(self, params: Params) -> str:
        """What to know about parameters that nobody watches any more."""
        if params == self.study.default or not self.study.contexts:
            return ""
        return " (good where they ran last; in other situations the default may be better)"

    def _not_counted(self, reason: str, then: str) -> None:
        self._problem = reason
        ended = reason if reason.endswith(("?", ".")) else f"{reason}."
        log.warning("step not counted, nothing learned: %s", f"{ended} {then}".rstrip())

    def _retreat(self) -> str:
        """To the last good parameters, since nobody sees what others do; in words."""
        if self.mode == "shadow":
            return ""
        good = self.memory.state.good
        try:
            self.delivery.put(good)
        except SinkFailed as reason:
            return f"The last good parameters could not be put in place: {reason}"
        return f"In place are the last good parameters: {settings_words(good)}"

    def _roll_back_if_needed(self, entry: dict[str, Any]) -> None:
        state = self.memory.state
        if entry["role"] == "frozen" and entry["broken"]:
            log.warning("the default breaks limits, too: %s", "; ".join(entry["broken"].values()))
        if state.rolled_back or entry["role"] != "suggestion":
            return
        budget = self.memory.tuner.budget()
        reason = ""
        if state.broken_in_row >= self.study.violations:
            said = "; ".join(entry["broken"].values())
            reason = f"a limit was broken in {state.broken_in_row} steps one after the other ({said})"
        elif self.study.when_spent == "rollback" and budget is not None and budget.left <= state.spent_at:
            lost, won = number_words(budget.spent), number_words(budget.earned)
            reason = f"the budget is spent (exploring lost {lost} runs of the default, and won {won} back)"
        if reason:
            self.memory.write({"kind": "rollback", "reason": reason})
            then = self._retreat()
            log.error("ROLLED BACK: %s. %s. %s", reason, then, HOW_TO_RESUME)

    def _resume(self) -> None:
        if not self.memory.state.rolled_back:
            log.info("nothing is rolled back: --resume changes nothing")
            return
        budget = self.memory.tuner.budget()
        spent_at = 0.0
        if budget is not None and budget.left <= 0.0:
            spent_at = budget.left - budget.share * START_STEPS
            log.info("the budget is still spent: what is not known to be better waits until some was won back")
        self.memory.write({"kind": "resumed", "spent_at": spent_at})
        log.info("resumed: suggestions run again")

    def _write_status(self, stopped: bool = False) -> None:
        found = status(self.memory, self.study, self.mode, self._latest, self._problem, stopped)
        try:
            snapshot.write(self.memory.folder / "status.json", (json.dumps(found, indent=1) + "\n").encode())
        except SnapshotFileError as reason:
            log.warning("no status: %s", reason)
