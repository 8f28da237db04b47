"""Several servers on one PostgreSQL, hurt at random under load: is anything acknowledged lost, or applied twice?

Clients ask and tell at any server, and write down what was acknowledged. In each round the server that has a study, or
PostgreSQL, is hurt in one of these ways, and the time is taken until another server answers for the study:
  kill      kill -9; it is started again afterwards
  stop      SIGSTOP for longer than a lease, then SIGCONT: it wakes up in the belief that the study is its own
  cut       its connections to the database end, and new ones do too, for longer than a lease
  hang      its connections to the database stay open, take everything and answer nothing, for longer than a lease
  restart   PostgreSQL itself is restarted
After each round, and for everything at the end, the record is compared with the log. At the end the state must be that
of a replay of the whole log. PostgreSQL runs with fsync off: this is about servers, not about disks.
"""

import json
import multiprocessing
import random
import time
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from rasp_lab.reliability.harness import (
    ForkedServerProcess,
    Gone,
    Progress,
    ServerProcess,
    Verdict,
    add_context_bytes,
    add_forked,
    context_at,
    context_kinds,
    create,
    folder,
    main,
    parser,
    percentile,
)
from rasp_lab.reliability.kill import UNAVAILABLE, Acknowledged, client, judge, replays
from rasp_lab.reliability.postgres_server import PostgresServer, Relay, postgres_server

WAYS = {"kill": 6, "stop": 2, "cut": 2, "hang": 2, "restart": 1}  # how often each of those wanted, after one of each
JUDGE_LEASE_S = 60.0
TELLS = sa.text(
    "SELECT e.body FROM events e JOIN studies s ON s.id = e.study WHERE s.name = :study AND e.ask = :ask"
    " AND kind = 'tell'"
)


class Cluster:
    """The servers, each with a way to the database of its own."""

    def __init__(self, home: Path, database: PostgresServer, given: Any) -> None:
        self.database, self.lease_s, self.context_bytes = database, given.lease, given.context_bytes
        self.relays = [Relay(database.port) for _ in range(given.servers)]
        kind = ForkedServerProcess if given.forked else ServerProcess
        words = ["--lease", str(self.lease_s), "--database"]
        self.servers = [
            kind(home / f"server{i}", words=[*words, self._through(relay)]) for i, relay in enumerate(self.relays)
        ]
        words = ["--lease", str(JUDGE_LEASE_S), "--database", database.url]
        self._judge = kind(home / "judge", words=words)

    def _through(self, relay: Relay) -> str:
        return self.database.url.replace(str(self.database.port), str(relay.port))

    def start(self) -> None:
        for server in self.servers:
            server.launch()
        for server in self.servers:
            server.wait_ready()

    def revive(self) -> None:
        """Start those again that ended by themselves, as a supervisor would: the database was away when they began."""
        for server in self.servers:
            if server.process is not None and server.process.poll() is not None:
                server.launch()

    def judge(self) -> ServerProcess:
        """A server that has all studies; the others stop, each with snapshots of what it had in memory.

        Its lease is long: on a busy machine a short one may be over, and an answer lost, while the log is replayed.
        """
        for server in self.servers:
            server.stop()
        time.sleep(self.lease_s)  # the studies of one that did not stop well are free after that
        self._judge.start()
        return self._judge

    def end(self) -> None:
        for server in (*self.servers, self._judge):
            server.kill()
        for relay in self.relays:
            relay.close()

    def owner(self, study: str) -> int:
        """Which server has the study."""
        while True:
            for server in self.servers:
                try:
                    status, view = server.link(5.0).get(f"/v1/studies/{study}")
                except Gone:
                    continue
                if status == 200:
                    return next(i for i, known in enumerate(self.servers) if view["server"].endswith(f":{known.port}"))
            time.sleep(0.05)

    def takeover_s(self, study: str, hurt: int, since: float) -> float:
        """Seconds until an ask for the study is answered by another server than the one that was hurt."""
        links = [server.link(5.0) for i, server in enumerate(self.servers) if i != hurt]
        while True:
            for link in links:
                try:
                    status, _ = link.post(f"/v1/studies/{study}/ask", {"context": context_at(0, self.context_bytes)})
                except Gone:
                    continue
                if status == 200:
                    return time.monotonic() - since
                if status not in UNAVAILABLE:
                    raise RuntimeError(f"an ask was answered {status}")
            time.sleep(0.02)

    def hurt(self, way: str, study: str, rng: random.Random) -> float:
        """Hurt the owner of a study, and mend it; seconds until another answered. What was killed starts meanwhile."""
        self.revive()
        i = self.owner(study)
        while not any(server.is_ready() for k, server in enumerate(self.servers) if k != i):
            time.sleep(0.05)
        since = time.monotonic()
        server, longer = self.servers[i], self.lease_s * rng.uniform(1.2, 2.0)
        if way == "kill":
            server.kill()
            server.launch()
            took = self.takeover_s(study, i, since)
        elif way == "stop":
            server.pause(True)
            took = self.takeover_s(study, i, since)
            time.sleep(max(since + longer - time.monotonic(), 0.0))
            server.pause(False)
        elif way == "cut":
            self.relays[i].is_cut = True
            took = self.takeover_s(study, i, since)
            time.sleep(max(since + longer - time.monotonic(), 0.0))
            self.relays[i].is_cut = False
        elif way == "hang":
            self.relays[i].is_hung = True
            took = self.takeover_s(study, i, since)
            time.sleep(max(since + longer - time.monotonic(), 0.0))
            self.relays[i].is_hung = False
        else:
            self.database.stop()
            self.database.start()
            took = self.takeover_s(study, -1, since)
        return took


