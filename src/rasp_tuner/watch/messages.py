"""What operators read: a line for each step, and where the study stands."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from rasp_tuner.page.words import number_words, settings_words
from rasp_tuner.watch.memory import WatchMemory
from rasp_tuner.watch.study import Mode, WatchStudy

SHADOW_CONTEXTS = 60  # different ones that situations are made of
SITUATIONS_SAID = 3
ROLES = {
    "suggestion": "suggested",
    "default": "the default, to compare with",
    "frozen": "the default, rolled back",
    "observed": "as it runs",
}


def step_words(entry: Mapping[str, Any], memory: WatchMemory) -> str:
    """One step on one line."""
    parts = [f"step {entry['step'] + 1} {entry['mode']}"]
    if entry["context"]:
        parts.append(" ".join(f"{name}={_value(value)}" for name, value in entry["context"].items()))
    parts.append(f"{settings_words(entry['ran'] or entry['params'])} ({ROLES[entry['role']]})")
    parts.append(_metrics(entry["metrics"]))
    if entry.get("stopped") is not None:
        parts.append(f"ENDED EARLY after {entry['stopped']:.3g} s of its window: it had cost its stake")
    if entry["control"] is not None:
        parts.append(f"control {_metrics(entry['control'])}")
    if entry["broken"]:
        parts.append(f"LIMIT BROKEN: {'; '.join(entry['broken'].values())}")
    if "would_try" in entry:
        parts.append(f"would try {settings_words(entry['would_try'])}")
    elif entry["role"] != "frozen":
        parts.append(gain_words(memory, entry["mode"]))
    return " · ".join(parts)


def gain_words(memory: WatchMemory, mode: Mode) -> str:
    """What was gained so far; of a shadow, what it would gain."""
    if mode == "shadow":
        return _shadow_words(memory)
    found = memory.tuner.versus_default()
    return f"against the default: {'not known yet' if found is None else found}"


def _shadow_words(memory: WatchMemory) -> str:
    """What going live would gain, by the forecasts that pages and the dashboard show; often nothing is known."""
    settings = len(memory.state.settings)
    if settings <= 1:
        return "cannot tell what going live would gain: only one setting has run, and nothing is known of others"
    found = [str(one) for one in memory.tuner.situations(contexts=SHADOW_CONTEXTS) if one.proven][:SITUATIONS_SAID]
    if not found:
        return f"nothing better than the default is known, of {settings} settings that have run"
    return f"going live would gain, by forecast and less what exploring costs: {'; '.join(found)}"


def budget_words(memory: WatchMemory) -> str | None:
    found = memory.tuner.budget()
    return None if found is None else str(found)


def status(
    memory: WatchMemory,
    study: WatchStudy,
    mode: Mode,
    latest: Mapping[str, Any] | None,
    problem: str | None,
    stopped: bool,
) -> dict[str, Any]:
    """Where the study stands, for `status.json`."""
    state = memory.state
    return {
        "study": study.name,
        "updated": datetime.now(UTC).isoformat(timespec="seconds"),
        "mode": mode,
        "state": "rolled back" if state.rolled_back else "stopped" if stopped else "running",
        "reason": state.rolled_back or None,
        "steps": state.steps,
        "parameters": state.in_place,
        "last_good": state.good,
        "default": study.default,
        "gain": gain_words(memory, mode),
        "budget": budget_words(memory),
        "exploring": None if (looks := memory.tuner.looks()) is None else str(looks),
        "problem": problem,
        "latest": latest,
    }


def _metrics(metrics: Mapping[str, float]) -> str:
    return " ".join(f"{name} {number_words(value)}" for name, value in metrics.items())


def _value(value: object) -> str:
    return number_words(value) if isinstance(value, float) else str(value)
