"""Alerts: what the person on call should know of a study, in words. Computed from its view alone."""

from collections.abc import Mapping
from typing import Any

from rasp_tuner.gain.versus_default import Gain

FAILURE_SHARE, LEAST_FAILURES = 0.1, 3  # of the latest runs; in all
EXPIRED_SHARE, LEAST_EXPIRED = 0.25, 20  # of asks
COVERAGE, LEAST_FORECASTS = 0.8, 50  # of outcomes within intervals that should hold 0.9


def alerts(view: Mapping[str, Any]) -> list[str]:
    """One sentence for each thing that is wrong, the worst first; empty where all is well."""
    found = [
        _health(view),
        _failures(view),
        *_losses(view),
        _coverage(view),
        _budget(view),
        _expired(view),
    ]
    return [words for words in found if words]


def health(problems: Mapping[str, str], diverged: int) -> str:
    """ "good", or all that is wrong with the state of a study, in words."""
    words = list(problems.values())
    if diverged:
        words.append(f"{diverged} replayed asks came out otherwise: the library or the machine has changed")
    return "; ".join(words) or "good"


def _health(view: Mapping[str, Any]) -> str:
    health: str = view["health"]
    return "" if health == "good" else f"{health[:1].upper()}{health[1:]}."


def _failures(view: Mapping[str, Any]) -> str:
    share = view["failure_share"]
    if view["failures"] < LEAST_FAILURES or share < FAILURE_SHARE:
        return ""
    return f"{_percent(share)} of the latest runs failed."


def _losses(view: Mapping[str, Any]) -> list[str]:
    versus = view["versus_default"]
    if versus is None:
        return []
    found = {name: Gain.from_json(one) for name, one in (versus["lately"] or versus["metrics"]).items()}
    when = "lately" if versus["lately"] else "as measured"
    lost = {name: gain for name, gain in found.items() if gain.outcome == "worse"}
    return [f"{name} is worse than with the default {when}: {gain}." for name, gain in lost.items()]


def _coverage(view: Mapping[str, Any]) -> str:
    forecasts, held = view["coverage"]["forecasts"], view["coverage"]["held"]
    if forecasts < LEAST_FORECASTS or held >= COVERAGE:
        return ""
    return f"Intervals that should hold 90% of the outcomes hold {_percent(held)}."


def _budget(view: Mapping[str, Any]) -> str:
    report = view["budget_report"]
    return "The budget is spent: nothing new is tried." if report is not None and report["left"] <= 0.0 else ""


def _expired(view: Mapping[str, Any]) -> str:
    share = view["expired"] / max(view["asks"], 1)
    if view["expired"] < LEAST_EXPIRED or share < EXPIRED_SHARE:
        return ""
    return f"{_percent(share)} of the suggestions were never answered."


def _percent(share: float) -> str:
    return f"{100.0 * share:.2g}%" if abs(share) < 0.1 else f"{100.0 * share:.0f}%"
