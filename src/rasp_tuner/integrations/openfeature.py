"""RaspProvider: tuners, or the studies of a server, as flags of OpenFeature (docs/OPENFEATURE.md).

The key of a flag is a name, whose value is an object with all knobs, or `name.knob`. `track` tells what came of it.
"""

import asyncio
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any, TypeVar

from rasp_tuner.base.checks import number, show
from rasp_tuner.client import Client, ServerUnavailable, Study, UnknownStudy
from rasp_tuner.errors import InvalidSpace, InvalidValue, MissingExtra, RaspError
from rasp_tuner.feature_flags import AS_DEFAULT, FLAG_LEASE_S, MOST_LEASES, VALUE, outcome, readings
from rasp_tuner.tuner import Tuner

try:
    from openfeature.evaluation_context import EvaluationContext
    from openfeature.exception import (
        FlagNotFoundError,
        GeneralError,
        InvalidContextError,
        OpenFeatureError,
        TargetingKeyMissingError,
        TypeMismatchError,
    )
    from openfeature.flag_evaluation import FlagResolutionDetails, FlagValueType, Reason
    from openfeature.provider import AbstractProvider, Metadata
    from openfeature.track import TrackingEventDetails
except ModuleNotFoundError as reason:
    raise MissingExtra(
        "RaspProvider needs openfeature-sdk, which is not installed: pip install 'rasp-tuner[openfeature]'"
    ) from reason

from rasp_tuner.integrations.openfeature_flags import Evaluation, LeasedFlag, StudyFlag, TunerFlag

T = TypeVar("T")
TRY_SERVER_AGAIN_S = 5.0  # after a server did not answer: a program that starts without it does not wait for every flag
FLUSH_S = 5.0  # for what was tracked, when a provider ends
ObjectValue = Sequence[FlagValueType] | Mapping[str, FlagValueType]


Resolved = Callable[..., FlagResolutionDetails[T]]


def _resolver(wanted: str, *kinds: type) -> Resolved[Any]:
    """The method of a provider that gives a flag of these types."""

    def typed(key: str, value: object) -> object:
        if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
            raise TypeMismatchError(f"flag {show(key)} is not {wanted} but {show(value)}")
        return float(value) if isinstance(value, int) and float in kinds else value

    def resolve(
        self: "RaspProvider", flag_key: str, default_value: T, evaluation_context: EvaluationContext | None = None
    ) -> FlagResolutionDetails[Any]:
        return self._resolve(flag_key, default_value, evaluation_context, typed)

    return resolve


def _in_thread(resolve: Resolved[T]) -> Callable[..., Coroutine[Any, Any, FlagResolutionDetails[T]]]:
    async def resolve_async(*arguments: Any, **named: Any) -> FlagResolutionDetails[T]:
        return await asyncio.to_thread(resolve, *arguments, **named)

    return resolve_async


