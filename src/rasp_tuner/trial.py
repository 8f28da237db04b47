"""Trial: one ask and its answer around a block of code."""

from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Protocol

from rasp_tuner.errors import InvalidValue
from rasp_tuner.space import Params
from rasp_tuner.types import Suggestion


class Answers(Protocol):
    """Who learns what came of a suggestion: a tuner."""

    def tell(
        self,
        id: str,
        metrics: Mapping[str, float],
        params: Mapping[str, object] | None = None,
        *,
        stopped: bool = False,
    ) -> None: ...

    def tell_failed(self, id: str, reason: str = "", params: Mapping[str, object] | None = None) -> None: ...

    def should_stop(self, id: str, partial: Mapping[str, float]) -> bool: ...


class Trial:
    """What `with tuner.trial(context) as t:` gives: settings to run, and a place to report what came of them.

    The tuner learns when the block ends: what was reported, or, if the block raises an exception, that these settings
    failed; the exception goes on. After Ctrl-C the suggestion waits, for nobody knows what would have come of it.
    """

    def __init__(self, ask: Callable[[], Suggestion], answers: Answers) -> None:
        self._ask, self._answers = ask, answers
        self._suggestion: Suggestion | None = None
        self._metrics: dict[str, float] | None = None
        self._ran: Mapping[str, object] | None = None
        self._partial: dict[str, float] | None = None  # at which the run should end

    @property
    def id(self) -> str:
        return self._running().id

    @property
    def params(self) -> Params:
        """The settings to run."""
        return self._running().params

    @property
    def stop(self) -> float | None:
        """The value of the metric from which on the run should be ended; None: let it run."""
        return self._running().stop

    @property
    def stopped(self) -> bool:
        """Whether the run is told as ended: a `check` said so, and nothing was reported since."""
        return self._partial is not None

    def check(self, partial: Mapping[str, float] | None = None, /, **named: float) -> bool:
        """Whether the run should be ended, by what it came to so far: `if t.check(time_s=spent): break`.

        Once it says so, the block is told as stopped at these values, unless it reports others.
        """
        so_far = {**(partial or {}), **named}
        if not self._answers.should_stop(self.id, so_far):
            return False
        self._partial = so_far
        return True

    def report(
        self, metrics: Mapping[str, float] | None = None, /, *, ran: Mapping[str, object] | None = None, **named: float
    ) -> None:
        """What came of them, by name or as a mapping; of several reports the last value of each metric counts.

        `ran` says what really ran, for a system that clips or rounds settings.
        """
        self._running()
        self._partial = None
        self._metrics = {**(self._metrics or {}), **(metrics or {}), **named}
        self._ran = ran if ran is not None else self._ran

    def __enter__(self) -> "Trial":
        if self._suggestion is not None:
            raise InvalidValue("a trial is one run: call tuner.trial(context) again for the next")
        self._suggestion = self._ask()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        id = self.id
        if isinstance(error, Exception):
            self._answers.tell_failed(id, f"{type(error).__name__}: {error}", self._ran)
        elif error is None:
            if self._partial is not None:
                self._answers.tell(id, {**(self._metrics or {}), **self._partial}, self._ran, stopped=True)
                return
            if self._metrics is None:
                raise InvalidValue(
                    f"the block of trial {id!r} reported nothing: call t.report(p99_ms=...) in it, or answer later with"
                    f" tuner.tell({id!r}, ...)"
                )
            self._answers.tell(id, self._metrics, self._ran)

    def _running(self) -> Suggestion:
        if self._suggestion is None:
            raise InvalidValue("a trial begins with its block: with tuner.trial(context) as t: ...")
        return self._suggestion
