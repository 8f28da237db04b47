"""Tuner: the public face. Names, ids and metrics around an optimizer on the unit box."""

import contextlib
import logging
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from rasp_tuner.base.checks import flag, show, whole
from rasp_tuner.base.numerics import Array
from rasp_tuner.base.state_checks import MOST_SAMPLES, Field, broken, checked, under
from rasp_tuner.base.threads import methods_in_turn, methods_on_one_thread, one_thread, unguarded
from rasp_tuner.contexts.context_encoder import Schema, context_encoder
from rasp_tuner.errors import InvalidSpace, InvalidValue, RaspError, SnapshotError
from rasp_tuner.files import snapshot
from rasp_tuner.gain.savings import HELD_OUT, MOST_HELD_OUT, Draw, Drawn, SavingsLedger, checked_holdout
from rasp_tuner.gain.versus_default import ForecastLedger, StepForecast, believed_deviation
from rasp_tuner.logs import LogReport, Missing, Source, samples
from rasp_tuner.optimizer.metric_table import beside_control, checked_metrics, near_level
from rasp_tuner.optimizer.optimizer import FAILED_ERROR, Asked, Proposal, Repeats
from rasp_tuner.presets import BUDGET as BUDGET
from rasp_tuner.presets import Preset, named, with_options
from rasp_tuner.privacy import ContextShield
from rasp_tuner.records.ledger import Answered, Ledger, Pending
from rasp_tuner.records.lineage import Lineage
from rasp_tuner.records.outcome_sum import OutcomeSum, outcome_sum
from rasp_tuner.records.step_record import NOT_ASKED, StepRecord
from rasp_tuner.space import Knob, Listed, MaxChange, Params, Space
from rasp_tuner.space.max_change import Given as MaxChangeGiven
from rasp_tuner.trial import Trial
from rasp_tuner.tuner_forecasts import TunerForecasts
from rasp_tuner.tuner_view import Context as Context
from rasp_tuner.tuner_view import TunerView
from rasp_tuner.types import Direction, Explanation, Goal, Metric, Suggestion, Why

log = logging.getLogger("rasp_tuner")  # never of contexts, which may be private
SAME_POINT = 1e-9  # of the unit box: rounding
LEAST_LEARNED = 3  # samples, before the default is forecast
SUMS_ON_RECORD = 64  # rows for all sums that are told together
LONGEST_REASON = 500  # characters kept of a failure's reason


