"""Looks inside a window: whether a run is so bad that it should be ended before its window is over.

A look after a share f of the window sees v, measured over that part. If the rest were as the default, the window would
come to level + f (v - level): what the run has cost by then. It only grows while the run is worse than the default,
and its noise is less than that of a whole window. From the suggestion's stop on the run is ended (docs/STOPS.md).
"""

import logging
import time
from collections.abc import Callable, Mapping
from typing import NamedTuple

from rasp_tuner.errors import InvalidValue, NoData, QueryFailed
from rasp_tuner.optimizer.metric_table import beside_control
from rasp_tuner.tuner import Tuner
from rasp_tuner.types import Suggestion
from rasp_tuner.watch.reader import Reader
from rasp_tuner.watch.study import WatchStudy

log = logging.getLogger("rasp_tuner.watch")


class Ended(NamedTuple):
    """A run that was ended."""

    after_s: float  # of its window
    metrics: dict[str, float]  # what the window came to by then
    control: dict[str, float] | None


class WindowLooks:
    """Waits for windows, and looks inside them."""

    def __init__(self, study: WatchStudy, reader: Reader, pause: Callable[[float], None], by_instances: bool) -> None:
        self._study, self._reader, self._pause = study, reader, pause
        self._by_instances = by_instances

    def wait(self, suggestion: Suggestion | None, tuner: Tuner, level: float | None) -> Ended | None:
        """Wait for the end of the window; what a run had come to that should be ended before it.

        `level`: what the default is expected to give of the objective in this situation.
        """
        window_s, every_s = self._study.window_s, self._study.look_every_s
        began = time.monotonic()
        while suggestion is not None and suggestion.stop is not None and level is not None and every_s is not None:
            if time.monotonic() - began + every_s >= window_s:
                break
            self._pause(every_s)
            after_s = time.monotonic() - began
            ended = self._look(suggestion.id, tuner, level, min(after_s, window_s))
            if ended is not None:
                return ended
        self._pause(max(window_s - (time.monotonic() - began), 0.0))
        return None

    def _look(self, id: str, tuner: Tuner, level: float, after_s: float) -> Ended | None:
        """One look; None: go on, also where there is nothing to see yet."""
        name, share = self._study.objective, after_s / self._study.window_s
        try:
            metrics = self._reader.glance("canary" if self._by_instances else "query", after_s)
            control = self._reader.glance("control", after_s) if self._by_instances else None
        except (NoData, QueryFailed, InvalidValue) as reason:
            log.debug("a look inside the window saw nothing: %s", reason)
            return None
        beside = level if control is None else control[name]
        metrics = {**metrics, name: beside + share * (metrics[name] - beside)}
        if not tuner.should_stop(id, _in_this_situation(name, metrics, control, level)):
            return None
        return Ended(after_s, metrics, control)


def _in_this_situation(
    name: str, metrics: Mapping[str, float], control: Mapping[str, float] | None, level: float
) -> dict[str, float]:
    """The objective as it would be if the control instances had given what was expected."""
    return {name: metrics[name] if control is None else beside_control(metrics[name], control[name], level)}
