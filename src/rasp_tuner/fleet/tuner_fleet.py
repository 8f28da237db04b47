"""TunerFleet: a fleet of any knobs, constraints and limits. Each of its tuners is a `Tuner`."""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np

from rasp_tuner.base.checks import show, whole
from rasp_tuner.base.numerics import Array
from rasp_tuner.base.state_checks import MOST_SAMPLES
from rasp_tuner.base.threads import methods_on_one_thread
from rasp_tuner.contexts.context_encoder import KindEncoder, context_encoder
from rasp_tuner.engine.kernel.masks import Flags
from rasp_tuner.engine.kernel.state import Places
from rasp_tuner.errors import InvalidSpace, InvalidValue
from rasp_tuner.files import snapshot
from rasp_tuner.fleet import fleet_file
from rasp_tuner.fleet.build import MOST_TUNERS, Plan
from rasp_tuner.fleet.checks import checked_values
from rasp_tuner.fleet.fleet import Contexts, Fleet, FleetSuggestions, Which
from rasp_tuner.fleet.fleet_file import Progress
from rasp_tuner.fleet.inputs import check_no_control, columns_by_name, contexts_of, ends_of, row_of, rows_of
from rasp_tuner.fleet.single import check_same_kind
from rasp_tuner.space import Float, Int, PowerOfTwo
from rasp_tuner.tuner import Tuner

Row = dict[str, Any]  # by name


