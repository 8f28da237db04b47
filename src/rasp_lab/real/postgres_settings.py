"""PostgreSQL: settings of a session, for updates, joins, groups and lists on a server of its own."""

import os
import pwd
import shutil
import signal
import socket
import subprocess
import time
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Self

import numpy as np

from rasp_lab.real.system import Knobs, RunFailed, System, Tried, Work, coarse_grid, new_seed
from rasp_tuner import Bool, Float, Int
from rasp_tuner.contexts import Number
from rasp_tuner.space import Params

CUSTOMERS, ORDERS = 12_000, 60_000  # rows, as in SCHEMA
TIMEOUT_MS = 1_500
START_S = 30.0
SCHEMA = """
    CREATE TABLE customers (id int PRIMARY KEY, region int, name text);
    CREATE TABLE orders (id int PRIMARY KEY, customer int, product int, amount float8, note text);
    CREATE TABLE accounts (id int PRIMARY KEY, balance int, filler text);
    CREATE TABLE history (account int, delta int, at timestamptz DEFAULT now());
    SELECT setseed(0.5);
    INSERT INTO customers SELECT i, i % 40, 'customer ' || md5(i::text) FROM generate_series(1, 12000) i;
    INSERT INTO orders SELECT i, 1 + floor(random() * 12000), floor(random() * 3000), random() * 100, md5(i::text)
        FROM generate_series(1, 60000) i;
    INSERT INTO accounts SELECT i, 0, repeat('x', 80) FROM generate_series(1, 12000) i;
    CREATE INDEX ON orders (customer);
"""
QUERIES = {
    "joins": "SELECT c.region, count(*), sum(o.amount) FROM orders o JOIN customers c ON c.id = o.customer"
    " WHERE c.id BETWEEN %(first)s AND %(last)s GROUP BY c.region",
    "groups": "SELECT note, product, count(*), max(amount) FROM orders WHERE id BETWEEN %(first)s AND %(last)s"
    " GROUP BY note, product ORDER BY 4 DESC, 1 LIMIT 20",
    "lists": "SELECT c.name, (SELECT max(o.amount) FROM orders o WHERE o.customer = c.id) AS best,"
    " (SELECT count(*) FROM orders o WHERE o.customer = c.id AND o.amount > 50) AS large FROM customers c"
    " WHERE c.id BETWEEN %(first)s AND %(last)s ORDER BY best DESC NULLS LAST LIMIT 20",
}


KNOBS: Knobs = {
    "work_mem": (Int(64, 131_072, log=True), 4096),  # kB
    "hash_mem_multiplier": (Float(1.0, 8.0, log=True), 2.0),
    "random_page_cost": (Float(1.0, 8.0, log=True), 4.0),
    "effective_io_concurrency": (Int(0, 16), 1),
    "max_parallel_workers_per_gather": (Int(0, 4), 2),
    "jit": (Bool(), True),
    "enable_hashjoin": (Bool(), True),
    "enable_mergejoin": (Bool(), True),
    "enable_nestloop": (Bool(), True),
    "enable_hashagg": (Bool(), True),
}
GRID: Tried = {
    "work_mem": (4096, 65_536),
    "random_page_cost": (4.0, 1.1),
    "max_parallel_workers_per_gather": (2, 0),
    "jit": (True, False),
}
COUNTS = ("updates", "joined", "grouped", "listed")


