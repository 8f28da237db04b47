"""RaspSearch: a tuner as a search algorithm of Ray Tune, with contexts; RaspScheduler: its stops (docs/RAY_TUNE.md).

Every suggestion is an `ask` and every trial that ends is a `tell`. What ends without being known here, as a trial that
is started again after an error, is learned from the config that Ray puts into its results.
"""

import logging
import math
import os
import threading
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import Any, Literal, get_args

import numpy as np

from rasp_tuner.base.checks import one_of, show
from rasp_tuner.contexts.context_encoder import Schema
from rasp_tuner.errors import ExpiredSuggestion, InvalidSpace, InvalidValue, MissingExtra, SnapshotError
from rasp_tuner.files import snapshot
from rasp_tuner.space import Float, Params, Space
from rasp_tuner.tuner import Context, Tuner
from rasp_tuner.types import Direction, Metric

try:
    from ray.tune.schedulers import FIFOScheduler
    from ray.tune.search import Searcher
except ImportError as reason:  # of Ray, or of what `ray.tune` needs beside it
    raise MissingExtra(
        "RaspSearch needs ray[tune], which is not installed: pip install 'rasp-tuner[ray-tune]'"
    ) from reason

from rasp_tuner.integrations.ray_space import (
    Parameter,
    constants_of,
    nested,
    parameters_from_json,
    parameters_of,
    value_at,
)
from rasp_tuner.integrations.shared import check_alike, for_a_block, plain_context

log = logging.getLogger("rasp_tuner")
CONTEXT = "context"  # where a trial's config has its context
MOST_WAITING = 1000  # trials without an end whose suggestions are kept, as many as a tuner keeps
Failed = Literal["failed", "ignore"]
Waiting = tuple[str, Params]  # the id of a suggestion, and what runs


