"""Signs of life: one line that is redrawn on a terminal, a line now and then elsewhere."""

import math
import shutil
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TextIO

from rasp_tuner.base.checks import printable
from rasp_tuner.gain.versus_default import LARGEST_LOG
from rasp_tuner.page.words import duration_words, listed, number_words, settings_words
from rasp_tuner.tune.knob_shares import FEWEST_ROUNDS, MOST_KNOBS
from rasp_tuner.tune.loop import Run, Session
from rasp_tuner.tune.paired_comparison import pairs_each
from rasp_tuner.tune.playoff import MOST_INPUTS, ROUNDS, Standing, best_measured
from rasp_tuner.tune.situations import cases_of
from rasp_tuner.tune.study import StopRules, TuneStudy
from rasp_tuner.tune.verdict import goals_of, is_upwards

LINE_EVERY_S = 30.0  # where nobody watches
MOST_NAMED = 4  # inputs on one line
TIMES = " times the default"
RECENT_RUNS = 20  # from which the time left is computed


class Progress:
    """Writes to a stream, by default stderr; `quiet` writes nothing."""

    def __init__(self, stream: TextIO | None = None, quiet: bool = False) -> None:
        self._stream = stream if stream is not None else sys.stderr
        self._quiet = quiet
        self._live = not quiet and self._stream.isatty()
        self._last = 0.0
        self._drawn = False
        self._phase, self._began, self._begun_with = "", 0.0, 0

    def say(self, text: str) -> None:
        """A line that stays."""
        if not self._quiet:
            self.close()
            self._stream.write("".join(f"{printable(line)}\n" for line in text.split("\n")))  # it may quote a program
            self._stream.flush()

    def step(self, session: Session, limits: StopRules) -> None:
        """The line after a step of tuning."""
        runs = len(session.runs)
        first = runs - session.resumed == 1
        self._show(lambda: step_words(session, limits), first or session.is_over(limits))

    def play_off(self, done: int, total: int) -> None:
        """The line before a round of the play-off."""
        left = self._left("play-off", done, total)
        then = "; then the knobs and the final pairs"
        self._show(lambda: f"play-off of the best settings: round {done + 1} of {total}{left}{then}", done == 0)

    def knobs(self, input: int, total: int) -> None:
        """The line before a round that tells which knobs matter."""
        where = f" on input {input + 1} of {total}" if total > 1 else ""
        self._show(lambda: f"which of the changed knobs matter{where}; then the final pairs", False)

    def pair(self, done: int, total: int) -> None:
        """The line before a pair of the final comparison."""
        left = self._left("pairs", done, total)
        self._show(lambda: f"comparing with the default: pair {done + 1} of {total}{left}", done == 0)

    def _left(self, phase: str, done: int, total: int) -> str:
        """How long a phase still takes, by what was done of it since it began here; empty at its beginning."""
        now = time.monotonic()
        if self._phase != phase:
            self._phase, self._began, self._begun_with = phase, now, done
        if done == self._begun_with:
            return ""
        return f" · {duration_words((now - self._began) / (done - self._begun_with) * (total - done))} left"

    def _show(self, text: Callable[[], str], important: bool) -> None:
        if self._quiet:
            return
        now = time.monotonic()
        if self._live:
            width = shutil.get_terminal_size().columns - 1
            line = printable(text())
            self._stream.write("\r\x1b[K" + (line if len(line) <= width else f"{line[: width - 1]}…"))
            self._stream.flush()
            self._drawn = True
        elif important or now - self._last >= LINE_EVERY_S:
            self._stream.write(f"{printable(text())}\n")
            self._stream.flush()
            self._last = now

    def close(self) -> None:
        """Leave a clean line behind."""
        if self._drawn:
            self._stream.write("\r\x1b[K")
            self._stream.flush()
            self._drawn = False


def step_words(session: Session, limits: StopRules) -> str:
    """Where a study stands, on one line."""
    runs = session.runs
    parts = [f"step {len(runs)}" + (f"/{limits.steps}" if limits.steps else "")]
    if session.study.budget is None:
        parts.append(best_so_far(session))
    else:  # on a live system, what runs on the way counts
        found = session.tuner.versus_default()
        parts.append(f"against the default: {'not known yet' if found is None else found.gain}")
    if failed := sum(run.metrics is None for run in runs):
        parts.append(f"{failed} failed")
    if stopped := sum(run.stopped for run in runs):
        parts.append(f"{stopped} stopped early")
    spent = duration_words(session.spent_s)
    if limits.time_s is not None:
        spent += f" of {duration_words(limits.time_s)}"
    parts.append(f"{spent} spent")
    left = seconds_left(session, limits)
    if left is not None:
        parts.append(f"{duration_words(left)} left")
    after = seconds_after(session, limits)
    if after:
        ends = session.is_over(limits)
        parts[-1] = f"{'searched, now' if ends else f'{parts[-1]}, then'} about {duration_words(after)} to compare"
    return " · ".join(parts)


