"""Numbers, durations and settings as people write them."""

from collections.abc import Mapping

from rasp_tuner.space import Value


def number_words(x: float) -> str:
    """Three digits, without an exponent where that is readable.

    >>> [number_words(x) for x in (0.012345, 3.14159, 1234567.0, 42.0, 0)]
    ['0.0123', '3.14', '1,234,567', '42', '0']
    """
    if x == int(x) if abs(x) < 1e15 else False:
        return f"{int(x):,}"
    return f"{x:,.0f}" if 1000 <= abs(x) < 1e9 else f"{x:.3g}"


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
