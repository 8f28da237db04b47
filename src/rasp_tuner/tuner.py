"""Tuner: the public face. Names, ids and metrics around an `AdaptiveHybridTuner` on the unit box."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from rasp_tuner import snapshot
from rasp_tuner.checks import show, whole
from rasp_tuner.encoder import ContextEncoder
from rasp_tuner.errors import InvalidSpace, InvalidValue, RaspError, SnapshotError
from rasp_tuner.hybrid import WORST, AdaptiveHybridTuner
from rasp_tuner.ledger import Ledger
from rasp_tuner.numerics import Array
from rasp_tuner.presets import Preset, named
from rasp_tuner.space import Knob, ParamBounds, Params, Space
from rasp_tuner.types import Direction, Explanation, Metric, Suggestion

Context = Mapping[str, float] | Sequence[float] | Array | None

LONGEST_REASON = 500  # characters kept of a failure's reason


class Tuner:
    """Suggests parameters for the context it sees, learns from the metrics that come back, and remembers.

    `ask` never learns; `tell`, `tell_failed` and `observe` do; a call that raises a RaspError changes nothing. Not
    thread-safe.

    space       knob names -> Float, Int or Categorical
    metrics     metric names -> "min", "max" or Metric(direction, weight)
    context     names, or a vector length, or None for context-free tuning
    default     what runs today, and the first suggestion unless something was observed before; else mid-box
    preset      "default", "paper", or either with other constants, as in presets.paper(base_step=0.25)
    max_pending how many unanswered suggestions are kept; the oldest is dropped beyond that
    """

    def __init__(
        self,
        space: Mapping[str, Knob],
        metrics: Mapping[str, Metric | Direction],
        context: Sequence[str] | int | None = None,
        default: Mapping[str, object] | None = None,
        *,
        preset: str | Preset = "default",
        seed: int = 0,
        max_pending: int = 1000,
    ) -> None:
        self._space = Space(space)
        self._encoder = ContextEncoder(context)
        self._ledger = Ledger(whole("max_pending", max_pending, 1, 1_000_000, InvalidSpace))
        self._hybrid = AdaptiveHybridTuner(
            ParamBounds.unit(self._space.dim), self._encoder.dim, metrics=metrics, preset=preset, seed=seed
        )
        middle = self._hybrid.bounds.center
        self._default = self._space.snap(middle) if default is None else self._default_point(default)
        self._current = self._default  # theta_t: the latest own suggestion that was answered
        self._learned = 0

    def __repr__(self) -> str:
        return (
            f"<Tuner preset={self._hybrid.preset.name!r} knobs={list(self._space.knobs)} learned={self._learned}"
            f" pending={len(self._ledger.pending)}>"
        )

    @property
    def pending(self) -> list[Suggestion]:
        """Suggestions that wait for an answer, oldest first; they survive save and load."""
        return [Suggestion(id, self._space.from_unit(record.point)) for id, record in self._ledger.pending.items()]

    @property
    def learned(self) -> int:
        """How many samples were told or observed."""
        return self._learned

    def ask(self, context: Context = None) -> Suggestion:
        """Parameters to run in this context, under an id to answer with; the default if nothing is known at all."""
        seen = self._encoder.encode(context)
        if self._ledger.issued == 0 and self._learned == 0:
            point, why = self._default, Explanation(source="default")
        else:
            proposal = self._hybrid.propose(seen, self._current)
            point, why = self._space.snap(proposal.theta), proposal.why
        return Suggestion(self._ledger.issue(seen, point, why), self._space.from_unit(point))

    def tell(self, id: str, metrics: Mapping[str, float]) -> None:
        """Learn what the suggestion `id` led to."""
        record = self._ledger.waiting(id)
        why = self._learn(record.why, record.context, record.point, metrics)
        self._current = record.point
        self._ledger.answer(id, why)

    def tell_failed(self, id: str, reason: str = "") -> None:
        """Learn that the suggestion `id` crashed or was invalid: as bad as errors get, and never a best."""
        record = self._ledger.waiting(id)
        if not isinstance(reason, str):
            raise InvalidValue(f"reason must be a string, got {show(reason)}")
        verdict = self._hybrid.learn(record.context, record.point, WORST, failed=True)
        self._learned += 1
        why = replace(record.why, path=verdict.path, reason=verdict.reason, error=WORST)
        self._ledger.answer(id, replace(why, failure=reason[:LONGEST_REASON]))

    def observe(self, context: Context, params: Mapping[str, object], metrics: Mapping[str, float]) -> None:
        """Learn from a run nobody asked for: a log line, another tuner, a hand-made change."""
        seen, point = self._encoder.encode(context), self._space.to_unit(params)
        self._learn(Explanation(source="observed"), seen, point, metrics)

    def recommend(self, context: Context = None) -> Params:
        """The best parameters known for the nearest context, without exploring; the default while nothing is known.

        Under preset "paper", best means the smallest composed error, which is relative to its time (docs/PAPER.md).
        """
        best = self._hybrid.best_known(self._encoder.encode(context))
        return self._space.from_unit(self._default if best is None else best)

    def explain(self, id: str) -> Explanation:
        """Why `id` was suggested and, once answered, what came of it; `str()` gives it in words."""
        return self._ledger.explain(id)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write everything to `path`, atomically; equal tuners write equal bytes."""
        snapshot.write(path, self.to_bytes())

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> "Tuner":
        """The tuner that was saved: from here on it does, bit for bit, what that one would have done."""
        return cls.from_bytes(snapshot.read(path))

    def to_bytes(self) -> bytes:
        """The snapshot that `save` writes."""
        hybrid = self._hybrid
        header = {
            "space": self._space.to_json(),
            "metrics": hybrid.parts.composer.to_json(),
            "context": self._encoder.to_json(),
            "preset": {"name": hybrid.preset.name, "constants": dict(hybrid.preset.constants)},
            "seed": hybrid.seed,
            "random": hybrid.rng.bit_generator.state,
            "learned": self._learned,
            "ledger": self._ledger.to_json(),
        }
        ledger = self._ledger.state(self._space.dim, self._encoder.dim)
        arrays = {
            "default": self._default,
            "current": self._current,
            **{f"ledger/{name}": array for name, array in ledger.items()},
            **hybrid.state(),
        }
        return snapshot.encode(header, arrays)

    @classmethod
    def from_bytes(cls, data: bytes) -> "Tuner":
        """The tuner that `to_bytes` described."""
        header, arrays = snapshot.decode(data)
        try:
            return cls._rebuild(header, arrays)
        except (RaspError, ValueError, KeyError, TypeError, AttributeError, OverflowError) as reason:
            if isinstance(reason, ImportError):
                raise
            raise SnapshotError(f"the snapshot does not describe a tuner: {show(reason)}") from reason

    @classmethod
    def _rebuild(cls, header: Mapping[str, Any], arrays: Mapping[str, Array]) -> "Tuner":
        tuner = cls(
            Space.from_json(header["space"]).knobs,
            {name: Metric(**fields) for name, fields in header["metrics"].items()},
            header["context"],
            preset=named(header["preset"]["name"], header["preset"]["constants"]),
            seed=header["seed"],
        )
        tuner._ledger = Ledger.rebuild(header["ledger"], arrays["ledger/contexts"], arrays["ledger/points"])
        tuner._default, tuner._current = arrays["default"], arrays["current"]
        tuner._learned = whole("learned", header["learned"], 0, 2**63)
        tuner._hybrid.restore(arrays)
        tuner._hybrid.rng.bit_generator.state = header["random"]
        return tuner

    def _learn(self, why: Explanation, context: Array, point: Array, metrics: Mapping[str, float]) -> Explanation:
        error = self._hybrid.parts.composer.compose(metrics)
        verdict = self._hybrid.learn(context, point, error)
        self._learned += 1
        return replace(why, path=verdict.path, reason=verdict.reason, error=error)

    def _default_point(self, default: Mapping[str, object]) -> Array:
        try:
            return self._space.to_unit(default, "default")
        except InvalidValue as reason:
            raise InvalidSpace(str(reason)) from reason
