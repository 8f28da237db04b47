"""RaspSampler: a tuner as a sampler of Optuna, with contexts; RaspPruner: its stops (docs/OPTUNA.md).

A tuner has a fixed space; an Optuna study finds its own while it runs. So the tuner has all parameters of the finished
trials, each with the widest range seen, and is built anew from the study's trials when there is more. A trial that
this class sampled is learned by the same two calls, `ask` and `tell`, whether it just ended or is read from storage:
a study that is resumed with the same seed goes on as if it had never stopped.
"""

import copy
import logging
import threading
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from datetime import datetime
from typing import Any, Literal, get_args

import numpy as np

from rasp_tuner.base.checks import one_of, show
from rasp_tuner.contexts.context_encoder import Schema
from rasp_tuner.errors import ExpiredSuggestion, InvalidSpace, InvalidValue, MissingExtra
from rasp_tuner.space import Float, Params, Value
from rasp_tuner.tuner import BUDGET, Context, Tuner
from rasp_tuner.types import Direction, Suggestion

try:
    from optuna import Study
    from optuna.distributions import BaseDistribution
    from optuna.pruners import BasePruner
    from optuna.samplers import BaseSampler
    from optuna.study import StudyDirection
    from optuna.trial import FrozenTrial, TrialState
except ModuleNotFoundError as reason:
    raise MissingExtra("RaspSampler needs optuna, which is not installed: pip install 'rasp-tuner[optuna]'") from reason

from rasp_tuner.integrations.optuna_space import from_knob, hull, knob_of, moved_inside, to_knob
from rasp_tuner.integrations.shared import for_a_block, plain_context, with_goal

log = logging.getLogger("rasp_tuner")
CONTEXT = "context"  # the user attribute of a trial that holds its context
ASKED = "rasp:asked"  # the system attribute of a trial that this class sampled
STOP = "rasp:stop"  # the one that holds from which value on it should be ended
STOPPED_KEY = "rasp:stopped"  # the one of a trial that RaspPruner has ended
MOST_WAITING = 1000  # trials without an end whose suggestions are kept, as many as a tuner keeps
Pruned = Literal["value", "failed", "ignore"]
Failed = Literal["failed", "ignore"]


