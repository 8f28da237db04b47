"""Study: one study of a server, used like a Tuner."""

from collections.abc import Iterator
from typing import Any

from rasp_tuner.client.async_study import AsyncStudy
from rasp_tuner.client.blocking import Blocking, blocking
from rasp_tuner.trial import Trial
from rasp_tuner.tuner import Context


class Study(Blocking[AsyncStudy]):
    """The calls of AsyncStudy, which wait for their answers; thread-safe. Made by `Client.create` and `Client.study`.

    `ask` and `recommend` answer within `ask_deadline` seconds whatever the server does: from the server, else with the
    latest known recommendation for about the same context, else with the default. All other calls are retried until the
    client's timeout is over, and then raise ServerUnavailable.
    """

    def __repr__(self) -> str:
        return repr(self._own).replace("AsyncStudy", "Study", 1)

    @property
    def name(self) -> str:
        return self._own.name

    @property
    def asks(self) -> int:
        """How many asks were answered, by the server or without it."""
        return self._own.asks

    @property
    def fallbacks(self) -> int:
        """How many of them without the server."""
        return self._own.fallbacks

    @property
    def scales(self) -> dict[str, str]:
        """On which scale each metric is compared now: "linear" or "log"."""
        return self._thread.run(self._own.scales())

    ask = blocking(AsyncStudy.ask)
    ask_batch = blocking(AsyncStudy.ask_batch)
    should_stop = blocking(AsyncStudy.should_stop)
    tell = blocking(AsyncStudy.tell)
    tell_later = blocking(AsyncStudy.tell_later)
    tell_failed = blocking(AsyncStudy.tell_failed)
    tell_failed_later = blocking(AsyncStudy.tell_failed_later)
    tell_batch = blocking(AsyncStudy.tell_batch)
    flush = blocking(AsyncStudy.flush)
    observe = blocking(AsyncStudy.observe)
    tell_sums = blocking(AsyncStudy.tell_sums)
    policy = blocking(AsyncStudy.policy)
    recommend = blocking(AsyncStudy.recommend)
    margins = blocking(AsyncStudy.margins)
    what_if = blocking(AsyncStudy.what_if)
    explain = blocking(AsyncStudy.explain)
    freeze = blocking(AsyncStudy.freeze)
    unfreeze = blocking(AsyncStudy.unfreeze)
    waiting = blocking(AsyncStudy.waiting)
    approve = blocking(AsyncStudy.approve)
    refuse = blocking(AsyncStudy.refuse)
    view = blocking(AsyncStudy.view)
    budget = blocking(AsyncStudy.budget)
    versus_default = blocking(AsyncStudy.versus_default)
    situations = blocking(AsyncStudy.situations)
    suggestions = blocking(AsyncStudy.suggestions)
    suggestion = blocking(AsyncStudy.suggestion)
    history = blocking(AsyncStudy.history)
    delete = blocking(AsyncStudy.delete)

    def trial(self, context: Context = None) -> Trial:
        """One ask and its answer around a block, as `Tuner.trial`; `t.check(...)` asks the server."""
        return Trial(lambda: self.ask(context), self)

    def live(self) -> Iterator[dict[str, Any]]:
        """The latest step, each time there is a new one, at most five a second; ends when the server stops."""
        return self._thread.each(self._own.live_groups())

    def export(self) -> Iterator[str]:
        """The lines of the study's whole log, for `Client.import_study`; ServerUnavailable if it breaks off."""
        return self._thread.each(self._own.export_groups())

    def forget(self, *, timeout: float = 600.0, **which: Any) -> dict[str, Any]:
        """Erase records, in files too; see `AsyncStudy.forget`."""
        return self._thread.run(self._own.forget(timeout=timeout, **which))
