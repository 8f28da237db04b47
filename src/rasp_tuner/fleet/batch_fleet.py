"""BatchFleet: a fleet of continuous knobs. Names, checks and pending suggestions around the engine of many."""

import math
import os
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import numpy as np

from rasp_tuner import presets
from rasp_tuner.base.checks import whole
from rasp_tuner.base.numerics import Array
from rasp_tuner.base.threads import methods_on_one_thread
from rasp_tuner.contexts.context_encoder import context_encoder
from rasp_tuner.engine.engine import EARLY_FAILURES
from rasp_tuner.engine.kernel import belief
from rasp_tuner.engine.kernel.batch import Beliefs
from rasp_tuner.engine.kernel.masks import Flags, span
from rasp_tuner.engine.kernel.state import Places, shapes
from rasp_tuner.errors import InvalidValue
from rasp_tuner.fleet import fleet_file, single
from rasp_tuner.fleet.build import MOST_TUNERS, Plan, blank
from rasp_tuner.fleet.checks import Checks
from rasp_tuner.fleet.chunks import Chunks
from rasp_tuner.fleet.device import Device
from rasp_tuner.fleet.engine import FleetEngine, FleetSamples, Settings
from rasp_tuner.fleet.fleet import Contexts, Fleet, FleetSuggestions, Which
from rasp_tuner.fleet.fleet_file import Progress
from rasp_tuner.fleet.inputs import check_no_control, ends_of, row_of, rows_of
from rasp_tuner.fleet.knobs import ContinuousKnobs, is_continuous
from rasp_tuner.fleet.prior import FleetPrior, combine, guide, summarise
from rasp_tuner.fleet.records import NO_STOP
from rasp_tuner.fleet.tuners import Tuners
from rasp_tuner.tuner import Tuner
from rasp_tuner.types import Metric

PRIOR_EVERY = 1.2  # times as many samples as when it was learned: then the fleet's prior is learned anew