@methods_on_one_thread
class TunerFleet(Fleet):
    """One after the other: what one tuner is asked and told is what a `Tuner` with its seed would be."""

    magic = b"RASPFLT2"
    _settings = MappingProxyType({"max_pending": 1})

    def _begin(self, example: Tuner, size: int, device: str, share: bool) -> None:
        del share  # what processes have learned is not shared
        _check_device(device)
        self._build(example.to_bytes(), [], 0)
        if size:
            self.add(size)

    @classmethod
    def takes(cls, *_: object) -> bool:
        return True

    def _build(self, example: bytes, tuners: list[Tuner], issued: int) -> None:
        self._example, self._tuners, self._issued = example, tuners, issued  # numbers given to tuners so far
        self._plan = Plan(*snapshot.decode(example))
        self._space, self._metrics = self._plan.space, self._plan.metrics
        self._encoder = context_encoder(self._plan.context)

    def __len__(self) -> int:
        return len(self._tuners)

    def __repr__(self) -> str:
        return (
            f"<Fleet of {len(self)} tuners device='cpu' knobs={list(self._space.knobs)}"
            f" learned={int(self.learned.sum())} pending={int(self.pending.sum())}>"
        )

    @property
    def learned(self) -> Places:
        return np.array([tuner.learned for tuner in self._tuners], dtype=np.int64)

    @property
    def pending(self) -> Flags:
        return np.array([bool(tuner.pending) for tuner in self._tuners], dtype=bool)

    @property
    def memory_per_tuner(self) -> None:
        return None

    def ask(self, contexts: Contexts = None, which: Which = None) -> FleetSuggestions:
        rows = rows_of(which, len(self))
        found = []
        for i, context in zip(rows, self._contexts(contexts, rows), strict=True):
            tuner = self._tuners[i]
            for waiting in tuner.pending:
                tuner.withdraw(waiting.id)
            found.append(tuner.ask(context))
        params = [suggestion.params for suggestion in found]
        points = np.array([self._space.to_unit(one) for one in params]).reshape(len(rows), self._space.dim)
        stops = np.array([np.inf if suggestion.stop is None else suggestion.stop for suggestion in found])
        return FleetSuggestions(self._columns(params), points, rows, stops)

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
        for i in rows:
            if not self._tuners[i].pending:
                raise InvalidValue(f"tuner {int(i)} has no suggestion that waits for an answer: ask first")
        flags, ended = ends_of(failed, stopped, rows)
        values = _rows(checked_values(self._metrics, metrics, rows, flags), len(rows))
        for i, told, is_failed, is_ended in zip(rows, values, flags.tolist(), ended.tolist(), strict=True):
            tuner = self._tuners[i]
            id = tuner.pending[-1].id
            if is_failed:
                tuner.tell_failed(id)
            else:
                tuner.tell(id, told, stopped=is_ended)

    def observe(
        self,
        contexts: Contexts,
        params: Mapping[str, Any],
        metrics: Mapping[str, Any],
        which: Which = None,
        stopped: Any = None,
    ) -> None:
        rows = rows_of(which, len(self))
        seen = self._contexts(contexts, rows)
        ran = [self._there(row) for row in _rows(columns_by_name("params", params, rows), len(rows))]
        _check_each(rows, ran, self._space.to_unit)
        none, ended = ends_of(None, stopped, rows)
        values = _rows(checked_values(self._metrics, metrics, rows, none), len(rows))
        for i, context, settings, told, is_ended in zip(rows, seen, ran, values, ended.tolist(), strict=True):
            self._tuners[i].observe(context, settings, told, stopped=is_ended)

    def recommend(self, contexts: Contexts = None, which: Which = None) -> dict[str, Array]:
        rows = rows_of(which, len(self))
        seen = self._contexts(contexts, rows)
        return self._columns([self._tuners[i].recommend(context) for i, context in zip(rows, seen, strict=True)])

    def add(self, n: int = 1) -> Places:
        n, size = whole("n", n, 1, MOST_TUNERS), len(self)
        header, arrays = self._plan.header, self._plan.arrays
        for number in range(self._issued, self._issued + n):
            one = Tuner.from_bytes(snapshot.encode(_numbered(header, self._plan.seed, number), arrays))
            self._tuners.append(one)
        self._issued += n
        return np.arange(size, size + n)

    def remove(self, which: Which) -> None:
        gone = set(rows_of(which, len(self)).tolist())
        self._tuners = [tuner for i, tuner in enumerate(self._tuners) if i not in gone]

    def __getitem__(self, i: int) -> Tuner:
        (row,) = row_of(i, len(self))
        return Tuner.from_bytes(self._tuners[row].to_bytes())

    def __setitem__(self, i: int, tuner: Tuner) -> None:
        (row,) = row_of(i, len(self))
        if not isinstance(tuner, Tuner):
            raise InvalidValue(f"only a Tuner can become a tuner of a fleet, got {show(tuner)}")
        data = tuner.to_bytes()
        check_same_kind(self._plan, *snapshot.decode(data))
        self._tuners[row] = one = Tuner.from_bytes(data)
        for waiting in one.pending[:-1]:  # the latest stays
            one.withdraw(waiting.id)

    def save(self, path: str | os.PathLike[str], progress: Progress | bool = False) -> None:
        fleet_file.write_frames(path, self.magic, self._frames(fleet_file.shown(progress, "saving")))

    def _frames(self, told: Progress) -> Iterator[bytes]:
        yield self._example
        yield snapshot.encode({"size": len(self), "issued": self._issued}, {})
        for i, tuner in enumerate(self._tuners):
            yield tuner.to_bytes()
            told(i + 1, len(self))

    def _read(self, path: str | os.PathLike[str], device: str, progress: Progress | bool) -> None:
        _check_device(device)
        told = fleet_file.shown(progress, "loading")
        with fleet_file.reading(path, self.magic) as file:
            example = fleet_file.frame_of(file)
            Tuner.from_bytes(example)  # which checks it
            header, _ = snapshot.decode(fleet_file.frame_of(file))
            size = whole("size", header["size"], 0, MOST_TUNERS)
            self._build(example, [], whole("issued", header["issued"], size, MOST_SAMPLES))
            for i in range(size):
                data = fleet_file.frame_of(file)
                check_same_kind(self._plan, *snapshot.decode(data))
                self._tuners.append(Tuner.from_bytes(data))
                told(i + 1, size)

    def _contexts(self, given: Contexts, rows: Places) -> list[Any]:
        """One for each tuner, checked."""
        encoded = contexts_of(given, self._encoder, rows)
        if not self._encoder.dim:
            return [None] * len(rows)
        if isinstance(self._encoder, KindEncoder):
            return _rows(columns_by_name("contexts", given, rows), len(rows))
        return [self._encoder.decode(row) for row in encoded]

    def _there(self, row: Row) -> Row:
        """Without knobs that do not exist beside the others, which stand as None in columns."""
        present = self._space.names_in(row)
        return {name: value for name, value in row.items() if value is not None or name in present}

    def _columns(self, params: Sequence[Mapping[str, Any]]) -> dict[str, Array]:
        """[n] by knob; None where a knob does not exist."""
        columns = {}
        for name, knob in self._space.knobs.items():
            plain = isinstance(knob, Float | Int | PowerOfTwo) and knob.when is None
            column = np.empty(len(params), dtype=np.float64 if plain else object)
            for i, one in enumerate(params):
                column[i] = one.get(name)
            columns[name] = column
        return columns


def _rows(columns: Mapping[str, Sequence[Any] | Array], count: int) -> list[Row]:
    """One for each tuner, of plain values."""
    plain = {name: column.tolist() if isinstance(column, np.ndarray) else column for name, column in columns.items()}
    return [{name: column[i] for name, column in plain.items()} for i in range(count)]


def _check_each(rows: Places, settings: Sequence[Row], check: Callable[[Row], object]) -> None:
    """Raise what `check` does of the first that is wrong, and say whose it is."""
    for row, one in zip(rows, settings, strict=True):
        try:
            check(one)
        except InvalidValue as reason:
            raise InvalidValue(f"{reason} for tuner {int(row)}") from None


def _numbered(header: Mapping[str, Any], seed: int, number: int) -> dict[str, Any]:
    """The header of a tuner that knows nothing, with a seed of its own."""
    own = int(np.random.SeedSequence([seed, number]).generate_state(1, np.uint64)[0])
    return {**header, "seed": own, "random": np.random.default_rng(own).bit_generator.state}


def _check_device(device: object) -> None:
    if device != "cpu":
        raise InvalidSpace(
            f"device must be 'cpu' where a knob has steps or choices, or there are constraints or limits; got"
            f" {show(device)}"
        )
