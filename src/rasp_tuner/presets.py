"""The two presets: `paper`, the paper's stack to the letter, and `default`, what users get."""

from typing import get_args

from rasp_tuner.base.checks import show
from rasp_tuner.engine.preset import DEFAULT as DEFAULT
from rasp_tuner.engine.preset import KIND as _DEFAULT_KIND
from rasp_tuner.errors import InvalidSpace
from rasp_tuner.optimizer import preset as _preset
from rasp_tuner.optimizer.preset import Preset as Preset
from rasp_tuner.optimizer.preset import Setting, named, resolved
from rasp_tuner.types import Goal


def _paper_kind() -> _preset.PresetKind:
    """The paper's parts are loaded when somebody asks for them."""
    from rasp_tuner.paper.preset import KIND

    return KIND


_preset.register("paper", _paper_kind)
_preset.register("default", lambda: _DEFAULT_KIND)
NAMES = _preset.names()
LIVE_OPTIONS = ("switching_cost", "guard", "budget")
BUDGET = 0.02  # the usual budget, where there is a default

__all__ = [
    "BUDGET", "DEFAULT", "NAMES", "Preset", "default", "named", "paper", "resolved", "with_options",
]  # fmt: skip


def paper(**changes: float) -> Preset:
    """The paper's stack to the letter, with any constants of `rasp_tuner.paper.PAPER` changed.

    >>> paper(base_step=0.25).constants["base_step"]
    0.25
    """
    return named("paper", changes)


def default(**changes: Setting) -> Preset:
    """What users get unless they ask otherwise, with any settings of `DEFAULT` changed."""
    return named("default", changes)


def with_options(
    preset: str | Preset,
    switching_cost: float,
    guard: float | None,
    budget: float | None,
    has_default: bool,
    goal: Goal = "live",
) -> Preset:
    """The preset with the tuner's own options set."""
    changes: dict[str, object] = {}
    if type(switching_cost) not in (int, float) or switching_cost:
        changes["switching_cost"] = switching_cost
    if guard is not None:
        changes["guard"] = guard
    base = resolved(preset)
    if goal not in get_args(Goal):
        raise InvalidSpace(f'goal must be "live" or "find", got {show(goal)}')
    if goal == "find":
        changes["find"] = True
    finds = goal == "find" or base.constants.get("find") is True
    usual = budget is None or budget == BUDGET  # what a preset without budgets, or a tuner without default, ignores
    if not usual or (not finds and "budget" in base.constants and base.constants["budget"] is None and has_default):
        changes["budget"] = budget
    merged = named(base.name, {**base.constants, **changes}) if changes else base
    for option in LIVE_OPTIONS if finds else ():
        if merged.constants.get(option):
            raise InvalidSpace(f"{option} is about what runs cost on the way, which does not count with goal='find'")
    for option in ("guard", "budget"):
        if merged.constants.get(option) is not None and not has_default:
            raise InvalidSpace(
                f"{option}={merged.constants[option]!r} is measured against what runs today: give it as default={{...}}"
            )
    return merged
