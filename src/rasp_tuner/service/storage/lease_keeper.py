"""LeaseKeeper: the thread that renews a server's lease, takes studies nobody owns, and shares them out evenly."""

import asyncio
import logging
import math
import threading
import time
from collections.abc import Callable

from sqlalchemy.exc import SQLAlchemyError

from rasp_tuner.service.storage.leases import Leases, Survey
from rasp_tuner.service.storage.transaction import UnitOfWork
from rasp_tuner.service.storage.writer import Writer, WriterJob

ROUNDS_PER_LEASE = 3
RETRY_S = 1.0  # at most, after a renewal that failed
LEAVE_S = 10.0  # at most, for giving studies to other servers at the end
HAND_OVER_AT_ONCE = 16  # studies in one round: each pauses until its new owner has loaded it

log = logging.getLogger("rasp_tuner.serve")


class LeaseKeeper(threading.Thread):
    """Started after `begin`."""

    def __init__(self, leases: Leases, writer: Writer) -> None:
        super().__init__(name="rasp-lease", daemon=True)
        self._leases, self._writer = leases, writer
        self._stopping = threading.Event()
        self._failing = False

    def run(self) -> None:
        every = self._leases.ttl_s / ROUNDS_PER_LEASE
        pause = every
        while not self._stopping.wait(pause):
            started = time.monotonic()
            try:
                self._round()
            except SQLAlchemyError as error:
                if not self._failing:
                    log.error("the lease could not be renewed; once it is over, others take the studies: %s", error)
                self._failing, pause = True, min(every, RETRY_S)
            else:
                if self._failing:
                    log.warning("the lease holds again")
                self._failing, pause = False, max(every - (time.monotonic() - started), 0.0)

    def stop(self) -> None:
        """End the rounds, and give back what is left."""
        self._stopping.set()
        if self.is_alive():
            self.join()
        self._leases.close()

    async def leave(self) -> None:
        """Give all studies to the other servers, if there are any, while this one still answers."""
        self._leases.leaving = True
        counts = {peer.id: 0 for peer in self._leases.peers()}
        if not counts:
            return
        self._hand_over(targets(counts, len(self._writer.cache.rows)))
        until = time.monotonic() + LEAVE_S
        while self._writer.cache.rows and time.monotonic() < until:
            await asyncio.sleep(0.02)

    def _round(self) -> None:
        self._leases.renew()
        survey = self._leases.survey()
        if self._leases.leaving:
            return
        held = {row.id: row.epoch for row in list(self._writer.cache.rows.values())}
        owned, share = len(survey.mine), _share(survey)
        taken = self._leases.take_orphans(share - owned) if survey.orphans and owned < share else 0
        if taken or survey.mine != held:
            self._writer.rows_changed = True
        self._writer.purging |= survey.unpurged
        others = {server: count for server, count in survey.owned.items() if server != self._leases.id}
        if owned > share and others:
            self._hand_over(targets(others, min(owned - share, HAND_OVER_AT_ONCE)))

    def _hand_over(self, servers: list[str]) -> None:
        """Give a study to each of these servers, those first that were idle longest."""
        names, live = list(self._writer.cache.rows), dict(self._writer.cache.live)
        idle_first = sorted(names, key=lambda name: (live[name].last_at or 0.0) if name in live else 0.0)
        for name, server in zip(idle_first, servers, strict=False):
            self._writer.put(WriterJob(self._hand_over_job(name, server), writes=True))

    def _hand_over_job(self, name: str, server: str) -> Callable[[UnitOfWork], None]:
        def run(work: UnitOfWork) -> None:
            live = work.cache.live.get(name)
            store = None if live is None else self._writer.snapshots.final(live)
            if store is not None:
                store(work)
            if name in work.cache.rows:
                work.hand_over(name, server)

        return run


def begin(leases: Leases) -> None:
    """Get the lease, and this server's share of the studies that nobody has; raises SQLAlchemyError."""
    leases.renew()
    leases.take_orphans(_share(leases.survey()))


def targets(owned: dict[str, int], count: int) -> list[str]:
    """The servers that get the next studies: always the one that has the fewest."""
    counts, chosen = dict(owned), []
    for _ in range(count):
        least = min(counts, key=lambda server: (counts[server], server))
        counts[least] += 1
        chosen.append(least)
    return chosen


def _share(survey: Survey) -> int:
    """How many studies each server should have."""
    return math.ceil((sum(survey.owned.values()) + survey.orphans) / len(survey.owned))