class RaspSearch(Searcher):
    """Suggests a config for the context of now, which the trial finds in `config["context"]`.

    space         of Ray Tune, nested or not, or knobs of this library; without it, the `param_space` of `tune.Tuner`
    metric, mode  as everywhere in Ray Tune; without them, those of `tune.TuneConfig`
    context       as of `rasp_tuner.Tuner`: names of numbers, names with their kinds, a length, or None
    default       what runs today, as a config; the first suggestion
    metrics       instead of `metric` and `mode`: several, as of `rasp_tuner.Tuner`, with weights and limits
    failed        what a trial with an error teaches: that its config "failed", or nothing ("ignore")
    seed          None: another one each time
    settings      others of `rasp_tuner.Tuner`: preset, guard, budget, switching_cost, constraints
    """

    def __init__(
        self,
        space: Mapping[str, Any] | None = None,
        metric: str | None = None,
        mode: Direction | None = None,
        context: Schema = None,
        default: Mapping[str, Any] | None = None,
        *,
        metrics: Mapping[str, Metric | Direction] | None = None,
        failed: Failed = "failed",
        seed: int | None = None,
        **settings: Any,
    ) -> None:
        for name, given in (("space", space), ("default", default), ("metrics", metrics)):
            if given is not None and not isinstance(given, Mapping):
                raise InvalidSpace(f"{name} must be a mapping with names, got {show(given)}")
        one_of("failed", failed, get_args(Failed), InvalidSpace)
        if mode not in (None, "min", "max"):
            raise InvalidSpace(f"mode must be 'min' or 'max', got {show(mode)}")
        if metrics is not None and (metric is not None or mode is not None):
            raise InvalidSpace("give either metric and mode, or metrics, not both")
        if settings.get("shield") is not None:
            raise InvalidSpace("shield hides nothing here: the contexts stand in Ray's configs as they are")
        several: tuple[Any, Any] = (list(metrics), _directions(metrics)) if metrics else (metric, mode)
        super().__init__(*several)
        self._metrics = None if metrics is None else dict(metrics)
        self._schema, self._settings, self._failed = context, settings, failed
        self._default = None if default is None else dict(default)
        self._seed = int(np.random.SeedSequence().generate_state(1)[0]) if seed is None else seed
        self._lock = threading.RLock()
        self._context: Any = None  # of trials that begin now, or a function that says it
        self._parameters: dict[str, Parameter] = {}
        self._tuner: Tuner | None = None
        self._waiting: dict[str, Waiting] = {}  # of trials that run, by their id
        self._stopped: set[str] = set()  # of them, those that RaspScheduler ends
        checked = {name: value for name, value in settings.items() if name != "constraints"}
        first = None if default is None else {"x": 0.5}
        knob = {"x": Float(0, 1)}  # stands in for the space, to say what is wrong before trials run
        self._checker = Tuner(knob, metrics or {"value": "min"}, context, first, seed=self._seed, **checked)
        self._constants: dict[str, Any] = {}  # of the space given here; those of tune.Tuner Ray adds itself
        if space is not None:
            self._set_space(space)
            self._constants = constants_of(space)

    @property
    def tuner(self) -> Tuner | None:
        """The tuner, to look at; None before there is a space and a metric."""
        return self._tuner

    def recommend(self, context: Context = None) -> dict[str, Any]:
        """The best config known for this context, without exploring."""
        with self._lock:
            return nested(self._values(self._ready().recommend(context)))

    def context(self, context: Context | Callable[[], Context]) -> AbstractContextManager[object]:
        """The context of all trials that begin from now on; in a `with` statement, within its block.

        A function is called for every trial: its answer is the context, or None for "ask again later". None takes it
        back.
        """
        if context is not None and not callable(context):
            self._checker.check_context(context)
        return for_a_block(self, "_context", context)

    def set_search_properties(self, metric: str | None, mode: str | None, config: Any, **spec: Any) -> bool:
        """Take the metric and the space of `tune.Tuner`; False if there is a space already and this has none."""
        del spec
        with self._lock:
            if self._metrics is None:
                self._metric, self._mode = metric or self._metric, mode or self._mode
            if self._parameters and not parameters_of(config):
                self._build()
                return False
            self._set_space(config)
            self._constants = {}
            return True

    def suggest(self, trial_id: str) -> dict[str, Any] | None:
        """A config for a new trial, with its context; None if the context is not known yet."""
        with self._lock:
            tuner, context = self._ready(), self._context() if callable(self._context) else self._context
            if context is None and self._schema is not None and callable(self._context):
                return None
            try:
                suggestion = tuner.ask(context)
            except InvalidValue as reason:
                raise InvalidValue(
                    f"trial {trial_id}: {reason}. Give contexts with search.context(...), before tuner.fit(): a value,"
                    " or a function that is called for every trial"
                ) from None
            values = self._values(suggestion.params)
            self._waiting[trial_id] = suggestion.id, self._params(values)
            if len(self._waiting) > MOST_WAITING:
                del self._waiting[next(iter(self._waiting))]
            config = nested({**self._constants, **values})
            return config if context is None else {**config, CONTEXT: plain_context(context)}

    def on_trial_complete(self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False) -> None:
        """Learn a trial that ended; of one that was stopped before its first result there is nothing to learn."""
        with self._lock:
            waiting, stopped = self._waiting.pop(trial_id, None), trial_id in self._stopped
            self._stopped.discard(trial_id)
            if (result is None and not error) or (error and self._failed == "ignore"):
                return
            metrics = "the trial ended with an error" if error else self._metrics_in(result or {})
            try:
                if waiting is None or self._tuner is None or not _tell(self._tuner, waiting, metrics, stopped):
                    self._learn_config(_config_in(result or {}), metrics)
            except InvalidValue as reason:
                log.warning("trial %s of Ray Tune was not learned: %s", trial_id, reason)

    def should_stop(self, trial_id: str, result: Mapping[str, Any]) -> bool:
        """Whether a trial that runs should be ended, by what it reports; if so, its end is learned as a bound."""
        with self._lock:
            waiting, metrics = self._waiting.get(trial_id), self._metrics_in(result)
            if waiting is None or isinstance(metrics, str):
                return False
            if self._ready().should_stop(waiting[0], metrics):
                self._stopped.add(trial_id)
            return trial_id in self._stopped

    def save(self, checkpoint_path: str | os.PathLike[str]) -> None:
        """Write the tuner's snapshot with the trials that run; `Tuner.load` reads it, too. Nothing is pickled."""
        with self._lock:
            header, arrays = snapshot.decode(self._ready().to_bytes())
            parameters = {name: parameter.to_json() for name, parameter in self._parameters.items()}
            header["ray_tune"] = {"waiting": self._waiting, "parameters": parameters}
            snapshot.write(checkpoint_path, snapshot.encode(header, arrays))

    def restore(self, checkpoint_path: str | os.PathLike[str]) -> None:
        """Go on from what `save` wrote, or from the snapshot of a tuner."""
        data = snapshot.read(checkpoint_path)
        header, _ = snapshot.decode(data)
        tuner, found = Tuner.from_bytes(data), header.get("ray_tune", {})
        try:
            waiting = {str(trial): (str(id), dict(ran)) for trial, (id, ran) in found.get("waiting", {}).items()}
            parameters = parameters_from_json(found.get("parameters", {}), Space.from_json(header["space"]).knobs)
            (metric, fields), *others = header["metrics"].items()
        except (TypeError, ValueError, KeyError, AttributeError) as reason:
            raise SnapshotError(f"the snapshot does not describe a search of Ray Tune: {show(reason)}") from reason
        with self._lock:
            if self._tuner is not None:
                check_alike(tuner, self._tuner)
            self._tuner, self._waiting = tuner, waiting
            self._parameters = self._parameters or parameters
            if self._metrics is None and not others:
                self._metric, self._mode = metric, fields["direction"]

    def __getstate__(self) -> dict[str, Any]:
        """What Ray pickles with `tune.Tuner`: the tuner as its own snapshot."""
        state = {name: value for name, value in vars(self).items() if name not in ("_lock", "_checker")}
        return state | {"_tuner": None if self._tuner is None else self._tuner.to_bytes()}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._lock, self._constants = threading.RLock(), state.get("_constants", {})
        self._stopped = state.get("_stopped", set())
        self._tuner = None if state["_tuner"] is None else Tuner.from_bytes(state["_tuner"])
        self._checker = Tuner({"x": Float(0, 1)}, {"value": "min"}, self._schema)

    def _set_space(self, space: Mapping[str, Any]) -> None:
        found = parameters_of(space)
        if self._schema is not None and CONTEXT in space:
            raise InvalidSpace(f"a parameter cannot be called {CONTEXT!r}: the config has the trial's context there")
        if not any(parameter.knob for parameter in found.values()):
            raise InvalidSpace("the space must have a parameter with more than one value, as tune.uniform(0, 1)")
        self._parameters = found
        self._build()

    def _build(self) -> None:
        """Make the tuner once space and metric are known; one that is there goes on, if it is of this kind."""
        if self._metrics is None and (self._metric is None or self._mode is None):
            return
        knobs = {name: parameter.knob for name, parameter in self._parameters.items() if parameter.knob}
        default = None
        if self._default is not None:
            middle = Tuner(knobs, {"value": "min"}).recommend()
            default = middle | self._params(self._known(self._default))
        metrics = self._ready_metrics()
        fresh = Tuner(knobs, metrics, self._schema, default, seed=self._seed, **self._settings)
        if self._tuner is None:
            self._tuner = fresh
        else:
            check_alike(self._tuner, fresh)

    def _ready(self) -> Tuner:
        if not self._parameters:
            more = (
                ""
                if self._tuner is None
                else (
                    ". Of choices that are no plain values a file holds only the names: give param_space to"
                    " tune.Tuner.restore, too"
                )
            )
            raise InvalidSpace(f"RaspSearch needs a space: give it one, or param_space to tune.Tuner{more}")
        if self._tuner is None:
            raise InvalidSpace("RaspSearch needs metric and mode: give them to it, or to tune.TuneConfig")
        return self._tuner

    def _ready_metrics(self) -> Mapping[str, Metric | Direction]:
        if self._metrics is not None:
            return self._metrics
        if self._metric is None or self._mode not in ("min", "max"):
            raise InvalidSpace("RaspSearch needs metric and mode, as in RaspSearch(metric='loss', mode='min')")
        return {self._metric: "min" if self._mode == "min" else "max"}

    def _values(self, params: Params) -> dict[str, Any]:
        """A tuner's parameters as Ray knows them, by path; None for a knob that does not exist now."""
        return {
            name: parameter.only
            if parameter.knob is None
            else parameter.from_knob(params[name])
            if name in params
            else None
            for name, parameter in self._parameters.items()
        }

    def _params(self, values: Mapping[str, Any]) -> Params:
        """Ray's values by path as the tuner knows them."""
        params = {}
        for name, value in values.items():
            parameter = self._parameters[name]
            if parameter.knob is not None and not (value is None and parameter.knob.when):
                try:
                    params[name] = parameter.to_knob(value)
                except InvalidValue as reason:
                    raise InvalidValue(f"parameter {name!r}: {reason}") from None
        return params

    def _known(self, config: Mapping[str, Any]) -> dict[str, Any]:
        """Values of a config, nested or flat, by path; those of parameters that are tuned."""
        found = {}
        for name in self._parameters:
            try:
                found[name] = value_at(config, name)
            except KeyError:
                continue
        return found

    def _metrics_in(self, result: Mapping[str, Any]) -> dict[str, float] | str:
        """The metrics of a result, or why there are none."""
        metrics = {}
        for name in self._ready_metrics():
            try:
                metrics[name] = float(value_at(result, name))
            except KeyError:
                return f"its last result has no {name!r}"
            except (TypeError, ValueError):
                return f"{name} is no number"
            if not math.isfinite(metrics[name]):
                return f"{name} is {metrics[name]}"
        return metrics

    def _learn_config(self, config: Mapping[str, Any], metrics: dict[str, float] | str) -> None:
        """Learn what ran without being asked for here."""
        try:
            context = value_at(config, CONTEXT) if self._schema is not None else None
        except KeyError:
            context = None
        params = self._params(self._known(config))
        if isinstance(metrics, str):
            self._ready().observe_failed(context, params)
        else:
            self._ready().observe(context, params, metrics)


