"""SQLite: pragmas of a connection and of a file, for lookups, reports, bulk inserts and small updates."""

import shutil
import sqlite3
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Self

import numpy as np

from rasp_lab.real.system import Knobs, System, Tried, Work, coarse_grid, new_seed
from rasp_tuner import Categorical, Int, PowerOfTwo
from rasp_tuner.contexts import Number
from rasp_tuner.space import Params

PAGE_SIZES = [2**k for k in range(10, 17)]
ROWS = 40_000  # of the table that is read, about 8 MB
FEW_ROWS = 4_000  # of the table that is updated
GROUPS = 2_000


KNOBS: Knobs = {
    "cache_kb": (Int(64, 65_536, log=True), 2000),
    "mmap_mb": (Int(0, 256, log=True), 0),
    "page_size": (PowerOfTwo(PAGE_SIZES[0], PAGE_SIZES[-1]), 4096),
    "temp_store": (Categorical(["DEFAULT", "MEMORY"]), "DEFAULT"),
    "threads": (Int(0, 2), 0),
    "journal_mode": (Categorical(["DELETE", "TRUNCATE", "PERSIST", "WAL"]), "DELETE"),
}
GRID: Tried = {"cache_kb": (2000, 32_000), "mmap_mb": (0, 256), "journal_mode": ("DELETE", "TRUNCATE", "WAL")}
Runner = Callable[[sqlite3.Connection, Work, np.random.Generator], float]
COUNTS = ("lookups", "scanned", "written", "commits")


class SqlitePragmas(System):
    """Pragmas `cache_size`, `mmap_size`, `page_size`, `temp_store`, `threads` and `journal_mode`; `synchronous`
    stays FULL: no setting gives up durability. Work: single-row lookups, reports that sort and group, bulk inserts, and
    updates in many small transactions. The context has the numbers of rows and of transactions. Cost: wall time of the
    statements.
    """

    title = "SQLite"
    knobs = KNOBS
    grid = coarse_grid(KNOBS, GRID)
    context = dict.fromkeys(COUNTS, Number(log=True))
    kinds = ("lookups", "reports", "inserts", "updates")

    @classmethod
    def version(cls) -> str:
        return f"SQLite {sqlite3.sqlite_version}"

    def __enter__(self) -> Self:
        for page in PAGE_SIZES:
            for name, rows in (("read", ROWS), ("update", FEW_ROWS), ("empty", 0)):
                _build(self._file(name, page), page, rows)
        return self

    def work(self, kind: str, rng: np.random.Generator) -> Work:
        if kind == "lookups":
            own = {"lookups": float(rng.integers(1_000, 3_000))}
        elif kind == "reports":
            own = {"scanned": float(rng.integers(10_000, 20_000))}
        elif kind == "inserts":
            own = {"written": float(rng.integers(3_000, 9_000)), "commits": 1.0}
        else:
            commits = float(rng.integers(3, 9))
            own = {"written": 4.0 * commits, "commits": commits}
        return Work(kind, {**dict.fromkeys(COUNTS, 0.0), **own}, new_seed(rng))

    def run(self, params: Params, work: Work) -> float:
        file = self._file({"inserts": "empty", "updates": "update"}.get(work.kind, "read"), params["page_size"])
        if work.kind in ("inserts", "updates"):  # every agent starts from the same file
            file = Path(shutil.copy(file, self.folder / "written.db"))
        rng = np.random.default_rng(work.seed)
        with closing(sqlite3.connect(file, isolation_level=None)) as database:
            for pragma in (
                f"journal_mode = {params['journal_mode']}",
                "synchronous = FULL",
                f"cache_size = -{params['cache_kb']}",
                f"mmap_size = {params['mmap_mb'] * 2**20}",  # type: ignore[operator]
                f"temp_store = {params['temp_store']}",
                f"threads = {params['threads']}",
            ):
                database.execute(f"PRAGMA {pragma}").fetchall()
            run: Runner = getattr(self, f"_{work.kind}")
            return run(database, work, rng)

    def _lookups(self, database: sqlite3.Connection, work: Work, rng: np.random.Generator) -> float:
        keys = rng.integers(ROWS, size=int(work.context["lookups"])).tolist()
        began = time.perf_counter()
        for key in keys:
            database.execute("SELECT amount, note FROM orders WHERE id = ?", (key,)).fetchone()
        return _since(began)

    def _reports(self, database: sqlite3.Connection, work: Work, rng: np.random.Generator) -> float:
        wanted = int(work.context["scanned"])
        first = int(rng.integers(ROWS - wanted))
        began = time.perf_counter()
        database.execute(
            "SELECT note, count(*), sum(amount) FROM orders WHERE id BETWEEN ? AND ? GROUP BY note ORDER BY 3 DESC",
            (first, first + wanted),
        ).fetchmany(20)
        return _since(began)

    def _inserts(self, database: sqlite3.Connection, work: Work, rng: np.random.Generator) -> float:
        rows = _rows(rng, int(work.context["written"]))
        began = time.perf_counter()
        database.execute("BEGIN")
        database.executemany("INSERT INTO orders VALUES (?, ?, ?, ?)", rows)
        database.execute("COMMIT")
        return _since(began)

    def _updates(self, database: sqlite3.Connection, work: Work, rng: np.random.Generator) -> float:
        commits = int(work.context["commits"])
        keys = rng.integers(FEW_ROWS, size=(commits, int(work.context["written"]) // commits)).tolist()
        began = time.perf_counter()
        for group in keys:
            database.execute("BEGIN")
            database.executemany("UPDATE orders SET amount = amount + 1 WHERE id = ?", [(key,) for key in group])
            database.execute("COMMIT")
        return _since(began)

    def _file(self, name: str, page: object) -> Path:
        return self.folder / f"{name}-{page}.db"


def _build(file: Path, page: int, rows: int) -> None:
    with closing(sqlite3.connect(file)) as database:
        database.execute(f"PRAGMA page_size = {page}")
        database.execute("CREATE TABLE orders (id INTEGER PRIMARY KEY, customer INTEGER, amount REAL, note TEXT)")
        database.execute("CREATE INDEX by_customer ON orders (customer)")
        database.executemany("INSERT INTO orders VALUES (?, ?, ?, ?)", _rows(np.random.default_rng(0), rows))
        database.commit()


def _rows(rng: np.random.Generator, count: int) -> list[tuple[int, int, float, str]]:
    customers, amounts = rng.integers(GROUPS, size=count).tolist(), rng.random(count).round(2).tolist()
    notes = rng.permutation(GROUPS).tolist()
    return [(i, c, a, f"note {notes[c]:06d} " * 10) for i, (c, a) in enumerate(zip(customers, amounts, strict=True))]


def _since(began: float) -> float:
    return 1000.0 * (time.perf_counter() - began)
