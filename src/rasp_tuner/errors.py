"""Every error the library raises on purpose. All derive from `RaspError` and from the builtin a caller would expect."""


class RaspError(Exception):
    """Base of all errors raised on purpose; catch it to catch them all."""


class InvalidSpace(RaspError, ValueError):
    """A knob, box, metric list, default or preset is ill-defined: nothing was built."""


class InvalidValue(RaspError, ValueError):
    """A context, metric or parameter value breaks a rule: nothing was learned."""


class UnknownSuggestion(RaspError, LookupError):
    """The id was never issued by this tuner."""


class ExpiredSuggestion(UnknownSuggestion):
    """The id was issued, but so many came after it that its record was dropped."""


class AlreadyAnswered(RaspError, ValueError):
    """The id was answered before: a suggestion is told once."""


class SnapshotError(RaspError, ValueError):
    """The bytes are not a snapshot this version can read."""


class SnapshotFileError(RaspError, OSError):
    """The snapshot file cannot be read or written."""


class MissingExtra(RaspError, ImportError):
    """An optional dependency is not installed; the message says which extra to install."""


class BudgetSpent(RaspError, RuntimeError):
    """To keep another context would give away more than the privacy budget allows: nothing was learned."""


class TuningStopped(RaspError, RuntimeError):
    """`rasp tune` or `rasp watch` cannot go on; what was measured is kept. The message says what to do."""


class JournalError(RaspError, OSError):
    """The journal of a study cannot be read or written; the message says how to go on."""


class QueryFailed(RaspError, RuntimeError):
    """Prometheus could not be reached, refused a query or answered nonsense: nothing was learned."""


class NoData(RaspError, LookupError):
    """A query was answered, but not with one number that can be used: nothing was learned.

    `kind` says why: "empty" (no series), "nan" (no finite number), "stale", "few" (samples), "several" (series) or
    "changed" (the situation, meanwhile).
    """

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


class SinkFailed(RaspError, OSError):
    """Parameters could not be handed to the system: they do not count as run."""
