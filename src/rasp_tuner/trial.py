"""Trial: one ask and its answer around a block of code."""

from collections.abc import Awaitable, Callable, Mapping
from types import TracebackType
from typing import Any, Protocol

from rasp_tuner.base.checks import number
from rasp_tuner.errors import InvalidValue
from rasp_tuner.space import Params
from rasp_tuner.types import Suggestion

Given = Mapping[str, object] | None
Told = Mapping[str, float] | None


class Answers(Protocol):
    """Who learns what came of a suggestion: a tuner, or a study of a server; its answers may be awaited."""

    def tell(
        self,
        id: str,
        metrics: Mapping[str, float],
        params: Given = None,
        *,
        stopped: bool = False,
        control: Told = None,
    ) -> Any: ...

    def tell_failed(self, id: str, reason: str = "", params: Given = None) -> Any: ...

    def should_stop(self, id: str, partial: Mapping[str, float]) -> Any: ...


def _numbers(field: str, given: Mapping[str, float]) -> dict[str, float]:
    return {name: number(f"{field}[{name!r}]", value) for name, value in given.items()}


class Block:
    """What is known of a trial while its block runs."""

    def __init__(self, answers: Answers) -> None:
        self._answers = answers
        self._suggestion: Suggestion | None = None
        self._metrics: dict[str, float] | None = None
        self._ran: Given = None
        self._control: Told = None
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

    def report(self, metrics: Told = None, /, *, ran: Given = None, control: Told = None, **named: float) -> None:
        """What came of them, by name or as a mapping; of several reports the last value of each metric counts.

        `ran` says what really ran, for a system that clips or rounds settings; `control` what the default gave at the
        same time. A metric of one of these names is reported in a mapping. What is no number is refused here.
        """
        self._running()
        told = _numbers("metrics", {**(metrics or {}), **named})
        self._control = self._control if control is None else _numbers("control", control)
        self._partial = None
        self._metrics = {**(self._metrics or {}), **told}
        self._ran = ran if ran is not None else self._ran

    def _begin(self, suggestion: Suggestion) -> None:
        self._suggestion = suggestion

    def _check_new(self) -> None:
        if self._suggestion is not None:
            raise InvalidValue("a trial is one run: call tuner.trial(context) again for the next")

    def _running(self) -> Suggestion:
        if self._suggestion is None:
            raise InvalidValue("a trial begins with its block: with tuner.trial(context) as t: ...")
        return self._suggestion

    def _end(self, error: BaseException | None) -> Any:
        """Tell what came of it; nothing after Ctrl-C, for nobody knows what would have come of it."""
        if isinstance(error, Exception):
            return self._answers.tell_failed(self.id, f"{type(error).__name__}: {error}", self._ran)
        if error is not None:
            return None
        if self._metrics is None and self._partial is None:
            raise InvalidValue(
                f"the block of trial {self.id!r} reported nothing: call t.report(p99_ms=...) in it, or answer later"
                f" with tuner.tell({self.id!r}, ...)"
            )
        metrics = {**(self._metrics or {}), **(self._partial or {})}
        return self._answers.tell(self.id, metrics, self._ran, stopped=self.stopped, control=self._control)


class Trial(Block):
    """What `with tuner.trial(context) as t:` gives: settings to run, and a place to report what came of them.

    The tuner learns when the block ends: what was reported, or, if the block raises an exception, that these settings
    failed; the exception goes on. After Ctrl-C the suggestion waits.
    """

    def __init__(self, ask: Callable[[], Suggestion], answers: Answers) -> None:
        super().__init__(answers)
        self._ask = ask

    def check(self, partial: Mapping[str, float] | None = None, /, **named: float) -> bool:
        """Whether the run should be ended, by what it came to so far: `if t.check(time_s=spent): break`.

        Once it says so, the block is told as stopped at these values, unless it reports others.
        """
        so_far = {**(partial or {}), **named}
        if not self._answers.should_stop(self.id, so_far):
            return False
        self._partial = so_far
        return True

    def __enter__(self) -> "Trial":
        self._check_new()
        self._begin(self._ask())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end(error)


class AsyncTrial(Block):
    """The same for `async with`; a `check` is awaited."""

    def __init__(self, ask: Callable[[], Awaitable[Suggestion]], answers: Answers) -> None:
        super().__init__(answers)
        self._ask = ask

    async def check(self, partial: Mapping[str, float] | None = None, /, **named: float) -> bool:
        so_far = {**(partial or {}), **named}
        if not await self._answers.should_stop(self.id, so_far):
            return False
        self._partial = so_far
        return True

    async def __aenter__(self) -> "AsyncTrial":
        self._check_new()
        self._begin(await self._ask())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        told = self._end(error)
        if told is not None:
            await told
