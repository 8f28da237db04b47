"""DuckDB: settings of a database and of its Parquet files, for lookups, lists, groups, joins and exports."""

import os
import time
from collections.abc import Callable
from importlib.metadata import version
from importlib.util import find_spec
from typing import Any, Self

import numpy as np

from rasp_lab.real.system import Knobs, System, Tried, Work, coarse_grid, new_seed
from rasp_tuner import Bool, Categorical, Int
from rasp_tuner.contexts import Number
from rasp_tuner.space import Params

MOST_THREADS = 4
ORDERS, CUSTOMERS = 400_000, 30_000  # rows, as in SCHEMA
UPLOAD_MB_S = 20.0
PART = 500  # rows of a narrow read
SCHEMA = """
    SELECT setseed(0.5);
    CREATE TABLE customers AS SELECT i AS id, 'region ' || (i % 40) AS region, 'customer ' || md5(i::text) AS name
        FROM range(30000) rows(i);
    CREATE TABLE orders AS SELECT i AS id, (random() * random() * 30000)::int AS customer,
        (random() * 3000)::int AS product, round(random() * 100, 2) AS amount,
        'note ' || (random() * 5000)::int || ' ' || repeat(chr(97 + (i % 26)::int), 12) AS note
        FROM range(400000) rows(i);
    CREATE TABLE tickets AS SELECT i AS id, (random() * 30000)::int AS customer, md5(i::text) AS title,
        md5('1 ' || i) AS question, md5('2 ' || i) AS answer, md5('3 ' || i) AS agent, md5('4 ' || i) AS comment
        FROM range(120000) rows(i);
    CREATE INDEX by_id ON customers (id);
    CHECKPOINT;
"""
LOOKUP = "SELECT region, name FROM customers WHERE id = ?"
LIST = "SELECT * FROM tickets WHERE customer % 5 = ? ORDER BY id DESC LIMIT ?"
GROUPS = (
    "SELECT product, count(*), sum(amount), max(note) FROM orders WHERE id BETWEEN ? AND ?"
    " GROUP BY product ORDER BY 3 DESC LIMIT 20"
)
JOIN = (
    "SELECT c.region, count(*), sum(o.amount), count(DISTINCT o.product) FROM orders o"
    " JOIN customers c ON c.id = o.customer WHERE o.id BETWEEN ? AND ? AND c.id % 3 > 0 GROUP BY c.region ORDER BY 3"
)
EXPORT = (
    "COPY (SELECT * FROM orders WHERE id BETWEEN {first} AND {last}) TO '{file}'"
    " (FORMAT parquet, CODEC '{codec}', ROW_GROUP_SIZE {row_group})"
)
READ = "SELECT sum(amount), max(note) FROM '{file}' WHERE id BETWEEN {at} AND {at} + {part}"

OPTIMIZERS = ["none", "join_order", "statistics_propagation", "compressed_materialization", "join_filter_pushdown"]
KNOBS: Knobs = {
    "threads": (Int(1, MOST_THREADS), min(MOST_THREADS, os.cpu_count() or 1)),
    "preserve_insertion_order": (Bool(), True),
    "perfect_ht_threshold": (Int(0, 20), 12),
    "late_materialization_max_rows": (Int(1, 10_000, log=True), 50),
    "disabled_optimizers": (Categorical(OPTIMIZERS), "none"),
    "parquet_metadata_cache": (Bool(), False),
    "parquet_codec": (Categorical(["uncompressed", "snappy", "lz4_raw", "zstd", "gzip"]), "snappy"),
    "parquet_row_group_size": (Int(2_048, 491_520, log=True), 122_880),
}
SETTINGS = tuple(name for name in KNOBS if name not in ("parquet_codec", "parquet_row_group_size"))
COUNTS = ("lookups", "listed", "grouped", "joined", "exported", "reads")
GRID: Tried = {
    "threads": (1, 2, MOST_THREADS),
    "late_materialization_max_rows": (50, 5_000),
    "parquet_codec": ("snappy", "zstd"),
    "parquet_row_group_size": (122_880, 30_720),
}


class DuckDb(System):
    """Six settings of a database, from `threads` (as many as cores) to one optimizer that is switched off; codec
    and row-group size of its Parquet files. Work: single-row lookups, newest rows of a wide table, a report with many
    groups, a join, an export with narrow reads. The context has the numbers of lookups, rows and reads. Cost: wall
    time, plus an exported file's size at 20 MB/s (an upload that is computed).
    """

    title = "DuckDB"
    knobs = KNOBS
    grid = coarse_grid(KNOBS, GRID)
    context = dict.fromkeys(COUNTS, Number(log=True))
    kinds = ("lookups", "lists", "groups", "joins", "exports")

    _database: Any = None

    @classmethod
    def missing(cls) -> str | None:
        return None if find_spec("duckdb") else "duckdb (pip install 'rasp-lab[real]')"

    @classmethod
    def version(cls) -> str:
        return f"DuckDB {version('duckdb')}"

    def __enter__(self) -> Self:
        import duckdb

        self._database = duckdb.connect(str(self.folder / "shop.duckdb"))
        self._database.execute(SCHEMA)
        return self

    def __exit__(self, *_: Any) -> None:
        if self._database is not None:
            self._database.close()

    def work(self, kind: str, rng: np.random.Generator) -> Work:
        own = {
            "lookups": {"lookups": (6, 30)},
            "lists": {"listed": (20, 1_000)},
            "groups": {"grouped": (20_000, 200_000)},
            "joins": {"joined": (20_000, 120_000)},
            "exports": {"exported": (5_000, 40_000), "reads": (3, 12)},
        }[kind]
        counts = {name: float(round(np.exp(rng.uniform(*np.log(ends))))) for name, ends in own.items()}
        return Work(kind, {**dict.fromkeys(COUNTS, 0.0), **counts}, new_seed(rng))

    def run(self, params: Params, work: Work) -> float:
        for name in SETTINGS:
            value = "" if params[name] == "none" else params[name]
            self._database.execute(f"SET {name} = '{value}'")
        rng = np.random.default_rng(work.seed)
        if work.kind == "lookups":
            keys = rng.integers(CUSTOMERS, size=int(work.context["lookups"])).tolist()
            return _timed(lambda: [self._database.execute(LOOKUP, [key]).fetchone() for key in keys])
        if work.kind == "lists":
            asked = [int(rng.integers(5)), int(work.context["listed"])]
            return _timed(lambda: self._database.execute(LIST, asked).fetchall())
        rows = int(max(float(count) for count in work.context.values()))
        first = int(rng.integers(ORDERS - rows))
        if work.kind == "exports":
            starts = rng.integers(first, first + rows, int(work.context["reads"])).tolist()
            return self._export(params, first, first + rows, starts)
        query = GROUPS if work.kind == "groups" else JOIN
        return _timed(lambda: self._database.execute(query, [first, first + rows]).fetchall())

    def _export(self, params: Params, first: int, last: int, starts: list[int]) -> float:
        file = self.folder / "export.parquet"
        settings = {"codec": params["parquet_codec"], "row_group": params["parquet_row_group_size"]}
        statements = [EXPORT.format(first=first, last=last, file=file, **settings)]
        statements += [READ.format(file=file, at=at, part=PART) for at in starts]
        took = _timed(lambda: [self._database.execute(statement).fetchall() for statement in statements])
        return took + file.stat().st_size / (1000.0 * UPLOAD_MB_S)


def _timed(run: Callable[[], object]) -> float:
    """Milliseconds that it takes."""
    began = time.perf_counter()
    run()
    return 1000.0 * (time.perf_counter() - began)