@methods_on_one_thread
class BatchFleet(Fleet):
    """All tuners in arrays with a leading axis of tuners; each is a model of quadratics."""

    magic = fleet_file.MAGIC
    _settings = MappingProxyType({"preset": presets.default(quadratic=True)})

    def _begin(self, example: Tuner, size: int, device: str, share: bool) -> None:
        plan, place = Plan.of(example), Device(device)
        ContinuousKnobs(plan.space)  # before anything is built
        self._build(plan, place, blank(plan, place, size, 0), size, share, None)

    @classmethod
    def takes(cls, space: object, metrics: object, constraints: object, /) -> bool:
        if constraints or not isinstance(space, Mapping) or not isinstance(metrics, Mapping):
            return False
        limited = any(isinstance(metric, Metric) and metric.limit is not None for metric in metrics.values())
        return not limited and all(map(is_continuous, space.values()))

    def _build(
        self, plan: Plan, device: Device, tuners: Tuners, issued: int, share: bool, prior: FleetPrior | None
    ) -> None:
        self._plan, self._device, self._tuners, self._share, self._prior = plan, device, tuners, share, prior
        self._issued = issued  # numbers given to tuners so far
        self._lineages: dict[str, Mapping[str, Any]] = {}  # by number, of those that came as a Tuner
        self._knobs, self._encoder = ContinuousKnobs(plan.space), context_encoder(plan.context)
        settings = Settings(plan.seed, plan.constants["switching_cost"], plan.constants["guard"])
        self._engine = FleetEngine(plan.dims, plan.default, settings)
        self._chunks = Chunks(device)
        self._checks = Checks(plan.metrics, self._knobs, self._encoder)
        self._beliefs: tuple[Places, list[Beliefs | None]] | None = None  # of the latest ask

    def __len__(self) -> int:
        return self._tuners.size

    def __repr__(self) -> str:
        records = self._tuners.records
        return (
            f"<Fleet of {len(self)} tuners device={self._device.name!r} knobs={list(self._plan.space.knobs)}"
            f" learned={int(records.learned.sum())} pending={int(records.waiting.sum())}>"
        )

    @property
    def learned(self) -> Places:
        return self._tuners.records.learned.astype(np.int64)

    @property
    def pending(self) -> Flags:
        return self._tuners.records.waiting > 0.0

    @property
    def memory_per_tuner(self) -> int:
        one = blank(self._plan, Device("cpu"), 1, 0)
        one.make_room_for_failures(EARLY_FAILURES)
        numbers = belief.length(self._plan.dims) + sum(math.prod(shape) for shape in shapes(self._plan.dims).values())
        return 8 * numbers + sum(int(array.nbytes) for array in one.arrays())

    def ask(self, contexts: Contexts = None, which: Which = None) -> FleetSuggestions:
        rows = rows_of(which, len(self))
        seen = self._checks.contexts(contexts, rows)
        self._guide(rows)
        n, d = len(rows), self._plan.dims.knobs
        points, params, stops = np.zeros((n, d)), np.zeros((d, n)), np.zeros(n)

        def one(tuners: Tuners, part: slice) -> Beliefs | None:
            proposed, stops[part], believed = self._engine.propose(tuners, seen[part])
            values, points[part] = self._knobs.values(proposed)
            params[:, part] = list(values.values())
            records = tuners.records
            records.asks[...] = records.asks + 1.0
            records.waiting[...] = 1.0
            records.point[...], records.context[...] = points[part], seen[part]
            records.stop[...] = np.minimum(stops[part], NO_STOP)
            return believed

        self._beliefs = (rows, self._chunks.run(one, self._tuners, rows, "records"))
        return FleetSuggestions(dict(zip(self._plan.space.knobs, params, strict=True)), points, rows, stops)

    def tell(
        self,
        metrics: Mapping[str, Any] | None = None,
        which: Which = None,
        failed: Any = None,
        stopped: Any = None,
        *,
        control: Any = None,
    ) -> None:
        check_no_control(control)
        rows = rows_of(which, len(self))
        records, at = self._tuners.records, span(rows)
        missing = rows[records.waiting[at] == 0.0]
        if len(missing):
            raise InvalidValue(f"tuner {int(missing[0])} has no suggestion that waits for an answer: ask first")
        flags, ended = ends_of(failed, stopped, rows)
        values = list(self._checks.values(metrics, rows, flags).values())
        self._learn(
            rows, FleetSamples(records.point[at], records.context[at], values, flags, True, ended, records.stop[at])
        )
        records.waiting[at] = 0.0
        ran = rows[~flags] if flags.any() else at
        records.current[ran] = records.point[ran]

    def observe(
        self,
        contexts: Contexts,
        params: Mapping[str, Any],
        metrics: Mapping[str, Any],
        which: Which = None,
        stopped: Any = None,
    ) -> None:
        rows = rows_of(which, len(self))
        seen = self._checks.contexts(contexts, rows)
        given = self._checks.params(params, rows)
        none, ended = ends_of(None, stopped, rows)
        values = list(self._checks.values(metrics, rows, none).values())
        points, no_stop = self._knobs.points(given), np.full(len(rows), np.inf)
        self._learn(rows, FleetSamples(points, seen, values, none, False, ended, no_stop))

    def recommend(self, contexts: Contexts = None, which: Which = None) -> dict[str, Array]:
        rows = rows_of(which, len(self))
        seen = self._checks.contexts(contexts, rows)
        points = np.zeros((len(rows), self._plan.dims.knobs))

        def one(tuners: Tuners, part: slice) -> None:
            points[part] = self._engine.best_known(tuners, seen[part])

        self._chunks.run(one, self._tuners, rows)
        return self._knobs.values(points)[0]

    def add(self, n: int = 1) -> Places:
        n, size = whole("n", n, 1, MOST_TUNERS), len(self)
        more = blank(self._plan, self._device, n, self._issued)
        self._tuners, self._issued = self._tuners.join(more, blank=True), self._issued + n
        self._beliefs = None
        return np.arange(size, size + n)

    def remove(self, which: Which) -> None:
        rows = rows_of(which, len(self))
        kept = np.delete(np.arange(len(self)), rows)
        for number in self._tuners.records.number[rows]:
            self._lineages.pop(str(int(number)), None)
        self._tuners = self._tuners.kept(kept)
        self._beliefs = None

    def __getitem__(self, i: int) -> Tuner:
        row = row_of(i, len(self))
        one = self._tuners.some(row)
        return single.tuner_of(self._plan, one, self._lineages.get(str(int(one.records.number[0]))))

    def __setitem__(self, i: int, tuner: Tuner) -> None:
        row = row_of(i, len(self))
        number = float(self._tuners.records.number[row][0])
        one, lineage = single.tuners_of(self._plan, tuner, number)
        room = max(one.records.failed_at.shape[1], self._tuners.records.failed_at.shape[1])
        one.make_room_for_failures(room)
        self._tuners.make_room_for_failures(room)
        self._tuners.put(row, one)
        self._lineages[str(int(number))] = lineage
        self._beliefs = None

    def save(self, path: str | os.PathLike[str], progress: Progress | bool = False) -> None:
        header = {"issued": self._issued, "share": self._share, "lineages": self._lineages}
        prior = {} if self._prior is None else vars(self._prior)
        fleet_file.write(path, self._plan, (header, prior), self._tuners, progress)

    def _read(self, path: str | os.PathLike[str], device: str | Device, progress: Progress | bool) -> None:
        place = device if isinstance(device, Device) else Device(device)
        plan, header, prior, tuners = fleet_file.read(path, place, progress)
        self._build(plan, place, tuners, header["issued"], header["share"], prior)
        self._lineages = header["lineages"]

    def _learn(self, rows: Places, samples: FleetSamples) -> None:
        self._guide(rows)
        failed = samples.failed
        early = failed & (self._tuners.objective.seen[rows] == 0) if failed.any() else failed
        beliefs = self._kept_beliefs(rows) if samples.asked else None
        self._tuners.records.learned[span(rows)] += 1.0
        if early.any():
            self._keep_failures(rows[early], samples.points[early], samples.contexts[early])
            rest = np.flatnonzero(~early)
            rows, samples, beliefs = rows[rest], samples.some(rest), None

        def one(tuners: Tuners, part: slice) -> None:
            self._engine.learn(tuners, samples.some(part), None if beliefs is None else beliefs[part.start])

        self._beliefs = None
        self._chunks.run(one, self._tuners, rows, "all")

    def _kept_beliefs(self, rows: Places) -> dict[int, Beliefs | None] | None:
        """Of the latest ask, by where a chunk starts, if it was of these tuners."""
        if self._beliefs is None or not np.array_equal(self._beliefs[0], rows):
            return None
        starts = [part.start for part in self._chunks.parts(rows)]
        return dict(zip(starts, self._beliefs[1], strict=True))

    def _keep_failures(self, rows: Places, points: Array, contexts: Array) -> None:
        """Keep what failed before anything succeeded: the latest few of each tuner."""
        tuners = self._tuners
        counts = tuners.records.failures[rows].astype(np.int64)
        tuners.make_room_for_failures(min(int(counts.max()) + 1, EARLY_FAILURES))
        full, failed_at = rows[counts == EARLY_FAILURES], tuners.records.failed_at
        failed_at[full, :-1] = failed_at[full, 1:]
        places = np.minimum(counts, EARLY_FAILURES - 1)
        failed_at[rows, places] = np.concatenate([points, contexts], axis=1)
        tuners.records.failures[rows] = places + 1

    def _guide(self, rows: Places) -> None:
        """Give tuners that have no samples what the others have learned."""
        if not self._share:
            return
        records, at = self._tuners.records, span(rows)
        fresh = (records.learned[at] == 0.0) & (records.guided[at] == 0.0)
        if not fresh.any():
            return
        total = float(records.learned.sum())
        if not total:
            return
        if self._prior is None or total >= PRIOR_EVERY * float(self._prior.samples):
            self._prior = combine([summarise(self._tuners, self._plan.default)])
        if self._prior.known > 0.0:
            guide(self._prior, self._tuners, rows[fresh])