class RaspSampler(BaseSampler):
    """Suggests parameters for the context of a trial: the user attribute "context", however it came to be there.

    search_space  distributions by name, as of `Study.ask`; without it, or where it is not all, the space is found from
                  finished trials, and a parameter that is new starts at its default or in the middle of its range
    context       as of `Tuner`: names of numbers, names with their kinds, a length, or None
    default       what runs today, as {"pool": 8}; the first suggestion
    seed          None: another one each time. With a seed, a resumed study goes on as if it had never stopped
    pruned        what a pruned trial teaches: its last reported "value", that it "failed", or nothing ("ignore")
    failed        what a failed trial teaches: that its parameters "failed", or nothing ("ignore")
    settings      others of `Tuner`: goal, preset, guard, budget, switching_cost, constraints. The goal is
                  "find", since the best trial counts; or "live" where a guard, budget or switching cost is given
    """

    def __init__(
        self,
        search_space: Mapping[str, BaseDistribution] | None = None,
        context: Schema = None,
        default: Mapping[str, object] | None = None,
        *,
        seed: int | None = None,
        pruned: Pruned = "value",
        failed: Failed = "failed",
        **settings: Any,
    ) -> None:
        for name, given in (("search_space", search_space), ("default", default)):
            if given is not None and not isinstance(given, Mapping):
                raise InvalidSpace(f"{name} must be a mapping with names of parameters, got {show(given)}")
        for name, word, words in (("pruned", pruned, get_args(Pruned)), ("failed", failed, get_args(Failed))):
            one_of(name, word, words, InvalidSpace)
        for name, distribution in (search_space or {}).items():
            if not isinstance(distribution, BaseDistribution):
                raise InvalidSpace(f"search_space[{name!r}] must be a distribution of Optuna, got {show(distribution)}")
        if settings.get("constraints") and search_space is None:
            raise InvalidSpace("constraints need a search_space, for they name parameters")
        if settings.get("shield") is not None:
            raise InvalidSpace("shield hides nothing here: the contexts stand in Optuna's storage as they are")
        self._given_space, self._default = dict(search_space or {}), None if default is None else dict(default)
        self._context_schema, self._settings = context, with_goal(settings)
        self._seed = int(np.random.SeedSequence().generate_state(1)[0]) if seed is None else seed
        self._pruned, self._failed = pruned, failed
        self._lock = threading.RLock()  # of a study with n_jobs
        self._context: Any = None  # of trials that begin now, as JSON has it
        self._study: tuple[object, int] | None = None  # its storage and its id there
        self._direction: Direction = "min"
        self._space: dict[str, BaseDistribution] = {}  # the widest seen of each name
        self._start: Params = {}  # where each knob starts
        self._start_again(self._given_space)
        self._checker = self._tuner or self._tuner_of_one_knob()  # says what is wrong before trials run

    def check_stops(self, directions: Sequence[StudyDirection]) -> None:
        """Nothing, if trials can have stops; else an InvalidSpace that says why not."""
        finds = self._settings.get("goal") == "find"
        if self._default is None or (self._settings.get("budget", BUDGET) is None and not finds):
            raise InvalidSpace("a stop is measured against what runs today: give it as RaspSampler(default={...})")
        if [*directions] != [StudyDirection.MINIMIZE]:
            raise InvalidSpace("a trial has a stop where one objective is minimised, and grows while the trial runs")

    @property
    def tuner(self) -> Tuner | None:
        """The tuner, to look at; None before the first trial ends. It is replaced when the space grows."""
        return self._tuner

    def recommend(self, context: Context = None) -> dict[str, Any]:
        """The best parameters known for this context, without exploring; nothing before the first trial ends."""
        with self._lock:
            params = {} if self._tuner is None else self._tuner.recommend(context)
            return {name: from_knob(self._space[name], value) for name, value in params.items()}

    def context(self, context: Context) -> AbstractContextManager[object]:
        """The context of all trials from now on that have none of their own; in a `with` statement, within its block.

        None takes it back.
        """
        if context is not None:
            self._checker.check_context(context)
        return for_a_block(self, "_context", plain_context(context))

    def before_trial(self, study: Study, trial: FrozenTrial) -> None:
        if self._context is not None and CONTEXT not in trial.user_attrs:
            study._storage.set_trial_user_attr(trial._trial_id, CONTEXT, self._context)
            trial.user_attrs[CONTEXT] = self._context

    def infer_relative_search_space(self, study: Study, trial: FrozenTrial) -> dict[str, BaseDistribution]:
        del trial
        with self._lock:
            self._catch_up(study)
            return _choices(self._space)

    def sample_relative(
        self, study: Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        with self._lock:
            params: Mapping[str, Value] = {}
            try:
                if self._tuner is None:
                    self._checker.check_context(trial.user_attrs.get(CONTEXT))
                else:
                    suggestion = self._tuner.ask(trial.user_attrs.get(CONTEXT))
                    self._waiting[trial.number], params = suggestion, suggestion.params
            except InvalidValue as reason:
                raise InvalidValue(
                    f"trial {trial.number}: {reason}. A trial's context is its user attribute {CONTEXT!r}: give it with"
                    " study.enqueue_trial({}, user_attrs={'context': ...}), with sampler.context(...), or with"
                    " trial.set_user_attr('context', ...) before the first parameter"
                ) from None
            if len(self._waiting) > MOST_WAITING:
                del self._waiting[next(iter(self._waiting))]
            study._storage.set_trial_system_attr(trial._trial_id, ASKED, True)
            stop = self._waiting[trial.number].stop if trial.number in self._waiting else None
            if stop is not None:
                study._storage.set_trial_system_attr(trial._trial_id, STOP, stop)
            return {name: from_knob(self._space[name], params[name]) for name in search_space if name in params}

    def sample_independent(
        self, study: Study, trial: FrozenTrial, param_name: str, param_distribution: BaseDistribution
    ) -> Any:
        del study
        with self._lock:
            waiting = self._waiting.get(trial.number)
            if waiting is not None and param_name in waiting.params:  # in the widest range, but not in this trial's
                value = moved_inside(param_name, param_distribution, waiting.params[param_name])
            else:
                value = self._first_values({param_name: param_distribution})[param_name]
            return from_knob(param_distribution, value)

    def after_trial(self, study: Study, trial: FrozenTrial, state: TrialState, values: Sequence[float] | None) -> None:
        ended = copy.copy(trial)
        ended.state, ended.values = state, values
        with self._lock:
            self._catch_up(study, ended)

    def reseed_rng(self) -> None:
        """Nothing: threads share this sampler and its one generator, so no two of them draw the same."""

    def __getstate__(self) -> dict[str, Any]:
        """What `pickle` and `copy` take, as of Optuna's samplers: the settings. Trials are learned from the study."""
        left_out = ("_lock", "_study", "_tuner", "_checker", "_waiting", "_learned", "_all_before", "_space", "_start")
        return {name: value for name, value in vars(self).items() if name not in left_out}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._lock, self._study = threading.RLock(), None
        self._start_again(self._given_space)
        self._checker = self._tuner or self._tuner_of_one_knob()

    def _catch_up(self, study: Study, ended: FrozenTrial | None = None) -> None:
        """Learn all trials that ended since the last call, those of other processes too; `ended` is not stored yet."""
        if self._study != (study._storage, study._study_id):
            if len(study.directions) > 1:
                raise InvalidSpace(
                    f"a study with {len(study.directions)} objectives cannot be tuned: return their weighted sum"
                )
            self._direction = "max" if study.directions[0] is StudyDirection.MAXIMIZE else "min"
            self._start_again(self._given_space)
            self._study = study._storage, study._study_id
        trials = list(study._storage.get_all_trials(study._study_id, deepcopy=False))
        if ended is not None:
            trials[ended.number] = ended
        fresh = self._not_learned(trials)
        space = _widened(self._space, fresh)
        if _choices(space) != _choices(self._space):
            self._start_again(space)
            fresh = self._not_learned(trials)
        self._space = space
        for trial in fresh:
            self._learned.add(trial.number)
            try:
                self._learn(trial)
            except InvalidValue as reason:
                log.warning("trial %d of Optuna was not learned: %s", trial.number, reason)
        while self._all_before in self._learned:
            self._learned.remove(self._all_before)
            self._all_before += 1

    def _start_again(self, space: dict[str, BaseDistribution]) -> None:
        """With a tuner of this space, which has learned nothing yet."""
        choices = _choices(space)
        first = self._first_values(choices) if choices else {}
        self._tuner = self._new_tuner(choices, first) if choices else None
        self._space, self._start = space, first
        self._waiting: dict[int, Suggestion] = {}  # of trials that run, by number
        self._learned: set[int] = set()  # numbers of trials, beside those before `_all_before`
        self._all_before: int = 0
        if choices and (unknown := sorted(set(self._default or ()) - set(choices))):
            log.warning("the default has parameters that no trial has had so far: %s", ", ".join(unknown))

    def _not_learned(self, trials: Sequence[FrozenTrial]) -> list[FrozenTrial]:
        """Trials that ended, in the order in which they did; numbers are positions."""
        later = trials[self._all_before :]
        fresh = [trial for trial in later if trial.state.is_finished() and trial.number not in self._learned]
        return sorted(fresh, key=lambda trial: (trial.datetime_complete or datetime.max, trial.number))

    def _learn(self, trial: FrozenTrial) -> None:
        suggestion, context = self._waiting.pop(trial.number, None), trial.user_attrs.get(CONTEXT)
        if self._tuner is None:
            return None
        if suggestion is None and ASKED in trial.system_attrs:  # before the space grew, or in another process
            suggestion = self._tuner.ask(context)
        known = self._start
        ran = {name: to_knob(self._space[name], value) for name, value in trial.params.items() if name in known}
        lesson, stopped = self._lesson(trial), STOPPED_KEY in trial.system_attrs
        if lesson == "ignore" or not ran:
            return None
        if suggestion is not None:
            with suppress(ExpiredSuggestion):  # of a trial that took very long: it is learned as one of others
                if isinstance(lesson, dict):
                    return self._tuner.tell(suggestion.id, lesson, ran, stopped=stopped)
                return self._tuner.tell_failed(suggestion.id, params=ran)
        if isinstance(lesson, dict):
            return self._tuner.observe(context, known | ran, lesson, stopped=stopped)
        return self._tuner.observe_failed(context, known | ran)

    def _lesson(self, trial: FrozenTrial) -> dict[str, float] | Literal["failed", "ignore"]:
        """What a trial teaches: its values by the names of metrics, that it failed, or nothing."""
        if trial.state is TrialState.FAIL:
            return self._failed
        if trial.state is TrialState.PRUNED and self._pruned != "value" and STOPPED_KEY not in trial.system_attrs:
            return self._pruned
        if trial.values is None:  # pruned before anything was reported
            return "failed"
        worst = float("-inf" if self._direction == "max" else "inf")
        return "failed" if trial.values[0] == worst else {"value": trial.values[0]}

    def _new_tuner(self, space: Mapping[str, BaseDistribution], first: Params) -> Tuner:
        knobs = {name: knob_of(name, distribution) for name, distribution in space.items()}
        default = None if self._default is None else first
        return Tuner(
            knobs, {"value": self._direction}, self._context_schema, default, seed=self._seed, **self._settings
        )

    def _tuner_of_one_knob(self) -> Tuner:
        """What stands in for the tuner until there is a space, to check settings and contexts."""
        first = None if self._default is None else {"x": 0.5}
        metrics = {"value": self._direction}
        return Tuner({"x": Float(0, 1)}, metrics, self._context_schema, first, seed=self._seed, **self._settings)

    def _first_values(self, space: Mapping[str, BaseDistribution]) -> Params:
        """The default's values of these parameters, or else the middle of their ranges, as knobs have them."""
        knobs = {name: knob_of(name, distribution) for name, distribution in space.items()}
        middle, default = Tuner(knobs, {"value": "min"}).recommend(), self._default or {}
        given: Params = {}
        for name, value in default.items():
            try:
                given |= {name: to_knob(space[name], value)} if name in space else {}
            except InvalidSpace as reason:
                raise InvalidSpace(f"default[{name!r}]: {reason}") from None
        return Tuner(knobs, {"value": "min"}, default=middle | given).recommend() if given else middle


class RaspPruner(BasePruner):
    """Ends a trial whose reported value has come to its stop: what the default would come to here, and a stake.

    For an objective that grows while a trial runs, as time and cost do, in a study with a `RaspSampler` that has a
    default. Such a trial is learned as at least so bad, whatever `pruned` says.
    """

    def prune(self, study: Study, trial: FrozenTrial) -> bool:
        if not isinstance(study.sampler, RaspSampler):
            raise InvalidSpace(f"RaspPruner needs a study whose sampler is a RaspSampler, got {show(study.sampler)}")
        study.sampler.check_stops(study.directions)
        stop, step = trial.system_attrs.get(STOP), trial.last_step
        if stop is None or step is None or not trial.intermediate_values[step] >= stop:
            return False
        study._storage.set_trial_system_attr(trial._trial_id, STOPPED_KEY, True)
        return True


def _choices(space: Mapping[str, BaseDistribution]) -> dict[str, BaseDistribution]:
    """The parameters with more than one value."""
    return {name: distribution for name, distribution in space.items() if not distribution.single()}


def _widened(space: Mapping[str, BaseDistribution], trials: Sequence[FrozenTrial]) -> dict[str, BaseDistribution]:
    """The space with all parameters and values of these trials."""
    wide = dict(space)
    for trial in trials:
        for name, distribution in sorted(trial.distributions.items()):  # storages keep no order
            wide[name] = hull(wide.get(name, distribution), distribution)
    return wide
