"""History: the steps a tuner remembers, as a table for people and for other programs."""

import csv
import io
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module
from typing import Any

from rasp_tuner.base.checks import printable
from rasp_tuner.errors import MissingExtra
from rasp_tuner.files import snapshot
from rasp_tuner.page.words import listed
from rasp_tuner.report.notebook import notebook_table

SHOWN_ROWS = 20  # of a long table, the latest
NAMED = ("context", "params", "metrics")  # fields of a row that hold values by name
BEFORE = ("step", "id")
AFTER = (
    "failed",
    "failure",
    "stopped",
    "default",
    "chosen_by",
    "expert",
    "expected",
    "deviation",
    "expected_default",
    "better",
    "target",
    "propensity",
)
LEAST = (
    "propensity",
    "target",
    "better",
    "deviation",
    "expert",
    "expected_default",
    "expected",
    "id",
    "default",
    "failure",
    "chosen_by",
)
SHOWN_NAMES = 8  # of columns for which there is no room

Row = dict[str, Any]


class History(Sequence[Row]):
    """Steps, oldest first; each a dict, and all of them a table with one column for each value.

    step              how many samples had been learned before it
    id                of the suggestion; None if nobody asked
    context           by name, or a list where it has no names; None if it is not on record
    params            what ran
    metrics           what came of it; None if it failed
    failed, failure   whether it failed, and the reason told
    stopped           whether the run was ended: its metrics are at least so bad
    default           whether the default ran
    chosen_by         which kind of candidate won; "observed" if nobody asked
    expert            whose hypothesis counted most
    expected          the forecast with its deviation, what the default was expected to come to, and the probability
                      that this is better (`deviation`, `expected_default`, `better`)
    target            what came, in the units of `expected`: the metric if there is one, else the weighted sum
    propensity        with which the draw of a holdout chose what ran; None where nothing was drawn

    These are None where nothing is known, as of the first steps and of what nobody asked for.
    """

    def __init__(self, rows: Sequence[Row], names: Mapping[str, Sequence[str]], note: str = "") -> None:
        self._rows, self._names, self.note = list(rows), {field: list(names[field]) for field in NAMED}, note
        every = [name for own in self._names.values() for name in own]
        taken = {*BEFORE, *AFTER, *(name for name in every if every.count(name) > 1)}
        self._columns = {
            field: [f"{field}.{name}" if name in taken else name for name in own] for field, own in self._names.items()
        }

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, at: Any) -> Any:
        if isinstance(at, slice):
            return History(self._rows[at], self._names, self.note)
        return self._rows[at]

    def __iter__(self) -> Iterator[Row]:
        return iter(self._rows)

    @property
    def columns(self) -> list[str]:
        """Of the table; a name that is there twice, as of a knob and a context, has its field before it."""
        return [*BEFORE, *(column for own in self._columns.values() for column in own), *AFTER]

    def flat(self) -> list[Row]:
        """The rows with one value for each column; None where there is none."""
        return [dict(zip(self.columns, self._values(row), strict=True)) for row in self._rows]

    def to_pandas(self) -> Any:
        """The table as a pandas.DataFrame."""
        try:
            pandas = import_module("pandas")
        except ModuleNotFoundError as reason:
            raise MissingExtra(
                "to_pandas needs pandas, which is not installed: pip install pandas; without it, iterate over the"
                " history or write it with to_csv(path)"
            ) from reason
        return pandas.DataFrame(self.flat(), columns=self.columns)

    def to_csv(self, path: str | os.PathLike[str]) -> None:
        """Write the table; an empty field is a value that is not there."""
        text = io.StringIO(newline="")
        writer = csv.writer(text)
        writer.writerow(self.columns)
        writer.writerows(self._values(row) for row in self._rows)
        snapshot.write(path, text.getvalue().encode("utf-8", "surrogatepass"))

    def __str__(self) -> str:
        if not self._rows:
            return printable(self.note or "No steps yet.")
        head, rows = self.texts(SHOWN_ROWS)
        head, rows = [printable(name) for name in head], [[printable(text) for text in row] for row in rows]
        every = [max(map(len, column)) for column in zip(head, *rows, strict=True)]
        widths = {i: every[i] for i in self._fitting(head, every)}
        lines = ["  ".join(row[i].rjust(widths[i]) for i in widths).rstrip() for row in (head, *rows)]
        hidden = [name for i, name in enumerate(head) if i not in widths]
        more = [f"more columns: {listed(hidden, SHOWN_NAMES)}"] if hidden else []
        return "\n".join([*lines, *more, *self._notes()])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        """The same table for notebooks; it inherits colours and fonts."""
        head, rows = self.texts(SHOWN_ROWS)
        return notebook_table("", head, rows, "; ".join(self._notes()) if rows else str(self))

    def _fitting(self, head: Sequence[str], widths: Sequence[int]) -> list[int]:
        """Places of the columns that a terminal has room for; those that matter least go first."""
        order = [*LEAST, *reversed(self._columns["params"]), *reversed(self._columns["context"])]
        fits, room = list(range(len(head))), shutil.get_terminal_size((120, 24)).columns
        for name in order:
            if sum(widths[i] + 2 for i in fits) - 2 <= room:
                break
            fits = [i for i in fits if head[i] != name]
        return fits

    def _notes(self) -> list[str]:
        shown = [f"the latest {SHOWN_ROWS} of {len(self):,} rows"] if len(self) > SHOWN_ROWS else []
        return [*shown, *([self.note] if self.note else [])]

    def texts(self, latest: int) -> tuple[list[str], list[list[str]]]:
        """Head and latest rows as people read them, without columns that say nothing there."""
        rows = [self._values(row) for row in self._rows[-latest:]]
        shown = [i for i, column in enumerate(zip(*rows, strict=True)) if any(v not in (None, "") for v in column)]
        shown = [i for i in shown if self.columns[i] not in ("failed", "stopped") or any(row[i] for row in rows)]
        return [self.columns[i] for i in shown], [[_cell(row[i]) for i in shown] for row in rows]

    def _values(self, row: Row) -> list[Any]:
        """One value for each column."""
        values = [row[name] for name in BEFORE]
        for field, names in self._names.items():
            held = row[field] or {}
            values += held if isinstance(held, list) else [held.get(name) for name in names]
        return values + [row[name] for name in AFTER]


def _cell(value: object) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:.5g}" if isinstance(value, float) else " ".join(str(value).split())