class RaspScheduler(FIFOScheduler):
    """Ends a trial whose metric has reached the suggestion's stop; RaspSearch learns it as at least so bad.

    For `tune.TuneConfig(search_alg=RaspSearch(..., default={...}), scheduler=RaspScheduler())`. The trials report their
    metric while they run: what it came to so far, of one that only grows, as time and cost do.
    """

    def on_trial_result(self, tune_controller: Any, trial: Any, result: dict[str, Any]) -> str:
        """STOP or CONTINUE."""
        search = _search_of(tune_controller.search_alg)
        return str(self.STOP if search.should_stop(trial.trial_id, result) else self.CONTINUE)


def _search_of(found: Any) -> RaspSearch:
    """The RaspSearch inside of what Ray has wrapped around it."""
    while not isinstance(found, RaspSearch):
        inner = getattr(found, "searcher", None)
        if inner is None:
            raise InvalidSpace(f"RaspScheduler needs search_alg=RaspSearch(...), got {show(found)}")
        found = inner
    return found


def _tell(tuner: Tuner, waiting: Waiting, metrics: dict[str, float] | str, stopped: bool = False) -> bool:
    """Whether the suggestion still waited for its answer."""
    id, ran = waiting
    try:
        if isinstance(metrics, str):
            tuner.tell_failed(id, metrics, ran)
        else:
            tuner.tell(id, metrics, ran, stopped=stopped)
    except ExpiredSuggestion:
        return False
    return True


def _directions(metrics: Mapping[str, Metric | Direction]) -> list[Direction]:
    return [metric.direction if isinstance(metric, Metric) else metric for metric in metrics.values()]


def _config_in(result: Mapping[str, Any]) -> dict[str, Any]:
    """The config that Ray puts into a result, which it flattens."""
    if isinstance(result.get("config"), Mapping):
        return dict(result["config"])
    flat = {name.removeprefix("config/"): value for name, value in result.items() if name.startswith("config/")}
    own = {name: value for name, value in flat.items() if name.partition("/")[0] == CONTEXT}
    return {**flat, **nested(own)}
