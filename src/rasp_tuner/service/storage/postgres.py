"""Connections to PostgreSQL that end, on both sides, when the other side is silent for longer than a lease.

The operating system ends a connection whose other end is gone (keepalives, `tcp_user_timeout`). It does not end one
whose other end takes everything and answers nothing: a proxy that hangs, a stopped database. There only a limit of our
own helps, in `BoundedConnection`.
"""

import functools
import time
from collections.abc import Generator
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

if TYPE_CHECKING:
    import psycopg

SLOW_WORK_S = 3_600.0  # silence that is allowed while tables are rewritten


def postgres_engine(
    url: sa.URL, lease_s: float, connections: int, more: int, settings: str = "", *, slow_work: bool = False
) -> sa.Engine:
    """`slow_work`: a statement may take an hour, not only as long as a lease."""
    wait_s, silence_s = max(round(lease_s), 2), SLOW_WORK_S if slow_work else lease_s
    limits = ("idle_in_transaction_session_timeout", "statement_timeout")
    options = " ".join(f"-c {name}={round(1_000 * silence_s)}" for name in limits)
    engine = sa.create_engine(
        url.set(drivername="postgresql+psycopg"),
        pool_size=connections,
        max_overflow=more,
        hide_parameters=True,
        pool_pre_ping=True,  # after a database restart, reconnect instead of failing a commit
        connect_args={
            "options": f"-c synchronous_commit=on {options} {settings}",
            "connect_timeout": min(wait_s, 5),
            "keepalives_idle": max(wait_s // 3, 1),
            "keepalives_interval": max(wait_s // 3, 1),
            "keepalives_count": 2,
            "tcp_user_timeout": 1_000 * wait_s,
        },
    )

    @sa.event.listens_for(engine, "do_connect")
    def _connect(_: Any, __: Any, words: Any, named: Any) -> "psycopg.Connection[Any]":
        return bounded_connection(silence_s).connect(*words, **named)

    return engine


@functools.cache
def bounded_connection(silence_s: float) -> "type[psycopg.Connection[Any]]":
    """A connection that is given up when PostgreSQL does not answer for so long."""
    import psycopg  # an extra, and slow to load

    class BoundedConnection(psycopg.Connection[Any]):
        def wait(self, gen: Any, *words: Any, **named: Any) -> Any:
            return super().wait(self._bounded(gen), *words, **named)

        def _bounded(self, steps: Generator[Any, Any, Any]) -> Generator[Any, Any, Any]:
            """The same steps; psycopg sends whether the socket is ready, and 0 several times a second if it is not."""
            try:
                wanted, until = next(steps), time.monotonic() + silence_s
                while True:
                    ready = yield wanted
                    if ready:
                        until = time.monotonic() + silence_s
                    elif time.monotonic() > until:
                        self.pgconn.finish()  # without a word: who would read it?
                        raise psycopg.OperationalError(f"PostgreSQL has not answered for {silence_s:g} s")
                    wanted = steps.send(ready)
            except StopIteration as end:
                return end.value

    return BoundedConnection
