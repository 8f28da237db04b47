"""RaspStrategy: a strategy of Kernel Tuner that remembers other shapes and devices (docs/KERNEL_TUNER.md)."""

import contextlib
import itertools
import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from rasp_tuner.base.checks import show
from rasp_tuner.contexts import ContextKind
from rasp_tuner.errors import InvalidSpace, MissingExtra
from rasp_tuner.integrations.shared import check_alike, labels_of, with_goal
from rasp_tuner.space import Categorical, Value
from rasp_tuner.tuner import Tuner
from rasp_tuner.types import Direction

try:
    from kernel_tuner.strategies.common import CostFunc
    from kernel_tuner.util import StopCriterionReached, get_problem_size
except ModuleNotFoundError as reason:
    raise MissingExtra(
        "RaspStrategy needs kernel_tuner, which is not installed: pip install 'rasp-tuner[kernel-tuner]'"
    ) from reason

SIZES = ("log2_size_x", "log2_size_y", "log2_size_z")
Labels = Mapping[str, tuple[Value, ...]]  # of the values of each tunable parameter


class RaspStrategy:
    """For `tune_kernel(..., strategy=...)`; given to the next call, it starts from what it has learned.

    context   what matters beside the device and the problem's size, as {"dtype": "category"}; `also` holds its values
    default   what runs today, by names of `tune_params`; others start in the middle of their lists
    tuner     from `Tuner.load(path)`, to go on with what `strategy.tuner.save(path)` wrote
    settings  others of `rasp_tuner.Tuner`: preset, seed. The goal is "find": what exploring costs is no loss
    """

    def __init__(
        self,
        context: Mapping[str, ContextKind | str] | None = None,
        default: Mapping[str, Any] | None = None,
        tuner: Tuner | None = None,
        **settings: Any,
    ) -> None:
        self._schema = {"device": "category", **dict.fromkeys(SIZES, "number"), **(context or {})}
        self._default, self.tuner, self._settings = dict(default or {}), tuner, {"budget": None, **with_goal(settings)}
        self.also: Mapping[str, Any] = {}
        self._searched: tuple[dict[str, Any], list[Tuner]] | None = None  # the latest context, and its own search

    def tune(self, searchspace: Any, runner: Any, tuning_options: Any) -> list[dict[str, Any]]:
        """The results of all configurations that ran, until the limit is reached or none is left."""
        if len(tuning_options.objective) != 1:
            raise InvalidSpace(f"objective must be one metric, got {show(tuning_options.objective)}")
        objective = tuning_options.objective[0]
        labels = {name: labels_of(values) for name, values in searchspace.tune_params.items()}
        cost = CostFunc(searchspace, tuning_options, runner, snap=False)
        if all(len(own) == 1 for own in labels.values()):  # nothing to choose, and nothing to learn
            with contextlib.suppress(StopCriterionReached):
                cost(searchspace.list[0], check_restrictions=False)
            return cost.results  # type: ignore[no-any-return]
        direction: Direction = "max" if tuning_options.objective_higher_is_better[0] else "min"
        context = self._context(searchspace, runner)
        memory = self._tuner_for(labels, objective, direction)
        turns = itertools.cycle(searches := self._searches(context, memory, {objective: direction}))
        places = np.asarray(searchspace.get_list_param_indices_numpy(), dtype=np.int64)  # [n, d] of valid ones
        fresh, going = np.ones(len(places), dtype=bool), True
        listed = memory.listed(_settings(labels, places)) if memory.searches else None
        while going and fresh.any():
            asked = next(turns)
            suggestion = asked.ask(context, among=None if listed is None else listed.where(fresh))
            params = suggestion.params
            if fresh.all() and memory.learned:  # the best known comes first: then the result is no worse than memory
                params = memory.recommend(context)
            wanted = [labels[name].index(params[name]) if name in params else 0 for name in labels]
            at = _nearest(places, fresh, np.array(wanted))
            fresh[at] = False
            ran = {name: labels[name][i] for name, i in zip(labels, places[at], strict=True) if name in params}
            done = len(cost.results)
            try:
                cost(searchspace.list[at], check_restrictions=False)
            except StopCriterionReached as limit:  # it may come after the last result
                going = False
                if tuning_options.verbose:
                    print(limit)  # noqa: T201  # as all strategies of Kernel Tuner do
            if len(cost.results) > done:
                result = cost.results[-1]
                value = math.nan if "__error__" in result else float(result[objective])
                if math.isfinite(value):
                    asked.tell(suggestion.id, {objective: value}, ran)
                else:
                    asked.tell_failed(suggestion.id, str(result.get("__error__", f"{objective} is {value}")), ran)
                for other in searches:
                    if other is not asked and math.isfinite(value):
                        other.observe(context, ran, {objective: value})
                    elif other is not asked:
                        other.observe_failed(context, ran)
        return cost.results  # type: ignore[no-any-return]

    def _tuner_for(self, labels: Labels, objective: str, direction: Direction) -> Tuner:
        """The tuner of before, if it is of the same parameters and objective, or a new one."""
        knobs = {name: _knob(own) for name, own in labels.items() if len(own) > 1}
        middle = Tuner(knobs, {objective: direction}).recommend()
        default = {**middle, **self._default} if self._default else None
        fresh = Tuner(knobs, {objective: direction}, self._schema, default, **self._settings)
        if self.tuner is None:
            self.tuner = fresh
        check_alike(self.tuner, fresh)
        return self.tuner

    def _searches(self, context: dict[str, Any], memory: Tuner, metrics: dict[str, Direction]) -> list[Tuner]:
        """Who takes turns: the memory, and where it knows other contexts a search of this one alone.

        The memory finds what contexts have in common within a few looks. The last percents are this context's own, and
        there what it knows of others misleads it. Both learn every result.
        """
        if self._searched is None or self._searched[0] != context:
            own = []
            if memory.learned:
                own = [Tuner(memory.knobs, metrics, self._schema, memory.recommend(context), **self._settings)]
            self._searched = context, own
        return [memory, *self._searched[1]]

    def _context(self, searchspace: Any, runner: Any) -> dict[str, Any]:
        """The device's name and the problem's size, with what the user adds."""
        device, first = runner.get_device_info(), dict(zip(searchspace.tune_params, searchspace.list[0], strict=True))
        sizes = [math.log2(max(size, 1)) for size in get_problem_size(runner.kernel_options.problem_size, first)]
        return {"device": getattr(device, "name", "") or "cpu", **dict(zip(SIZES, sizes, strict=True)), **self.also}


def _knob(labels: tuple[Value, ...]) -> Categorical:
    """Neighbours in a sorted list of numbers are expected to act alike."""
    numbers = [label for label in labels if isinstance(label, int | float) and not isinstance(label, bool)]
    return Categorical(labels, ordered=len(numbers) == len(labels) and numbers == sorted(numbers))


def _settings(labels: Labels, places: np.ndarray) -> list[dict[str, Value]]:
    """The valid configurations, without parameters that have one value."""
    free = [(j, name, own) for j, (name, own) in enumerate(labels.items()) if len(own) > 1]
    return [{name: own[row[j]] for j, name, own in free} for row in places.tolist()]


def _nearest(places: np.ndarray, fresh: np.ndarray, wanted: np.ndarray) -> int:
    """The valid configuration that has not run and is nearest to the wanted one: few and small changes."""
    apart = np.abs(places - wanted)
    return int(np.argmin(np.where(fresh, (apart > 0).sum(axis=1) + apart.sum(axis=1) / (apart.sum() + 1), np.inf)))