def seconds_left(session: Session, limits: StopRules) -> float | None:
    """How long tuning will go on, as far as can be told."""
    guesses = []
    if limits.steps is not None and (each := _step_seconds(session.runs)) is not None:
        guesses.append(each * max(0, limits.steps - len(session.runs)))
    if limits.time_s is not None:
        guesses.append(max(0.0, limits.time_s - session.spent_s))
    return min(guesses) if guesses else None


def seconds_after(session: Session, limits: StopRules) -> float:
    """How long the play-off and the comparison will take, if every run takes as long as the default."""
    usual = [run.seconds for run in session.runs if run.is_control and run.metrics]
    each = sum(usual) / len(usual) if usual else 0.0
    return each * comparison_runs(session.study, limits.final_pairs, len(session.inputs))


def comparison_runs(study: TuneStudy, final_pairs: int | None, inputs: int) -> int:
    """Runs of the play-off, of the look at which knobs matter, and of the final pairs, as a rule at most."""
    if final_pairs == 0:
        return 0
    situations = max(1, min(inputs, MOST_INPUTS))
    checks = 4 * ROUNDS + FEWEST_ROUNDS * min(len(study.knobs), MOST_KNOBS)
    return situations * (2 * pairs_each(situations, final_pairs) + checks) * (study.warmup + study.repeats)


def _step_seconds(runs: Sequence[Run]) -> float | None:
    """Mean time of the latest steps, with all that is around a run."""
    recent = runs[-RECENT_RUNS:]
    if not recent:
        return None
    before = runs[-len(recent) - 1].spent_s if len(runs) > len(recent) else 0.0
    return (recent[-1].spent_s - before) / len(recent)


def best_so_far(session: Session) -> str:
    """The best that was measured, as times the default, in the situation of the latest run or on each input."""
    cases = [case for case in cases_of(session) if case.input is not None or case == cases_of(session)[-1]]
    found = [(case.input, best) for case in cases if (best := best_measured(session, case)) is not None]
    if not found:
        return "nothing measured yet"
    if not any(is_gain(session, best) for _, best in found):
        return "nothing better than the default so far"
    said = [standing_words(session, best) for _, best in found]
    if len(found) == 1:
        _, best = found[0]
        moved = {name: value for name, value in best.params.items() if value != session.study.default.get(name)}
        colon = ":" if factor_of(session, best) is None else ""
        return f"best so far{colon} {said[0]} ({settings_words(moved)})"
    head = "best so far:"
    if all(factor_of(session, best) is not None for _, best in found):
        head, said = "best so far, times the default:", [one.removesuffix(TIMES) for one in said]
    each = [f"{Path(str(input)).name} {words}" for (input, _), words in zip(found, said, strict=True)]
    return f"{head} {listed(each, MOST_NAMED)}"


def factor_of(session: Session, best: Standing) -> float | None:
    """What is improved as times the default's, in two digits: 0.25 is a quarter; None where that makes no sense."""
    goals = goals_of(session.study.metrics)
    if best.usual is None:
        return None
    if len(goals) > 1:
        return float(f"{math.exp(min(best.cost, LARGEST_LOG)):.2g}")
    own, usual = (side[session.study.objective] for side in (best.metrics, best.usual))
    return float(f"{own / usual:.2g}") if own > 0.0 and usual > 0.0 else None


def is_gain(session: Session, best: Standing) -> bool:
    """Whether a setting came out better than the default, in two digits."""
    factor = factor_of(session, best)
    if factor is None:
        return best.usual is None or best.cost < 0.0
    return factor > 1.0 if is_upwards(goals_of(session.study.metrics)) else factor < 1.0


def standing_words(session: Session, best: Standing) -> str:
    """How a setting did: "0.25 times the default"."""
    factor, goal = factor_of(session, best), session.study.objective
    if factor is not None:
        return f"{number_words(factor)}{TIMES}"
    own = f"{goal} {number_words(best.metrics[goal])}"
    if best.usual is None:
        return f"{own}; every run of the default failed"
    return f"{own}, with the default {number_words(best.usual[goal])}"
