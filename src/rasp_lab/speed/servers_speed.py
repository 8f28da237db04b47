"""Pairs of ask and tell a second of one server, and of three on the same PostgreSQL.

python -m rasp_lab.speed.servers_speed            # needs root, for control groups, and PostgreSQL

Three servers on two cores would only wait for each other. So each is held to a share of a core, as if it were a small
machine of its own; PostgreSQL and the clients have the rest. With three servers the clients of a study ask any of them,
as behind a load balancer, so that two of three requests are sent on; or the one that has it, which its view names.
"""

import argparse
import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from rasp_lab.reliability.harness import ServerProcess, folder
from rasp_lab.reliability.postgres_server import postgres_server
from rasp_lab.speed.service_speed import Client, create, grow, play

GROUPS = Path("/sys/fs/cgroup")
PERIOD_US = 20_000


@contextlib.contextmanager
def held(pid: int, share: float) -> Iterator[None]:
    """Let a process have at most so much of a core."""
    quota, has_one_tree = str(round(share * PERIOD_US)), (GROUPS / "cgroup.controllers").exists()
    group = (GROUPS if has_one_tree else GROUPS / "cpu") / f"rasp-{pid}"
    group.mkdir()
    try:
        if has_one_tree:
            (group / "cpu.max").write_text(f"{quota} {PERIOD_US}")
        else:
            (group / "cpu.cfs_period_us").write_text(str(PERIOD_US))
            (group / "cpu.cfs_quota_us").write_text(quota)
        (group / "cgroup.procs").write_text(str(pid))
        yield
    finally:
        (group.parent / "cgroup.procs").write_text(str(pid))
        group.rmdir()


@contextlib.contextmanager
def servers(count: int, share: float) -> Iterator[list[ServerProcess]]:
    """So many servers on a new database, each held to its share once it has started."""
    with contextlib.ExitStack() as stack:
        home, database = stack.enter_context(folder()), stack.enter_context(postgres_server())
        made = [ServerProcess(home / f"server{i}", words=["--database", database.url]) for i in range(count)]
        for server in made:
            stack.callback(server.kill)
            server.start()
            stack.enter_context(held(server.pid, share))
        yield made


def rates(made: list[ServerProcess], given: argparse.Namespace, at_owner: bool) -> list[float]:
    """Pairs a second of every turn; study i is made by server i modulo their number, which then has it."""
    names = [f"s{i}{'o' if at_owner else ''}" for i in range(given.studies)]
    for i, name in enumerate(names):
        link = made[i % len(made)].link()
        create(link, name)
        grow(link, name, given.steps)
    rng, found = np.random.default_rng(0), []
    for _ in range(given.rounds):
        asked = [i % len(made) if at_owner else int(rng.integers(len(made))) for i in range(given.studies)]
        clients = [Client(made[server], name, i) for i, (server, name) in enumerate(zip(asked, names, strict=True))]
        took, answered = play(clients, given.seconds)
        found.append(answered / took / 2.0)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--share", type=float, default=0.2, help="of a core, for each server")
    parser.add_argument("--studies", type=int, default=24, help="each with a client")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=3.0, help="of every round")
    parser.add_argument("--steps", type=int, default=50, help="of every study before anything is measured")
    given = parser.parse_args()
    if os.getuid() != 0:
        parser.error("holding a server to a share of a core needs root")
    print(f"{os.cpu_count()} cores, each server held to {given.share:g} of one; medians of {given.rounds} rounds")
    with servers(1, given.share) as made:
        alone = float(np.median(rates(made, given, at_owner=True)))
    print(f"one server                       {alone:8.0f} pairs/s")
    with servers(3, given.share) as made:
        for words, at_owner in (("three servers, any is asked", False), ("three servers, the owner is asked", True)):
            rate = float(np.median(rates(made, given, at_owner)))
            print(f"{words:<33}{rate:8.0f} pairs/s   {rate / alone:.1f} times one")


if __name__ == "__main__":
    main()
