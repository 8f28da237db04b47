"""TunerView: what a tuner shows of itself. Nothing here learns, and nothing is left to chance."""

import json
import math
import os
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from rasp_tuner import context_report
from rasp_tuner.base.checks import number, show, whole
from rasp_tuner.base.common_constants import LIKELY
from rasp_tuner.base.numerics import Array
from rasp_tuner.base.threads import InTurn, methods_in_turn, methods_on_one_thread, unguarded
from rasp_tuner.context_report import LATEST_SAMPLES, ContextReport, untested
from rasp_tuner.contexts.context_encoder import ContextEncoder, KindEncoder, RawContext
from rasp_tuner.contexts.context_metric import filled
from rasp_tuner.errors import InvalidValue
from rasp_tuner.files import snapshot
from rasp_tuner.gain.savings import HELD_OUT, SavingsLedger
from rasp_tuner.gain.versus_default import ForecastLedger, Gain, StepGain, VersusDefault
from rasp_tuner.optimizer.optimizer import ANY, Expected, Optimizer, Scope, Waiting
from rasp_tuner.presets import Preset
from rasp_tuner.privacy import ContextShield
from rasp_tuner.records.ledger import Ledger
from rasp_tuner.records.lineage import Lineage, named
from rasp_tuner.records.step_record import MOST_STEPS, StepRecord
from rasp_tuner.report import notebook
from rasp_tuner.report.decided import FinalDecision
from rasp_tuner.report.history import History
from rasp_tuner.report.looks import LOOKED_AT_STEPS, Looks, looks_of
from rasp_tuner.report.steps import Decoder, Names, history_of, with_texts
from rasp_tuner.space import Knob, Listed, MaxChange, Params, Space
from rasp_tuner.tuner_forecasts import TunerForecasts
from rasp_tuner.types import Budget, Explanation, Goal, KnobShares, Margin, Revisit, Slots, Suggestion, Why
from rasp_tuner.what_if import WhatIf

if TYPE_CHECKING:
    from rasp_tuner.policy.report import PolicyReport
    from rasp_tuner.report.situation_gains import SituationGain
    from rasp_tuner.report.visits_on_record import SeenBefore

Context = RawContext
MOST_IN_FLIGHT = 32  # asks without an answer whose settings are taken into account: others may never be answered
SCREENED_CONTEXTS = 40  # different ones of which is told what would be lost without them
MOST_CONTEXTS = 200  # different ones that situations are made of


NOT_KEPT = "contexts behind a shield, and those of more than 32 numbers, are not kept"