class PostgresSettings(System):
    """Ten settings of a session, from `work_mem` to `jit` and `enable_*`. `synchronous_commit` and `fsync` stay on: no
    setting gives up durability. Work: updates in small transactions as in pgbench, a join, a report with many groups,
    and a list with two subqueries for each row. The context has the numbers of rows and of transactions. Cost: wall
    time of the statements; beyond 1.5 s a run has failed.
    """

    title = "PostgreSQL"
    knobs = KNOBS
    grid = coarse_grid(KNOBS, GRID)
    context = dict.fromkeys(COUNTS, Number(log=True))
    kinds = ("updates", "joins", "groups", "lists")

    _server: subprocess.Popen[bytes] | None = None
    _session: Any = None

    @classmethod
    def missing(cls) -> str | None:
        if not (_programs() / "initdb").exists():
            return "PostgreSQL (Debian's package postgresql)"
        if os.getuid() == 0 and not _has_user():
            return "a user postgres to run PostgreSQL as: it does not run as root"
        return None if find_spec("psycopg") else "psycopg (pip install 'rasp-lab[real]')"

    @classmethod
    def version(cls) -> str:
        said = subprocess.run(
            [_programs() / "postgres", "--version"], check=True, capture_output=True, text=True
        ).stdout
        return f"PostgreSQL {said.split()[2]}"

    def __enter__(self) -> Self:
        import psycopg

        try:
            self._start()
            # never prepared: a prepared statement would keep the plan that another agent's settings gave
            self._session = psycopg.connect(self._address, autocommit=True, prepare_threshold=None)
            self._session.execute(SCHEMA)
            self._session.execute("VACUUM ANALYZE")
            self._session.execute(f"SET statement_timeout = {TIMEOUT_MS}")
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: Any) -> None:
        if self._session is not None:
            self._session.close()
        if self._server is not None:
            self._server.send_signal(signal.SIGINT)  # does not wait for clients to go
            self._server.wait(20)

    def work(self, kind: str, rng: np.random.Generator) -> Work:
        own = {
            "updates": {"updates": float(rng.integers(3, 9))},
            "joins": {"joined": float(rng.integers(100, 800))},
            "groups": {"grouped": float(rng.integers(6_000, 14_000))},
            "lists": {"listed": float(rng.integers(2_500, 4_000))},
        }[kind]
        return Work(kind, {**dict.fromkeys(COUNTS, 0.0), **own}, new_seed(rng))

    def run(self, params: Params, work: Work) -> float:
        import psycopg

        self._session.execute("; ".join(f"SET {name} = '{value}'" for name, value in params.items()))
        rng = np.random.default_rng(work.seed)
        began = time.perf_counter()
        try:
            if work.kind == "updates":
                self._update(int(work.context["updates"]), rng)
            else:
                self._query(work, rng)
        except psycopg.errors.QueryCanceled as reason:
            raise RunFailed(str(reason)) from reason
        return 1000.0 * (time.perf_counter() - began)

    def _query(self, work: Work, rng: np.random.Generator) -> None:
        rows = int(max(work.context.values()))
        first = int(rng.integers((ORDERS if work.kind == "groups" else CUSTOMERS) - rows + 1))
        self._session.execute(QUERIES[work.kind], {"first": first, "last": first + rows}).fetchall()

    def _update(self, count: int, rng: np.random.Generator) -> None:
        accounts, deltas = rng.integers(1, CUSTOMERS, count).tolist(), rng.integers(-9, 9, count).tolist()
        for account, delta in zip(accounts, deltas, strict=True):
            with self._session.transaction():
                self._session.execute("UPDATE accounts SET balance = balance + %s WHERE id = %s", (delta, account))
                self._session.execute("SELECT balance FROM accounts WHERE id = %s", (account,)).fetchone()
                self._session.execute("INSERT INTO history (account, delta) VALUES (%s, %s)", (account, delta))

    def _start(self) -> None:
        """A server of its own in the folder, until `__exit__`."""
        import psycopg

        as_user: list[str] = []
        if os.getuid() == 0:  # PostgreSQL refuses to run as root
            user = pwd.getpwnam("postgres")
            as_user = ["setpriv", f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}", "--clear-groups"]
            os.chown(self.folder, user.pw_uid, user.pw_gid)
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        as_user = [*as_user, "env", f"PATH={_programs()}:{os.environ['PATH']}"]
        made = [*as_user, "initdb", "-D", "db", "-U", "rasp", "-A", "trust", "-E", "UTF8", "--no-sync"]
        subprocess.run(made, check=True, capture_output=True, cwd=self.folder)
        command = [*as_user, "postgres", "-D", "db", "-p", str(port), "-k", str(self.folder), "-h", "127.0.0.1"]
        with (self.folder / "log").open("wb") as log:
            self._server = subprocess.Popen(command, cwd=self.folder, stdout=log, stderr=log)
        self._address = f"postgresql://rasp@127.0.0.1:{port}/postgres"
        until = time.monotonic() + START_S
        while True:
            try:
                psycopg.connect(self._address).close()
                return
            except psycopg.OperationalError:
                if time.monotonic() > until or self._server.poll() is not None:
                    raise
                time.sleep(0.1)


def _programs() -> Path:
    """The folder of PostgreSQL's programs, which Debian keeps out of the path; a false one if there are none."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    program = found[-1] if found else Path(shutil.which("initdb") or "nowhere/initdb").resolve()
    return program.parent


def _has_user() -> bool:
    try:
        pwd.getpwnam("postgres")
    except KeyError:
        return False
    return True