class RaspProvider(AbstractProvider):
    """Parameters as flags; wrong or missing ones are errors of OpenFeature, and the caller's default is used.

    source    tuners and studies by the name of their flag, or a client: then every study of its server is a flag
    lease_s   seconds for which a targeting key keeps its suggestion, unless its outcome is told before

    A tuner must be used by this provider alone while it is set. With a client, parameters stay at the latest good ones
    while the server is away, and what is tracked meanwhile is sent later.
    """

    def __init__(self, source: Mapping[str, Tuner | Study] | Client, *, lease_s: float = FLAG_LEASE_S) -> None:
        super().__init__()
        self._lease_s = number("lease_s", lease_s, InvalidSpace)
        if self._lease_s <= 0.0:
            raise InvalidSpace(f"lease_s must be above 0, got {show(lease_s)}")
        self._client = source if isinstance(source, Client) else None
        self._flags: dict[str, LeasedFlag] = {}
        self._try_again_at = 0.0  # monotonic, to open studies
        self._found: dict[str, tuple[LeasedFlag, str | None]] = {}  # by key
        if self._client is not None:
            return
        if not isinstance(source, Mapping) or not source:
            raise InvalidSpace(f"source must be a client, or tuners and studies by name, got {show(source)}")
        for name, given in source.items():
            if not isinstance(name, str) or not name or not isinstance(given, Tuner | Study):
                raise InvalidSpace(f"source[{name!r}] must be a Tuner or a Study under a text, got {show(given)}")
            source_of = TunerFlag(given) if isinstance(given, Tuner) else StudyFlag(given)
            self._flags[name] = LeasedFlag(name, source_of, self._lease_s)

    def get_metadata(self) -> Metadata:
        return Metadata(name="RASP-Tuner")

    def shutdown(self) -> None:
        """Send what was tracked and waits, within a few seconds."""
        until = time.monotonic() + FLUSH_S
        for flag in list(self._flags.values()):
            flag.source.flush(max(until - time.monotonic(), 0.0))

    def track(
        self,
        tracking_event_name: str,
        evaluation_context: EvaluationContext | None = None,
        tracking_event_details: TrackingEventDetails | None = None,
    ) -> None:
        """Tell what came of a suggestion; an event is called after its flag, or `flag.metric`.

        Of one metric the details have `value`, of several each by its name; `failed` says why there is none. `variant`
        names the suggestion; without it, it is that of the targeting key. The same event twice counts once. Errors of
        OpenFeature say what is wrong, and nothing is learned then.
        """
        details: dict[str, Any] = dict(tracking_event_details.attributes) if tracking_event_details else {}
        if tracking_event_details is not None and tracking_event_details.value is not None:
            details[VALUE] = tracking_event_details.value
        key = None if evaluation_context is None else evaluation_context.targeting_key
        with _Errors(GeneralError):
            flag, metric = self._find(tracking_event_name)
            try:
                told = outcome(flag.source.metrics(), metric, details)
            except InvalidValue:
                flag.source.read_again()
                raise
            if told.variant is None and not key:
                raise TargetingKeyMissingError(
                    "say which suggestion: give variant in the details, or a targeting key in the context"
                )
            flag.track(key, told)

    resolve_boolean_details: Resolved[bool] = _resolver("a boolean", bool)
    resolve_string_details: Resolved[str] = _resolver("a text", str)
    resolve_integer_details: Resolved[int] = _resolver("a whole number", int)
    resolve_float_details: Resolved[float] = _resolver("a number", int, float)
    resolve_object_details: Resolved[ObjectValue] = _resolver("an object", dict)
    resolve_boolean_details_async = _in_thread(resolve_boolean_details)
    resolve_string_details_async = _in_thread(resolve_string_details)
    resolve_integer_details_async = _in_thread(resolve_integer_details)
    resolve_float_details_async = _in_thread(resolve_float_details)
    resolve_object_details_async = _in_thread(resolve_object_details)

    def _resolve(
        self, key: str, default: Any, context: EvaluationContext | None, typed: Callable[[str, object], object]
    ) -> FlagResolutionDetails[Any]:
        seen = context or EvaluationContext()
        with _Errors(InvalidContextError):
            flag, knob = self._find(key)
            if knob is not None and flag.source.lacks_knob(knob):
                flag.source.read_again()
                if not flag.source.has_knob(knob):
                    raise _not_found(key)
            found = self._evaluated(flag, seen)
            params = found.suggestion.params
            value = params if knob is None else params.get(knob)
            if knob is not None and knob not in params and not flag.source.has_knob(knob):
                raise _not_found(key)
        if value is None:  # null, or a knob that does not exist now: OpenFeature has no such value
            return _details(flag, knob, found, default, AS_DEFAULT)
        return _details(flag, knob, found, typed(key, value), found.reason)

    def _evaluated(self, flag: LeasedFlag, seen: EvaluationContext) -> Evaluation:
        try:
            return flag.evaluate(seen.targeting_key, seen.attributes)
        except UnknownStudy:
            if self._client is not None:  # it was deleted, and there may be another of its name one day
                self._flags.pop(flag.name, None)
                self._found.clear()
            raise

    def _find(self, key: str) -> tuple[LeasedFlag, str | None]:
        """The flag that a key begins with, the longest that there is, and what follows it."""
        if (known := self._found.get(key)) is not None:
            return known
        for name, rest in readings(key):
            flag = self._flags.get(name) or self._open(name)
            if flag is not None:
                if len(self._found) < MOST_LEASES:
                    self._found[key] = flag, rest
                return flag, rest
        raise _not_found(key)

    def _open(self, name: str) -> LeasedFlag | None:
        """The flag of a study of the server; None if there is none."""
        if self._client is None:
            return None
        if time.monotonic() < self._try_again_at:
            raise GeneralError(f"the server of flag {show(name)} did not answer just now")
        try:
            study = self._client.study(name)
        except UnknownStudy:
            return None
        except ServerUnavailable:
            self._try_again_at = time.monotonic() + TRY_SERVER_AGAIN_S
            raise
        return self._flags.setdefault(name, LeasedFlag(name, StudyFlag(study, study.view()), self._lease_s))


class _Errors:
    """Turns errors of the library into those of OpenFeature; a wrong value is one of this kind."""

    def __init__(self, for_values: type[InvalidContextError] | type[GeneralError]) -> None:
        self._for_values = for_values

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: object) -> None:
        if isinstance(error, UnknownStudy):
            raise FlagNotFoundError(str(error)) from error
        if isinstance(error, InvalidValue):
            raise self._for_values(str(error)) from error
        if isinstance(error, RaspError):
            raise GeneralError(str(error)) from error


def _not_found(key: str) -> OpenFeatureError:
    return FlagNotFoundError(f"no flag {show(key)}: a key is the name of a tuner or study, or name.knob")


def _details(flag: LeasedFlag, knob: str | None, found: Evaluation, value: T, reason: str) -> FlagResolutionDetails[T]:
    metadata: dict[str, bool | int | float | str] = {"study": flag.name, "leaseUntil": found.until}
    if knob is not None:
        metadata["knob"] = knob
    return FlagResolutionDetails(
        value=value, reason=Reason(reason), variant=found.suggestion.id, flag_metadata=metadata
    )