@methods_in_turn
@methods_on_one_thread
class TunerView(InTurn):
    """The half of a Tuner that only reads."""

    _space: Space
    _encoder: ContextEncoder | ContextShield
    _optimizer: Optimizer
    _expects: TunerForecasts
    _ledger: Ledger
    _lineage: Lineage
    _preset: Preset
    _record: StepRecord
    _savings: SavingsLedger  # measured
    _forecasts: ForecastLedger
    _default: Array  # [d]
    _current: Array  # [d] what ran last
    _frozen: bool
    _frozen_at_default: bool
    _holdout: float | None
    _max_change: MaxChange | None
    _before: "SeenBefore | None" = None  # the visits on record, made when they are needed

    def recommend(
        self, context: Context = None, among: Listed | Iterable[Mapping[str, object]] | None = None
    ) -> Params:
        """The best parameters known for the nearest context, without exploring; the default while nothing is known.

        Under preset "paper", best means the smallest composed error, which is relative to its time (docs/PAPER.md).
        `among`: of these settings only, and the default. Of a search (goal "find") only these can run: without the
        default among them it is the best that keeps the limits, or likely does, or else the likeliest to.
        """
        return self._space.from_unit(self._expects.recommended(self._encoded(context), among))

    def margins(self, context: Context = None, params: Mapping[str, object] | None = None) -> dict[str, Margin]:
        """How far the recommended parameters, or these, keep each metric from its limit in this context, if it has one.

        Empty while nothing is known.
        """
        seen = self._encoded(context)
        point = self._expects.recommended(seen) if params is None else self._space.to_unit(params)
        return self._optimizer.margins(seen, point)

    def expected_of_default(self, context: Context = None) -> float | None:
        """The error expected of the default in this context, in units of `Explanation.error`.

        None while too little is known, and under preset "paper".
        """
        expected = self._optimizer.model.expect(self._encoded(context), self._default)
        return None if expected is None else expected.mean

    def default_levels(self, context: Context = None) -> dict[str, Expected]:
        """What the default is expected to give of each metric in this context, in the metric's own units.

        Each with the interval that holds it nine times in ten. Empty while too little is known, and under preset
        "paper". With several metrics it takes as long as a few asks.
        """
        return self._expects.levels(self._encoded(context), [self._default])[0]

    def what_if(
        self,
        context: Context = None,
        params: Mapping[str, object] | None = None,
        *,
        among: Iterable[Mapping[str, object]] | None = None,
    ) -> WhatIf:
        """What these settings are expected to give in this context, beside the default and the recommendation.

        Knobs that `params` leaves out are as in the default; without `params` it is about the recommendation. `params`
        must keep the constraints. `among` as of `recommend`. Changes nothing. Without forecasts while too little is
        known, and under preset "paper".
        """
        seen = self._encoded(context)
        recommended = self._expects.recommended(seen, among)
        settings = [self.default, self._space.from_unit(recommended)]
        given, point = settings[1], recommended
        if params is not None:
            given, point = self._space.what_ran(settings[0], params)
            self._space.check_constraints(given)
        points = [point, self._default, recommended]
        levels = self._expects.levels(seen, points)
        own, default, best = map(self._expects.forecast, [seen] * 3, points, [given, *settings], levels)
        alike = self._optimizer.model.similar_runs(seen)
        runs, ago = (None, None) if alike is None else [x if math.isfinite(x) else None for x in alike]
        return WhatIf(own, default, best, runs, ago)

    def situations(
        self, texts: Mapping[str, Iterable[str]] | None = None, *, contexts: int = MOST_CONTEXTS
    ) -> "list[SituationGain]":
        """Situations by their context values, most frequent first: what is recommended, what it gains, by which knobs.

        Made of up to `contexts` different ones on record. All by forecast; `str()` of each is a sentence. `texts`
        as of `history`.
        """
        from rasp_tuner.report.situation_gains import situation_gains  # few programs ask: the others start without it

        found, names = self._different_contexts(whole("contexts", contexts, 1, MOST_STEPS)), self._names(texts)
        decoded = [
            values if isinstance(values, dict) else dict(zip(names.context, values, strict=True))
            for values in map(names.decode, found)
        ]
        return situation_gains(self._expects, found, decoded) if found and self._lineage.total else []

    def _encoded(self, context: RawContext) -> Array:
        """A context [d_c] that is only looked at; what was never missing before does not count where it is now."""
        seen = self._encoder.encode_readonly(context)
        optional = self._encoder.missing_flags if isinstance(self._encoder, KindEncoder) else []
        if not any(seen[own[-1]] == 1.0 for own in optional):
            return seen
        return filled(seen, optional, self._optimizer.model.slots().contexts, self._optimizer.model.relevance())

    def _different_contexts(self, most: int) -> list[Array]:
        """Different ones on record, at even distances; of a tuner without steps on record those in memory."""
        if not self._encoder.dim:
            return [np.zeros(0)]
        found = list(self._record.parts()[3])
        if not len(self._record):
            slots = self._optimizer.model.slots().contexts
            found = list(slots) if slots.shape[1] == self._encoder.dim else []
        elif not self._record.keeps_context:
            return []
        different = list({context.tobytes(): context for context in found}.values())
        kept = np.unique(np.linspace(0, len(different) - 1, min(len(different), most)).round().astype(int))
        return [different[i] for i in kept]

    def budget(self) -> Budget | None:
        """What suggestions have cost and gained against the default so far; None without a budget."""
        return self._optimizer.model.budget()

    def versus_default(self) -> VersusDefault | None:
        """What suggestions have gained against the default: the figure that every page, command and client shows.

        With a `holdout` or controls it is measured. Without, and until enough is, it is a forecast: what the tuner
        expected of the default in the same situations, less what came. None while no step has been answered, and under
        preset "paper".
        """
        measured, forecast = self.savings(), self._forecasts.report(self.scales, self._weights())
        return measured if measured is not None and (measured.is_known or forecast is None) else forecast

    @unguarded  # as what follows every tell in a service, and computes nothing
    def latest_step_gain(self) -> dict[str, StepGain]:
        """The latest answered step beside the default, by metric; empty where that was not forecast."""
        return dict(self._forecasts.latest)

    def savings(self) -> VersusDefault | None:
        """What was measured against the default, with an interval that holds at every look.

        None without a `holdout` or controls, and while no step has been answered (docs/SAVINGS.md).
        """
        return self._savings.report()

    def looks(self) -> Looks | None:
        """Whether it still tries what is less known, by the latest 50 answered suggestions; `str()` says it in words.

        None before the first answer, and under preset "paper".
        """
        latest = self._ledger.latest_sources(LOOKED_AT_STEPS)
        return looks_of(latest, self.searches) if latest and self._preset.name == "default" else None

    def _weights(self) -> dict[str, float]:
        return {name: metric.weight for name, metric in self._optimizer.metrics.items()}

    @property
    def knobs(self) -> dict[str, Knob]:
        """What is tuned, by name."""
        return dict(self._space.knobs)

    @property
    def default(self) -> Params:
        """What runs where nothing better is known."""
        return self._space.from_unit(self._default)

    @property
    def context_schema(self) -> dict[str, Any] | list[str] | int | None:
        """What `ask` wants to know of a situation, as JSON: names, names with their kinds, a length, or None."""
        return self._encoder.to_json()

    @property
    def scales(self) -> dict[str, str]:
        """On which scale each metric is compared now: "linear" or "log"."""
        return self._optimizer.scales

    @property
    def experts(self) -> tuple[str, ...]:
        """What each entry of `Explanation.gate` stands for, in words."""
        return self._optimizer.model.experts

    def slots(self) -> Slots:
        """The situations in memory, as copies; for people to look at."""
        return self._optimizer.model.slots()

    @unguarded
    def relevance(self) -> np.ndarray | None:
        """[d_c] how much each dimension of the encoded context counts in the likeness of two contexts, as learned.

        None where all knobs are continuous and under preset "paper": there it is not learned.
        """
        return self._optimizer.model.relevance()

    def context_report(self) -> ContextReport:
        """Is the context any good? By the latest samples in memory, 128 of them or fewer (docs/CONTEXT.md).

        Takes about a second, changes nothing.
        """
        if self._encoder.dim == 0:
            return untested("this tuner was built without context")
        seen, slots, names, memory = self._optimizer.model.recent(), self._optimizer.model.slots(), None, None
        if seen.contexts.shape[1] == self._encoder.dim:
            names, known = self._encoder.labels, slots.contexts[slots.last >= LATEST_SAMPLES]
            memory = known if len(known) else None
        scale: Literal["linear", "log"] = "log" if set(self.scales.values()) == {"log"} else "linear"
        report = context_report.screen(seen.contexts, seen.points, seen.errors, names, memory, scale)
        return report.beside_model(self._lost_without_context())

    def _lost_without_context(self) -> Gain | None:
        from rasp_tuner.report.situation_gains import lost_without_context  # few programs ask

        metric, contexts = self._optimizer.model.own_metric, self._different_contexts(SCREENED_CONTEXTS)
        if metric is None or len(contexts) < 2 or not self._lineage.total:
            return None
        return lost_without_context(self._expects, contexts, metric)

    def history(self, texts: Mapping[str, Iterable[str]] | None = None, latest: int | None = None) -> History:
        """The latest steps, up to 1,000, as a table: contexts, what ran, what came, who chose it and what was expected.

        `texts` names texts of contexts, as in {"region": ["eu", "us"]}: a tuner keeps only hashes of those, so that
        others are shown as marks. `latest` gives only so many steps, which is faster.
        """
        most = None if latest is None else whole("latest", latest, 0, MOST_STEPS)
        return history_of(self._record, self._ledger, self._names(texts), self._lineage.total, most)

    def report(
        self,
        path: str | os.PathLike[str],
        *,
        title: str | None = None,
        texts: Mapping[str, Iterable[str]] | None = None,
        decided: FinalDecision | None = None,
    ) -> None:
        """Write a page to look at: one HTML file that needs no network and no script.

        Gain against the default, metrics and knobs over steps, settings for each situation, budget, limits;
        of the steps in `history`. `texts` as there. `decided`: what a final comparison settled, in the place of what
        the tuner recommends.
        """
        from rasp_tuner.report.page import Shown, tuner_page  # few programs draw: the others start without it

        names, learned = self._names(texts), self._lineage.total
        history = history_of(self._record, self._ledger, names, learned)
        parts = (self._record, self._ledger, self._optimizer)
        page = tuner_page(
            Shown(
                title,
                history,
                names,
                *parts,
                learned,
                self._visited(),
                self.versus_default(),
                self.situations(texts),
                self.looks(),
                decided,
            )
        )
        snapshot.write(path, page.encode("utf-8", "replace"))

    def export(
        self,
        path: str | os.PathLike[str],
        leaves: int = 16,
        contexts: Iterable[Context] | None = None,
        *,
        texts: Mapping[str, Iterable[str]] | None = None,
        explore: bool | int = False,
        salt: str | None = None,
    ) -> "PolicyReport":
        """Write what is recommended as a policy: a small tree from contexts to parameters that needs no tuner.

        It is grown from half of the latest contexts on record, or of these, and the report says what it loses against
        `recommend` in the other half, by forecast. Needed where contexts are not kept: with a shield, or over 32
        numbers long. `texts` as of `history`. Nothing in the tuner changes (docs/POLICY.md).
        `explore`: leaves hold several settings with probabilities, of which a key gets one, so that what comes back can
        be learned (docs/EDGE.md). A number says how many outcomes are expected before the next export. Keys are drawn
        anew with another `salt`.
        """
        report = self.policy(leaves, contexts, texts=texts, explore=explore, salt=salt)
        snapshot.write(path, (json.dumps(report.policy, indent=1) + "\n").encode())
        return report

    def policy(
        self,
        leaves: int = 16,
        contexts: Iterable[Context] | None = None,
        *,
        texts: Mapping[str, Iterable[str]] | None = None,
        explore: bool | int = False,
        salt: str | None = None,
    ) -> "PolicyReport":
        """What `export` writes, in `policy` of the report."""
        from rasp_tuner.policy import explore as exploring
        from rasp_tuner.policy import export  # few programs export: the others start without it

        most = whole("leaves", leaves, 1, export.MOST_LEAVES)
        fields = export.fields_of(self._encoder.to_json())
        if contexts is not None:
            if not isinstance(contexts, Iterable) or isinstance(contexts, str | Mapping):
                raise InvalidValue(f"contexts must be a list of contexts, got {show(contexts)}")
            given = [(self._encoded(context), context) for context in contexts]
            situations = [export.given_situation(fields, seen, context) for seen, context in given]
        else:
            decode, known = self._names(texts).decode, {name: set(own) for name, own in (texts or {}).items()}
            kept = (
                [] if isinstance(self._encoder, ContextShield) else self._contexts_on_record(export.MOST_TREE_CONTEXTS)
            )
            situations = [export.seen_situation(fields, seen, decode(seen), known) for seen in kept]
            if explore and self._encoder.dim and self._forgets_contexts:
                raise InvalidValue(f"explore: {NOT_KEPT}: give some, as in export(path, explore=True, contexts=[...])")
        recommended = (lambda _: self._default) if explore and self._frozen_at_default else self._expects.recommended
        parts = (self._space, self._default, self._optimizer, recommended, fields, self._lineage.total)
        explored = None
        if explore is not False:
            explored = exploring.explore_of(
                explore,
                named(self._lineage.seed, list(self._space.knobs)) if salt is None else salt,
                self._preset,
                self._max_change,
                self._holdout,
                self.budget(),
                self._optimizer.model.stake,
                None if self._frozen else self._would_ask,
            )
        return export.policy_of(export.Source(*parts, explored), situations, most)

    def _would_ask(self, seen: Array, rng: np.random.Generator) -> Array:
        """What the next ask in a context [d_c] would give, if it drew from `rng`."""
        first = not self._ledger.issued and not self._lineage.held
        proposal = None if first else self._optimizer.propose(seen, self._current, rng)
        return self._default if proposal is None else self._space.nearest(proposal.point)[1]

    @property
    def _forgets_contexts(self) -> bool:
        return isinstance(self._encoder, ContextShield) or not self._record.keeps_context

    def why_no_policy(self) -> str | None:
        """Why no policy can explore for this tuner; None: one can."""
        from rasp_tuner.policy import explore as exploring

        why = exploring.why_not(self._preset, self._max_change)
        if why is None and self._encoder.dim and self._forgets_contexts:
            return NOT_KEPT
        return why

    def explain(self, id: str, *, visits: bool = True) -> Explanation:
        """Why `id` was suggested and, once answered, what came of it; `str()` gives it in words.

        `visits=False` leaves out whether the situation was seen before (docs/RETURNS.md), which takes longest.
        """
        why, point, metric = self._ledger.explain(id), self._ledger.point(id), self._optimizer.model.own_metric
        waiting = self._ledger.pending.get(id)
        alike = None if waiting is None else self._optimizer.model.similar_runs(waiting.context)
        margins = {} if waiting is None else self._optimizer.margins(waiting.context, waiting.point)
        runs, ago = (None, None) if alike is None else [x if math.isfinite(x) else None for x in alike]
        return replace(
            why,
            in_context=self._encoder.dim > 0,
            params=None if point is None else self._space.from_unit(point),
            default=self._space.from_unit(self._default),
            metric=metric,
            direction="min" if metric is None else self._optimizer.metrics[metric].direction,
            runs=runs,
            ago=ago,
            limits=tuple(f"{name}: {margin}" for name, margin in margins.items()),
            seen=self._seen(id) if visits else None,
            context=self._context_of(id) if visits else None,
            knobs=self.knob_shares(id) if visits else KnobShares(),
        )

    def _context_of(self, id: str) -> dict[str, Any] | list[Any] | None:
        """The context of a suggestion, as far as it is on record."""
        if not self._encoder.dim or isinstance(self._encoder, ContextShield) or not self._record.keeps_context:
            return None
        waiting = self._ledger.pending.get(id)
        if waiting is not None:
            return self._encoder.decode(waiting.context)
        found = self._on_record(id)
        return None if found is None else self._encoder.decode(found[1])

    def knob_shares(self, id: str) -> KnobShares:
        """Which knobs the expected gain of a suggestion comes from, while it waits for its answer; else nothing."""
        from rasp_tuner.report.knob_shares import knob_shares  # few programs ask

        waiting = self._ledger.pending.get(id)
        if waiting is None or not self._lineage.total or self._preset.name == "paper":
            return KnobShares()
        return knob_shares(self._expects, waiting.context, waiting.point)

    def is_held_out(self, id: str) -> bool:
        """Whether the default was drawn in the place of the suggestion `id`."""
        return self._ledger.why(id).explanation().source == HELD_OUT

    @unguarded
    def reasons(self, id: str) -> Why:
        """What `explain` is made of: its `explanation()` has numbers only, whenever it is called; no names."""
        return self._ledger.why(id)

    @property
    def asked(self) -> int:
        """How many suggestions were made so far; their ids are s0, s1, ..."""
        return self._ledger.issued

    @property
    def pending(self) -> list[Suggestion]:
        """Suggestions that wait for an answer, oldest first; they survive save and load."""
        return [
            Suggestion(id, self._space.from_unit(record.point), record.why.stop)
            for id, record in self._ledger.pending.items()
        ]

    def should_stop(self, id: str, partial: Mapping[str, float]) -> bool:
        """Whether the run of the suggestion `id` should be ended, by what its metric came to so far.

        End it then, and `tell(id, partial, stopped=True)`. False where the suggestion has no stop.
        """
        if self._preset.constants.get("budget") is None and not self._preset.constants.get("find"):
            raise InvalidValue("a stop is measured against what runs today: give it as default={...}, with a budget")
        record, name = self._ledger.waiting(id), self._optimizer.model.own_metric
        if name is None or self._optimizer.metrics[name].direction == "max":
            raise InvalidValue(
                "a run has a stop where one metric is minimised: of one to be maximised a part of a run shows too"
                f" little, and of several none decides alone; the metrics are {list(self._optimizer.metrics)}"
            )
        if not isinstance(partial, Mapping) or name not in partial:
            raise InvalidValue(f"partial must hold {name!r} as it is so far, got {show(partial)}")
        for other in partial:
            if other not in self._optimizer.metrics:
                raise InvalidValue(f"partial: no metric {show(other)}; there are {list(self._optimizer.metrics)}")
        so_far = [number(f"partial[{key!r}]", value) for key, value in partial.items()]
        stop = record.why.stop
        return stop is not None and so_far[list(partial).index(name)] >= stop

    def _repr_html_(self) -> str:
        """A table for notebooks: every knob with its range, its default and what is recommended now."""
        from rasp_tuner.report.situation_gains import idle_words, unproven_at  # few programs ask

        contexts, dim = self._optimizer.model.recent().contexts, self._encoder.dim
        seen = contexts[-1] if len(contexts) else np.zeros(dim)
        best = self._expects.recommended(seen) if len(seen) == dim else None  # long contexts are not kept
        found = {} if best is None else self._space.from_unit(best)
        unproven = {} if best is None else {name: found[name] for name in unproven_at(self._expects, seen, best)}
        budget, waiting = self._optimizer.model.budget(), len(self._ledger.pending)
        notes = [f"{self._lineage.total} runs learned", f"{waiting} waiting for an answer"]
        notes += [idle_words(unproven)] if unproven else []
        return notebook.tuner_html(
            repr(self),
            self._space.knobs,
            self._space.from_unit(self._default),
            {name: value for name, value in found.items() if name not in unproven},
            "recommended in the latest situation" if dim else "recommended",
            [*notes, *(str(one) for one in (budget, self.versus_default(), self.looks()) if one is not None)],
        )

    def _seen(self, id: str) -> Revisit | None:
        """Whether the situation of a suggestion was seen before."""
        before = self._visited()
        if before is None:
            return None
        waiting, named = self._ledger.pending.get(id), self._space.from_unit
        if waiting is not None:
            return before.coming(waiting.context, self._lineage.total, named)
        found = self._on_record(id)
        return None if found is None else before.of_step(*found, named)

    def _on_record(self, id: str) -> tuple[int, Array] | None:
        """The number and the context [d_c] of an answered suggestion's step, if that is on record."""
        numbers, _, _, contexts = self._record.parts()
        place = np.flatnonzero(numbers[:, 1] == int(id[1:]))
        return (int(numbers[place[0], 0]), contexts[place[0]]) if len(place) else None

    def _visited(self) -> "SeenBefore | None":
        """The visits on record up to now; None where contexts are not kept."""
        from rasp_tuner.report.visits_on_record import (  # few programs ask: the others start without it
            SeenBefore,
            Valued,
        )

        if not self._record.keeps_context:
            return None
        if self._before is None:
            self._before = SeenBefore(self._encoder.dim)
        metric, metrics = self._optimizer.model.own_metric, self._optimizer.metrics
        place = None if metric is None else list(metrics).index(metric)
        sign = 1.0 if metric is None else metrics[metric].sign
        valued = Valued(place, sign, self._preset.name == "default")
        self._before.update(self._record, self._ledger, valued, self._optimizer.model.relevance())
        return self._before

    def _contexts_on_record(self, most: int) -> list[Array]:
        """The latest so many; of samples or else of situations in memory where no steps are on record."""
        found = self._record.parts()[3] if self._record.keeps_context else np.zeros((0, 0))
        if not len(found):
            found = self._optimizer.model.recent().contexts
        if not len(found) and not isinstance(self._encoder, KindEncoder):  # a mean of texts is no text
            slots = self._optimizer.model.slots()
            visits = np.maximum(slots.visits, 1.0)
            found = np.repeat(slots.contexts, np.ceil(most * visits / visits.sum()).astype(int), axis=0)
        return list(found[-most:]) if found.shape[1] == self._encoder.dim else []

    def _names(self, texts: Mapping[str, Iterable[str]] | None) -> Names:
        """What the numbers on record are called."""
        encoder = self._encoder
        decode: Decoder = encoder.decode
        named = None if isinstance(encoder, ContextShield) else encoder.names
        if texts:
            decode = with_texts(decode, encoder.kinds if isinstance(encoder, KindEncoder) else {}, texts)
        metric, metrics = self._optimizer.model.own_metric, self._optimizer.metrics
        return Names(
            self._space,
            self._default,
            [f"context[{i}]" for i in range(encoder.dim)] if named is None else named,
            decode,
            list(metrics),
            1.0 if metric is None else metrics[metric].sign,
        )

    @property
    def goal(self) -> Goal:
        """What it was made for: "live", as good as can be on the way, or "find", the best setting at the end."""
        return "find" if self.searches else "live"

    @property
    def searches(self) -> bool:
        """Whether the goal is "find"."""
        return self._expects.searches

    def _scope(self, seen: Array, listed: Listed | None) -> Scope:
        """What a search may choose from, and what waits for an answer: of a search the latest asks in this context."""
        if not self.searches:
            return Scope(waiting=self._waiting()) if self._ledger.pending else ANY
        waiting = [record for record in self._ledger.pending.values() if np.array_equal(record.context, seen)]
        points = np.array([record.point for record in waiting[-MOST_IN_FLIGHT:]])
        return Scope(None if listed is None else listed.points, points if len(points) else None)

    def _waiting(self) -> Waiting:
        """What waits for an answer, in all contexts."""
        latest, count, defaults, staked = list[tuple[Array, Array]](), 0.0, 0.0, 0.0
        default = self._default.tobytes()
        for share, record in self._ledger.in_flight():
            count += share
            if record.point.tobytes() == default:
                defaults += share
                continue
            staked += share * record.why.stake
            if share >= LIKELY and len(latest) < MOST_IN_FLIGHT:
                latest.append((record.context, record.point))
        return Waiting(latest, count, defaults, staked)