def missing(engine: sa.Engine, record: Acknowledged) -> tuple[int, int]:
    """How many tells that were acknowledged since the last look the database has not, or has more than once."""
    lost = twice = 0
    with engine.connect() as connection:
        for study, id in record.read():
            rows = connection.execute(TELLS, {"study": study, "ask": int(id[1:])}).scalars().all()
            lost += not any(json.loads(body)["metrics"] == record.tells[study, id] for body in rows)
            twice += len(rows) > 1
    return lost, twice


def run() -> int:
    args = parser(__doc__, "python -m rasp_lab.reliability.many_servers --rounds 200")
    args.add_argument("--servers", type=int, default=3)
    args.add_argument("--rounds", type=int, default=10)
    args.add_argument("--ways", nargs="+", choices=list(WAYS), default=list(WAYS))
    args.add_argument("--lease", type=float, default=2.0, help="seconds")
    args.add_argument("--studies", type=int, default=3)
    args.add_argument("--load", type=float, default=0.8, help="at most so many seconds of load between rounds")
    args.add_argument("--minutes", type=float, default=float("inf"), help="make no more rounds after so long")
    args.add_argument("--seed", type=int, default=0)
    add_context_bytes(args)
    add_forked(args)
    given = args.parse_args()
    with folder() as home, postgres_server() as database:
        cluster = Cluster(home, database, given)
        try:
            cluster.start()
            return rounds(cluster, home, given)
        finally:
            cluster.end()


def rounds(cluster: Cluster, home: Path, given: Any) -> int:
    rng, verdict = random.Random(given.seed), Verdict("many_servers")
    studies = [f"web{i}" for i in range(given.studies)]
    for i, study in enumerate(studies):
        create(cluster.servers[i % given.servers].link(), study, context=context_kinds(given.context_bytes))
    context = multiprocessing.get_context("fork")
    stop, ports = context.Event(), [server.port for server in cluster.servers]
    paths, clients = [home / f"client{i}" for i in range(given.studies)], []
    for i, path in enumerate(paths):
        path.touch()
        words = (ports, studies[i], given.seed + i, path, stop, given.context_bytes)
        clients.append(context.Process(target=client, args=words))
        clients[-1].start()
    engine = sa.create_engine(cluster.database.url.replace("postgresql:", "postgresql+psycopg:"), pool_pre_ping=True)
    record, progress = Acknowledged(paths), Progress("rounds", given.rounds)
    took: dict[str, list[float]] = {way: [] for way in given.ways}
    lost = twice = done = 0
    try:
        until = time.monotonic() + 60.0 * given.minutes
        while done < given.rounds and time.monotonic() < until:
            time.sleep(rng.uniform(0.05, given.load))
            drawn = rng.choices(given.ways, [WAYS[way] for way in given.ways])[0]
            way = drawn if done >= len(given.ways) else given.ways[done]
            took[way].append(cluster.hurt(way, rng.choice(studies), rng))
            found = missing(engine, record)
            lost, twice, done = lost + found[0], twice + found[1], done + 1
            progress.to(done, f"{way} {took[way][-1]:.1f} s, lost {lost}, twice {twice}, {len(record.tells):,} tells")
        cluster.revive()
        for server in cluster.servers:
            server.wait_ready()
        time.sleep(0.5)
    finally:
        stop.set()
        for process in clients:
            process.join(60)
    record.read()
    record.close()
    engine.dispose()
    return report(cluster, studies, record, took, (lost, twice, done), verdict, given)


def report(
    cluster: Cluster,
    studies: list[str],
    record: Acknowledged,
    took: dict[str, list[float]],
    counted: tuple[int, int, int],
    verdict: Verdict,
    given: Any,
) -> int:
    lost, twice, done = counted
    link = cluster.judge().link(600.0)
    found = [judge(link, study, record) for study in studies]
    total = {name: sum(each[name] for each in found) for name in found[0]}
    same = all(replays(link, study, given.context_bytes) for study in studies)
    verdict.figure("servers", given.servers)
    verdict.figure("lease, s", given.lease)
    verdict.figure("bytes of a context", len(json.dumps(context_at(0, given.context_bytes))))
    verdict.figure("tells acknowledged", len(record.tells))
    verdict.figure("asks acknowledged", len(record.asks))
    verdict.figure("lost", lost + total["lost"])
    verdict.figure("applied twice", max(twice, total["twice"], record.twice))
    verdict.figure("ids lost, changed or handed out twice", total["asks_changed"] + record.reissued)
    verdict.figure("refused by a server", len(record.errors))
    if record.errors:
        verdict.figure("first refusal", str(record.errors[0])[:200])
    for way, seconds in took.items():
        verdict.figure(f"{way}: rounds", len(seconds))
        if seconds:
            verdict.figure(f"{way}: answered by another, median, s", percentile(seconds, 0.5))
            verdict.figure(f"{way}: answered by another, max, s", max(seconds))
    verdict.promise(f"all {given.rounds:,} rounds were made", done == given.rounds)
    verdict.promise("no acknowledged tell is lost", not lost and not total["lost"])
    verdict.promise("none is applied twice", not twice and not total["twice"] and not record.twice)
    verdict.promise("an id handed out keeps its parameters", not total["asks_changed"] and not record.reissued)
    verdict.promise("what clients sent was never refused", not record.errors)
    verdict.promise("counts are those of the log", not total["counts_differ"])
    verdict.promise("the state is that of a replay of the log", same)
    return verdict.end(given.json)


if __name__ == "__main__":
    main(run)
