"""Numbers, durations and settings as people write them."""

from collections.abc import Mapping, Sequence

from rasp_tuner.space import Auto, Categorical, Float, Int, Knob, PowerOfTwo, Value

MOST_CHOICES_SAID = 40
TIMES_FROM = 3.0  # ratio to the default from which on it is told as "3 times" and not as "200% more"


def number_words(x: float) -> str:
    """Three digits, without an exponent where that is readable.

    >>> [number_words(x) for x in (0.012345, 3.14159, 1234567.0, 42.0, 0)]
    ['0.0123', '3.14', '1,234,567', '42', '0']
    """
    if x == int(x) if abs(x) < 1e15 else False:
        return f"{int(x):,}"
    return f"{x:,.0f}" if 1000 <= abs(x) < 1e9 else f"{x:.3g}"


def counted(count: float, noun: str) -> str:
    """So many of something.

    >>> counted(1, "run"), counted(1200.4, "run")
    ('1 run', '1,200 runs')
    """
    return f"{round(count):,} {noun}{'s' * (round(count) != 1)}"


def listed(names: Sequence[str], most: int = 5) -> str:
    """The first few names, and how many more there are.

    >>> listed(["a", "b"], 2), listed(["a", "b", "c", "d"], 2)
    ('a, b', 'a, b and 2 more')
    """
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")


def times_words(ratio: float) -> str:
    """A ratio to the default that is too large for percent.

    >>> times_words(21.3), times_words(3.0), times_words(183245.0)
    ('21 times', '3 times', '180,000 times')
    """
    return f"{number_words(float(f'{ratio:.2g}'))} times"


def duration_words(seconds: float) -> str:
    """A duration in one or two units.

    >>> [duration_words(s) for s in (0.25, 7.2, 75, 3700)]
    ['0.25s', '7s', '1m15s', '1h01m']
    """
    if seconds < 1:
        return f"{seconds:.2g}s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole}s"
    if whole < 3600:
        return f"{whole // 60}m{whole % 60:02d}s"
    return f"{whole // 3600}h{whole % 3600 // 60:02d}m"


def settings_words(params: Mapping[str, Value]) -> str:
    """Settings on one line.

    >>> settings_words({"threads": 4, "ratio": 0.123456789, "codec": "zstd"})
    'threads=4 ratio=0.123457 codec=zstd'
    """
    return " ".join(f"{name}={value_words(value)}" for name, value in params.items())


def value_words(value: Value) -> str:
    """A knob's value."""
    return f"{value:.6g}" if isinstance(value, float) else "(none)" if value == "" else str(value)


def range_words(knob: Knob) -> str:
    """The values that a knob may have.

    >>> range_words(Int(1, 32, log=True)), range_words(Categorical(["lz4", "zstd"], when={"compress": [True]}))
    ('whole numbers from 1 to 32, on a log scale', 'lz4 or zstd; only if compress is true')
    """
    if isinstance(knob, Auto):
        told = f"{_choice_words(knob.word)}, or {range_words(knob.knob)}"
    elif isinstance(knob, Categorical):
        texts = [_choice_words(value) for value in knob.choices]
        more = len(texts) - MOST_CHOICES_SAID
        texts = texts if more <= 0 else [*texts[:MOST_CHOICES_SAID], f"{more} more"]
        told = f"{', '.join(texts[:-1])} or {texts[-1]}"
        told += ", in this order" if knob.ordered and len(texts) > 2 else ""
    else:
        kind = {Int: "whole numbers", Float: "numbers", PowerOfTwo: "powers of two"}[type(knob)]
        step = getattr(knob, "step", None)
        every = f", in steps of {step:g}" if step is not None and step != 1 else ""
        scale = ", on a log scale" if getattr(knob, "log", False) else ""
        told = f"{kind} from {knob.low:g} to {knob.high:g}{every}{scale}"
    conditions = [f"{name} is {' or '.join(map(_choice_words, own))}" for name, own in (knob.when or {}).items()]
    return f"{told}; only if {' and '.join(conditions)}" if conditions else told


def _choice_words(value: Value) -> str:
    return str(value).lower() if value is None or isinstance(value, bool) else value_words(value)