@methods_in_turn
@methods_on_one_thread
class Tuner(TunerView):
    """Suggests parameters for the context it sees, learns from the metrics that come back, and remembers.

    `ask` never learns; `tell`, `tell_failed` and `observe` do; a call that raises a RaspError changes nothing.
    Threads that share one take turns.

    space       knob names -> Float, Int, PowerOfTwo, Categorical, Bool, Auto or Optional
    metrics     metric names -> "min", "max" or Metric(direction, weight, scale)
    context     names of numbers; or names with their kinds, as in {"region": Category()} (contexts/kinds.py); or the
                length of a vector; or None for context-free tuning
    default     what runs today, and the first suggestion unless something was observed before; else mid-box
    preset      "default", "paper", or either with other constants, as in presets.paper(base_step=0.25)
    max_pending how many unanswered suggestions are kept; the oldest is dropped beyond that
    switching_cost what a change of settings costs, in units of the metric (of several: of their weighted mean, each in
                deviations); settings then change only if the expected gain over ten steps exceeds it
    budget      share of the default's loss by which the sum of losses may exceed the default's, as far as the model
                can tell, plus the budget of 300 steps as a start-up allowance; one run books at most two steps of
                the default's loss; what was surely gained may be spent, too, so that 0 still explores, unlike
                freeze(default=True). None, or no `default`: no budget
    guard       margin: once a little is known, avoids suggestions whose forecast, plus one deviation, is over the
                default's by more than this share of it; 0.1 is ten percent
    holdout     share of steps, as 0.05, that run the default instead of a suggestion, drawn at random: then `savings()`
                tells what was gained against it; None: no steps
    shield      a ContextShield: contexts are turned by a secret key, or noised, before anything is kept of them
    goal        "live": as good as can be on the way; "find": some runs, then the best setting found is used. What the
                runs cost on the way does not count then, so there is no budget and no guard (docs/TUNE.md)
    constraints rules that every suggestion keeps, as ["a * b <= 2048"]; the default must keep them, too
    max_change  how far a knob moves at most from one run to the next: 0.1 of its range, "20%" of its value, "2 steps",
                for all knobs or by name (docs/OPERATORS.md); None: as far as it likes
    """

    def __init__(
        self,
        space: Mapping[str, Knob],
        metrics: Mapping[str, Metric | Direction],
        context: Schema = None,
        default: Mapping[str, object] | None = None,
        *,
        preset: str | Preset = "default",
        seed: int = 0,
        max_pending: int = 1000,
        switching_cost: float = 0.0,
        guard: float | None = None,
        budget: float | None = BUDGET,
        holdout: float | None = None,
        shield: ContextShield | None = None,
        goal: Goal = "live",
        constraints: Sequence[str] = (),
        max_change: MaxChangeGiven | None = None,
    ) -> None:
        self._space = Space(space, constraints, default)
        self._encoder = context_encoder(context) if shield is None else shield.check(context)
        self._ledger = Ledger(whole("max_pending", max_pending, 1, 1_000_000, InvalidSpace))
        self._default = self._space.default
        self._preset = with_options(preset, switching_cost, guard, budget, default is not None, goal)
        self._seed = whole("seed", seed, 0, 2**64 - 1, InvalidSpace)
        self._rng = np.random.default_rng(self._seed)
        layout = self._space.layout(self._default)
        self._optimizer = self._preset.build(layout, self._encoder.dim, metrics, self._rng)
        self._guard = one_thread() if self._optimizer.uses_blas else contextlib.nullcontext()  # around every step
        self._has_default = default is not None
        self._holdout = checked_holdout(holdout, self._has_default)
        signs = {name: one.sign for name, one in self._optimizer.metrics.items()}
        self._savings, self._forecasts = SavingsLedger(signs), ForecastLedger(signs)
        self._frozen, self._frozen_at_default = False, False
        self._current = self._default  # the latest own suggestion that was answered
        self._max_change = None if max_change is None else MaxChange(self._space, max_change)
        self._moves_from = self._default  # the latest suggestion that ran to its end, but for the holdout's
        self._expects = TunerForecasts(self._space, self._encoder.dim, self._preset, self._optimizer, self._default)
        self._lineage = Lineage(self._seed)
        self._record = StepRecord(list(self._optimizer.metrics), self._space.dim, self._encoder.dim)

    @classmethod
    def from_log(
        cls,
        records: Source,
        *,
        space: Mapping[str, Knob],
        metrics: Mapping[str, Metric | Direction],
        context: Schema = None,
        missing: Missing = "refuse",
        time: str | None = None,
        **settings: Any,
    ) -> tuple["Tuner", LogReport]:
        """A tuner that has learned from past records, and a report; the order of the records does not matter.

        records   mappings with context, params and metrics; or a CSV file, or columns by name
        missing   "refuse" or "drop": logs.py states each rule
        time      the field to learn them in the order of; without it they are shuffled, always the same way
        settings  as of `Tuner`: default, preset, seed, ...
        """
        tuner = cls(space, metrics, context, **settings)
        found, report = samples(records, tuner._space, context_encoder(context), list(metrics), missing, time)
        for sample in found:
            tuner._observe(tuner._encoder.keep(sample.context), sample.params, sample.metrics)
        return tuner, report

    def __repr__(self) -> str:
        return (
            f"<Tuner preset={self._preset.name!r} goal={self.goal!r} knobs={list(self._space.knobs)}"
            f" learned={self.learned} pending={len(self._ledger.pending)}>"
        )

    @property
    def learned(self) -> int:
        """How many samples were told, observed or merged."""
        return self._lineage.total

    @unguarded
    def ask(
        self,
        context: Context = None,
        *,
        holdout: float | None = None,
        among: Listed | Iterable[Mapping[str, object]] | None = None,
    ) -> Suggestion:
        """Parameters to run in this context, under an id to answer with; the default if nothing is known at all.

        `holdout` is the probability, for this ask only, that the default is drawn instead (docs/SAVINGS.md).
        `among`, with goal "find": only these settings can run. `tuner.listed(settings)` checks many of them once.
        """
        listed = None if among is None else self.listed(among)
        checked_holdout(holdout, self._has_default, MOST_HELD_OUT)
        seen = self._encoder.encode(context)
        first = self._ledger.issued == 0 and not self._lineage.held
        proposal = None
        with self._guard:
            if self._frozen and self._frozen_at_default:
                proposal = Proposal(self._default, Explanation(source="default (frozen)"))
            elif self._frozen and not first:
                best = self._expects.recommended(seen, listed)
                proposal = Proposal(best, Explanation(source="recommendation (frozen)"))
            elif not first:
                proposal = self._optimizer.propose(seen, self._current, self._rng, self._scope(seen, listed))
        if proposal is None:  # nothing is known yet
            proposal = Proposal(self._default, Explanation(source="default"))
        if listed is not None:
            proposal = proposal._replace(point=listed.nearest(proposal.point))
        params, legal = self._space.nearest(proposal.point)
        if self._max_change is not None and not np.array_equal(legal, self._default):
            proposal = self._within_reach(self._max_change, seen, legal, proposal.why)
            params, legal = self._space.nearest(proposal.point)
        return self._issued(seen, params, legal, proposal.why, holdout)

    def listed(self, settings: Listed | Iterable[Mapping[str, object]]) -> Listed:
        """Settings to `ask` among, checked; `.where(mask)` keeps some of them."""
        if not self.searches:
            raise InvalidValue('among needs a tuner that searches: Tuner(..., goal="find")')
        return settings if isinstance(settings, Listed) else Listed.of(self._space, settings)

    def ask_for(
        self, context: Context, params: Mapping[str, object], source: str = "chosen by the caller"
    ) -> Suggestion:
        """A suggestion of these settings, which somebody else chose: with an id, a forecast and a stop as any other.

        With a holdout the default may be drawn in their place. `source` is what `explain` says of it.
        """
        if not isinstance(source, str) or not source:
            raise InvalidValue(f"source must be a few words, got {show(source)}")
        settings, point = self._space.what_ran({}, params)
        self._space.check_constraints(settings)
        seen = self._encoder.encode(context)
        return self._issued(seen, settings, point, self._optimizer.reasons_at(seen, point, source))

    def withdraw(self, id: str) -> None:
        """Take back a suggestion that will not run: it waits for no answer any more, and nothing is learned."""
        self._ledger.withdraw(id)

    def check_context(self, context: Context) -> None:
        """Nothing, if `ask` would take this context; else the error it would raise."""
        self._encoder.encode_readonly(context)

    @unguarded
    def tell(
        self,
        id: str,
        metrics: Mapping[str, float],
        params: Mapping[str, object] | None = None,
        *,
        stopped: bool = False,
        control: Mapping[str, float] | None = None,
    ) -> None:
        """Learn what the suggestion `id` led to.

        `params` says what ran, for a system that clips or rounds settings; knobs it leaves out ran as suggested.
        `stopped`: the run was ended here, and would have come to these metrics or worse.
        `control` has the same metrics, measured at the same time on like work under the default: noise that both share
        cancels. Give one with every tell, or with none (docs/SAVINGS.md).
        """
        stopped, record = flag("stopped", stopped), self._ledger.waiting(id)
        point, ran = (record.point, None) if params is None else self._what_ran(record.point, params)
        with self._guard:
            expected, weight = self._expected(record, point)
            learned = metrics if control is None else self._beside_control(record.context, metrics, control)
            outcome = self._optimizer.tell(
                record.context, point, learned, self._rng, Asked(record.point, record.why.stop), stopped
            )
            self._note(id, record.context, point, metrics, stopped)
            self._forecasts.add(metrics, expected, point.tolist() == self._default.tolist(), weight)
        self._count_savings(record, metrics, control, stopped)
        self._current = point
        if self._max_change is not None and not (stopped or record.why.explanation().source == HELD_OUT):
            self._moves_from = point
        self._ledger.answer(id, Answered(record.why, outcome.error, outcome.path, outcome.reason, ran))
        if log.isEnabledFor(logging.DEBUG):
            log.debug("tell %s: %s%s", id, dict(metrics), " (stopped)" if stopped else "")

    def tell_failed(self, id: str, reason: str = "", params: Mapping[str, object] | None = None) -> None:
        """Learn that the suggestion `id` crashed or was invalid: as bad as errors get, and never a best.

        `params` as for `tell`.
        """
        record = self._ledger.waiting(id)
        if not isinstance(reason, str):
            raise InvalidValue(f"reason must be a string, got {show(reason)}")
        point, ran = (record.point, None) if params is None else self._what_ran(record.point, params)
        outcome = self._optimizer.tell_failed(record.context, point, self._rng, Asked(record.point, record.why.stop))
        self._note(id, record.context, point, None)
        self._forecasts.add_failed()
        self._count_savings(record, None)
        failure = reason[:LONGEST_REASON]
        self._ledger.answer(id, Answered(record.why, FAILED_ERROR, outcome.path, outcome.reason, ran, failure))
        log.info("%s failed: %s", id, " ".join(failure.split()) or "no reason given")

    def trial(self, context: Context = None) -> Trial:
        """One ask and its answer around a block: `with tuner.trial(context) as t: ...; t.report(p99_ms=...)`.

        A block that raises is told as failed.
        """
        return Trial(lambda: self.ask(context), self)

    def observe(
        self,
        context: Context,
        params: Mapping[str, object],
        metrics: Mapping[str, float],
        *,
        stopped: bool = False,
    ) -> None:
        """Learn from a run nobody asked for: a log line, another tuner, a hand-made change; `stopped` as for `tell`."""
        self._observe(self._encoder.encode(context), params, metrics, flag("stopped", stopped))

    def observe_failed(self, context: Context, params: Mapping[str, object]) -> None:
        """Learn that a run nobody asked for crashed or was invalid."""
        seen, point = self._encoder.encode(context), self._space.to_unit(params)
        self._optimizer.tell_failed(seen, point, self._rng)
        self._ledger.note_observed(point)
        self._note(None, seen, point, None)

    def tell_sums(self, sums: Iterable[Mapping[str, object]]) -> int:
        """Learn runs that were added up before they were told, as `OutcomeSums.take` gives them; how many there were.

        Each sum is of one setting: count, sum and sum of squares of each metric, and some contexts in which it ran. It
        counts as all of its runs (docs/EDGE.md). Those with the version of a policy were suggested by this tuner.
        """
        if not isinstance(sums, Iterable) or isinstance(sums, str | Mapping):
            raise InvalidValue(f"sums must be a list of sums, got {show(sums)}")
        if self._preset.name == "paper":
            raise InvalidValue('preset "paper" learns run by run: it cannot learn sums of runs')
        metrics, has_context = self._optimizer.metrics, bool(self._encoder.dim)
        found = [outcome_sum(f"sums[{i}]", one, metrics, has_context) for i, one in enumerate(sums)]
        points = [self._space.to_unit(one.params, f"sums[{i}].params") for i, one in enumerate(found)]
        for i, one in enumerate(found):
            for k, context in enumerate(one.contexts):
                try:
                    self.check_context(context)
                except InvalidValue as reason:
                    raise InvalidValue(f"sums[{i}].contexts[{k}]: {reason}") from None
        total = sum(one.count for one in found)
        for i, (one, point) in enumerate(zip(found, points, strict=True)):
            self._tell_sum(one, point, i, max(round(SUMS_ON_RECORD * one.count / total), 1))
        if any(one.is_own for one in found):
            self._current = points[max(range(len(found)), key=lambda i: found[i].count if found[i].is_own else 0)]
        return total

    def _tell_sum(self, one: OutcomeSum, point: Array, ago: int, rows: int) -> None:
        """Learn a sum, so many after those that ran with it; up to `rows` of its contexts go on record."""
        contexts = [self._encoder.encode(context) for context in one.contexts] or [np.zeros(0)]
        seen, forecasts = np.mean(contexts, axis=0), dict[str, StepForecast]()
        if one.is_own and self.learned >= LEAST_LEARNED:
            forecasts = self._expects.step_forecasts(seen, point)
        repeats = Repeats(one.count, one.variances, ago)
        self._optimizer.tell(seen, point, one.means, self._rng, Asked(point) if one.is_own else None, repeats=repeats)
        for context in contexts[:rows]:  # a mean of texts would be no text
            self._record.add(self._lineage.total, NOT_ASKED, context, point, one.means)
        self._lineage.add(seen, point, one.means, one.count)
        if one.is_own:
            self._forecasts.add(one.means, forecasts, point.tolist() == self._default.tolist(), one.count, one.count)

    def freeze(self, *, default: bool = False) -> None:
        """Stop exploring: until `unfreeze`, every ask gets the recommendation. What is told is still learned.

        With `default=True` every ask gets the default: back to what ran before, in one call.
        """
        self._frozen, self._frozen_at_default = True, default is True

    def unfreeze(self) -> None:
        """Explore again."""
        self._frozen, self._frozen_at_default = False, False

    @property
    def frozen(self) -> bool:
        return self._frozen

    @property
    def frozen_at_default(self) -> bool:
        """Whether every ask gets the default."""
        return self._frozen_at_default

    def reweigh(self, weights: Mapping[str, float]) -> None:
        """Change the weights of some metrics; everything ever told is seen in the new light at once."""
        self._optimizer.reweigh(weights)

    def merge(self, other: "Tuner") -> None:
        """Learn all that another tuner of the same kind has learned; `other` is not changed.

        Prompts are sums, so they add: in any order, all tuners hold the same sums (docs/ENGINE.md says what else). No
        sample counts twice: tuners that hold samples of one tuner, as a copy and its original do, are refused; give
        every tuner a seed of its own. Of `other`, suggestions that wait and the weights of metrics do not come along.
        """
        if not isinstance(other, Tuner):
            raise InvalidValue(f"only a Tuner can be merged into a tuner, got {show(other)}")
        theirs = other._kind()
        for name, own in self._kind().items():
            if own != theirs[name]:
                raise InvalidValue(f"tuners to be merged must have the same {name}: {show(own)}, {show(theirs[name])}")
        self._lineage.check_apart(other._lineage)
        self._optimizer.merge(other._optimizer, self._lineage.before(other._lineage))
        self._savings.merge(other._savings)
        self._forecasts.merge(other._forecasts)
        self._lineage.merge(other._lineage)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write everything to `path`, atomically; equal tuners write equal bytes."""
        snapshot.write(path, self.to_bytes())

    @classmethod
    def load(cls, path: str | os.PathLike[str], *, shield: ContextShield | None = None) -> "Tuner":
        """The tuner that was saved: from here on it does, bit for bit, what that one would have done.

        The number of cores and of BLAS threads makes no difference: BLAS runs on one thread while a tuner computes.
        One that was saved with a shield needs it again, for the snapshot does not hold its key.
        """
        return cls.from_bytes(snapshot.read(path), shield=shield)

    def to_bytes(self) -> bytes:
        """The snapshot that `save` writes."""
        return self.capture()()

    def capture(self, explained: int | None = None) -> Callable[[], bytes]:
        """A snapshot of this moment, copied fast; calling it, later and in any thread, makes the bytes.

        `explained` keeps only so many of the latest steps and explanations, which take most of the time and room.
        """
        header: dict[str, object] = {
            "space": self._space.to_json(),
            "constraints": self._space.constraints,
            "default": self._space.from_unit(self._default),
            "metrics": {name: metric.to_json() for name, metric in self._optimizer.metrics.items()},
            "context": self._encoder.to_json(),
            "preset": {"name": self._preset.name, "constants": dict(self._preset.constants)},
            "seed": self._seed,
            "random": self._rng.bit_generator.state,
            "learned": self.learned,
            "lineage": self._lineage.to_json(),
            "frozen": self._frozen,
        }
        if self._frozen_at_default:
            header["frozen_at_default"] = True
        if self._holdout is not None:
            header["holdout"] = self._holdout
        if self._max_change is not None:
            header["max_change"] = self._max_change.given
        if isinstance(self._encoder, ContextShield):
            header["shield"] = self._encoder.state()
        ledger, dims = self._ledger.copy(explained), (self._space.dim, self._encoder.dim)
        arrays = {"default": self._default.copy(), "current": self._current.copy()}
        arrays["history/rows"] = self._record.rows(explained)
        if self._max_change is not None:
            arrays["moves_from"] = self._moves_from.copy()
        if self._savings.seen:
            arrays |= {f"savings/{name}": array for name, array in self._savings.state().items()}
        if self._forecasts.seen:
            arrays |= {f"forecasts/{name}": array for name, array in self._forecasts.state().items()}
        state = {name: array.copy() for name, array in self._optimizer.state().items()}

        def encode() -> bytes:
            told = {f"ledger/{name}": array for name, array in ledger.state(*dims).items()}
            return snapshot.encode({**header, "ledger": ledger.to_json()}, {**arrays, **told, **state})

        return encode

    @classmethod
    def from_bytes(cls, data: bytes, *, shield: ContextShield | None = None) -> "Tuner":
        """The tuner that `to_bytes` described."""
        header, arrays = snapshot.decode(data)
        if (shield is None) != (header.get("shield") is None):
            said = (
                "with a shield: give it, as in Tuner.load(path, shield=...)" if shield is None else "without a shield"
            )
            raise SnapshotError(f"the snapshot was made {said}")
        try:
            return cls._rebuild(header, arrays, shield)
        except (RaspError, ValueError, LookupError, TypeError, AttributeError, ArithmeticError) as reason:
            if isinstance(reason, ImportError | SnapshotError):
                raise
            kind = "" if isinstance(reason, RaspError) else f"{type(reason).__name__}: "
            raise SnapshotError(f"the snapshot does not describe a tuner: {kind}{reason}") from reason

    @classmethod
    def _rebuild(cls, header: Mapping[str, Any], arrays: Mapping[str, Array], shield: ContextShield | None) -> "Tuner":
        space, preset = Space.from_json(header["space"]), named(header["preset"]["name"], header["preset"]["constants"])
        context_dim = (context_encoder(header["context"]) if shield is None else shield).dim
        least = preset.least_numbers(space.layout(space.default), context_dim)
        there = sum(array.size for array in arrays.values())
        if there < least:  # before anything of that size is built
            raise SnapshotError(f"a tuner of this kind is at least {least} numbers, the snapshot has {there}")
        if shield is not None:
            shield.check_state(header["shield"])
        tuner = cls(
            space.knobs,
            {name: Metric(**fields) for name, fields in header["metrics"].items()},
            header["context"],
            header["default"],
            preset=preset,
            budget=preset.constants.get("budget"),
            holdout=header.get("holdout"),
            seed=header["seed"],
            shield=shield,
            constraints=header["constraints"],
            max_change=header.get("max_change"),
        )
        points = ("default", "current", *(["moves_from"] if tuner._max_change is not None else []))
        own = checked(arrays, dict.fromkeys(points, Field((space.dim,), 0.0, 1.0)), {})
        if not np.allclose(own["default"], tuner._default, rtol=0.0, atol=SAME_POINT):
            raise broken(arrays, "default", "be the point of the default", own["default"].tolist())
        tuner._default = tuner._expects.default = own["default"]
        tuner._current = own["current"]
        tuner._moves_from = own.get("moves_from", tuner._default)
        tuner._ledger = Ledger.rebuild(header["ledger"], under("ledger/", arrays), space.dim, tuner._encoder.dim)
        learned = whole("learned", header["learned"], 0, MOST_SAMPLES)
        tuner._lineage = Lineage.rebuild(tuner._seed, header["lineage"], learned)
        tuner._record.restore(under("history/", arrays))
        if saved := under("savings/", arrays):
            tuner._savings.restore(saved)
        if saved := under("forecasts/", arrays):
            tuner._forecasts.restore(saved)
        tuner._frozen = header["frozen"] is True
        tuner._frozen_at_default = tuner._frozen and header.get("frozen_at_default") is True
        tuner._optimizer.restore(arrays)
        tuner._rng.bit_generator.state = header["random"]
        if shield is not None:  # last: it is the caller's, who keeps it if the rest is refused
            shield.restore(header["shield"])
        return tuner

    def _kind(self) -> dict[str, object]:
        """What tuners must have in common to be merged."""
        metrics = [
            (name, metric.direction, metric.scale, metric.limit) for name, metric in self._optimizer.metrics.items()
        ]
        return {
            "space": list(self._space.knobs.items()),
            "constraints": self._space.constraints,
            "metrics": metrics,
            "context": self._encoder.to_json(),
            "shield": self._encoder.mark if isinstance(self._encoder, ContextShield) else None,
            "default": self._space.from_unit(self._default),
            "preset": self._preset,
            "holdout": self._holdout,
        }

    def _issued(self, seen: Array, params: Params, legal: Array, why: Why, holdout: float | None = None) -> Suggestion:
        """A suggestion under a new id; where a holdout draws the default, that. `holdout`: of this ask alone."""
        share = self._holdout if holdout is None else holdout
        if share is not None and not self._frozen and not np.array_equal(legal, self._default):
            legal, why = self._drawn(legal, why, share)
            params = self._space.from_unit(legal)
        elif holdout is not None:
            why = Drawn(why, 1.0, False)  # the default needs no draw
        id = self._ledger.issue(seen, legal, why)
        if log.isEnabledFor(logging.DEBUG):
            log.debug("ask %s: %s (%s)", id, params, why.explanation().source)
        return Suggestion(id, params, why.stop)

    def _within_reach(self, max_change: MaxChange, context: Array, wanted: Array, why: Why) -> Proposal:
        """What is wanted, or as much of the way to it as one step may go."""
        point = max_change.towards(self._moves_from, wanted)
        if point is wanted:
            return Proposal(wanted, why)
        source = f"{why.explanation().source}, as far on the way as max_change lets it go"
        with self._guard:
            return Proposal(point, self._optimizer.reasons_at(context, point, source))

    def _drawn(self, suggested: Array, why: Why, share: float) -> Proposal:
        """The suggestion, or with a probability of `share` the default in its place."""
        held_out = bool(self._rng.random() < share)
        drawn = Drawn(why, share if held_out else 1.0 - share, held_out)
        return Proposal(self._default if held_out else suggested, drawn)

    def _beside_control(
        self, context: Array, metrics: Mapping[str, float], control: Mapping[str, float]
    ) -> dict[str, float]:
        """What the metrics would have been if the control had given what is expected of the default.

        The control is learned as a run of the default, without most of the noise that it shares with the run, where
        the default is not known as well as one run would tell. A limit that is a fixed value is kept or broken by what
        was measured.
        """
        kinds = self._optimizer.metrics
        told, beside = checked_metrics("metrics", metrics, kinds), checked_metrics("control", control, kinds)
        if self._preset.name == "paper":
            raise InvalidValue('preset "paper" does not forecast the default, so it cannot learn from a control')
        levels = self._expects.levels(context, [self._default])[0]
        if not self._optimizer.model.knows(context, self._default):
            told_level = {
                name: near_level(beside[name], *levels[name]) if name in levels else beside[name] for name in kinds
            }
            self._optimizer.tell(context, self._default, told_level, self._rng)
            levels = self._expects.levels(context, [self._default])[0]
        self._note(None, context, self._default, beside)
        for name, level in levels.items():
            limit = kinds[name].limit
            if limit is None or limit.relative:
                told[name] = beside_control(told[name], beside[name], level.mean)
        return told

    def _count_savings(
        self,
        record: Pending,
        metrics: Mapping[str, float] | None,
        control: Mapping[str, float] | None = None,
        stopped: bool = False,
    ) -> None:
        """Count a step where what runs was drawn, or has a control; and where the default was suggested."""
        may_be_drawn = isinstance(record.why, Drawn | Explanation)
        chance = record.why.explanation().propensity if may_be_drawn else None
        if self._holdout is None and control is None and chance is None:
            return
        is_default = np.array_equal(record.point, self._default)
        drawn = chance is not None and chance < 1.0
        if not drawn and not is_default and control is None:  # frozen
            return
        draw = None
        if drawn or not is_default:
            why = record.why.explanation()
            share = 0.0 if chance is None else chance if is_default else 1.0 - chance
            draw = Draw(is_default, share, why.instead if is_default else why.predicted, why.level)
        self._savings.add(draw, metrics, control, self._weights(), stopped)

    def _expected(self, record: Pending, point: Array) -> tuple[dict[str, StepForecast], int]:
        """What was expected of each metric before a step ran, and how many steps it stands for; 0: others do.

        Of one metric that is known since the ask; of several, and of frozen tuners, it is computed, for some steps.
        """
        name, outlook = self._optimizer.model.own_metric, record.why.outlook()
        if name is not None and outlook is not None:
            sign = self._optimizer.metrics[name].sign
            shared = believed_deviation(outlook.level - outlook.predicted, outlook.better, outlook.deviation)
            return {name: StepForecast(sign * outlook.level, shared, outlook.deviation)}, 1
        weight = self._forecasts.stands_for(self._ledger.issued, len(self._optimizer.metrics))
        if not weight or self.learned < LEAST_LEARNED:
            return {}, weight
        return self._expects.step_forecasts(record.context, point), weight

    def _observe(
        self, seen: Array, params: Mapping[str, object], metrics: Mapping[str, float], stopped: bool = False
    ) -> None:
        point = self._space.to_unit(params)
        self._optimizer.tell(seen, point, metrics, self._rng, stopped=stopped)
        self._ledger.note_observed(point)
        self._note(None, seen, point, metrics, stopped)

    def _note(
        self,
        id: str | None,
        context: Array,
        point: Array,
        metrics: Mapping[str, float] | None,
        stopped: bool = False,
    ) -> None:
        """Put a sample that was learned on record."""
        asked = NOT_ASKED if id is None else int(id[1:])
        self._record.add(self._lineage.total, asked, context, point, metrics, stopped)
        self._lineage.add(context, point, metrics)

    def _what_ran(self, suggested: Array, params: Mapping[str, object]) -> tuple[Array, Params | None]:
        """The point that ran, and its parameters if they are not the suggested ones."""
        planned = self._space.from_unit(suggested)
        ran, point = self._space.what_ran(planned, params)
        return point, None if ran == planned else ran
