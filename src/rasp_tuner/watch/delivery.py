"""Delivery: parameters to all sinks, or to none: where one fails, the others get back what they had."""

import logging
from collections.abc import Sequence

from rasp_tuner.errors import JournalError, SinkFailed
from rasp_tuner.page.words import settings_words
from rasp_tuner.space import Params
from rasp_tuner.watch.memory import WatchMemory
from rasp_tuner.watch.sinks import Sink

log = logging.getLogger("rasp_tuner.watch")


class Delivery:
    """Knows what is in place, and changes it."""

    def __init__(self, memory: WatchMemory, sinks: Sequence[Sink], mode: str) -> None:
        self._memory, self._sinks, self._mode = memory, sinks, mode
        self._sure = False  # in this session: the system may have been changed since the last one

    def put(self, params: Params, last: bool = False) -> bool:
        """Hand parameters over; False if they were in place already. SinkFailed: they are not in place.

        With `last`, which leaves good ones behind, also where the journal cannot be written any more.
        """
        before = self._memory.state.in_place
        if self._sure and before == params:
            return False
        try:
            self._note(params)
        except JournalError:
            if not last:
                raise
            log.warning("%s is handed over, but the journal does not say so", settings_words(params))
        done: list[Sink] = []
        try:
            for sink in self._sinks:
                done.append(sink)
                sink.deliver(params)
        except SinkFailed as reason:
            self._sure = False
            said = str(reason) if str(reason).endswith("?") else f"{reason}."
            raise SinkFailed(f"{said} {self._put_back(done, before)}") from reason
        self._sure = True
        return True

    def _put_back(self, sinks: Sequence[Sink], params: Params | None) -> str:
        """Undo a delivery that failed half way; what came of it, in words."""
        if params is None:
            self._memory.write({"kind": "unknown"})
            return "What runs now is not known"
        try:
            for sink in sinks[:-1]:  # the last one failed, and is taken to be as it was
                sink.deliver(params)
        except SinkFailed as reason:
            self._memory.write({"kind": "unknown"})
            return f"To put back {settings_words(params)} failed, too: {reason}. What runs now is not known"
        self._note(params)
        return f"The parameters stay at {settings_words(params)}"

    def _note(self, params: Params) -> None:
        if self._memory.state.in_place != params or self._memory.state.in_place_mode != self._mode:
            self._memory.write({"kind": "applying", "params": params, "mode": self._mode})
