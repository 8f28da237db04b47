"""FairQueue: jobs wait in lanes, one for each caller and study; who has used the least CPU time comes first.

Start-time fair queueing on two levels. The clock of a caller advances by the CPU time of its jobs, and so does that of
the lane within it. Next is the caller whose clock is furthest behind, and of its lanes the one furthest behind. Whoever
comes back from a pause starts at the clock of the one last served: nobody saves up time. A lane keeps the order of its
jobs.
"""

import heapq
import itertools
from collections import deque
from collections.abc import Iterator
from typing import Generic, TypeVar

MAX_REMEMBERED = 4_096  # callers, and lanes of a caller; more are forgotten while they have no jobs

Job = TypeVar("Job")


class _Lane(Generic[Job]):
    """The jobs of one caller on one study."""

    def __init__(self, caller: "_Caller[Job]", study: str | None) -> None:
        self.caller, self.study = caller, study
        self.clock = 0.0
        self.jobs: deque[Job] = deque()


class _Caller(Generic[Job]):
    """One who shares the time with others, among its studies."""

    def __init__(self) -> None:
        self.clock = 0.0
        self.served = 0.0  # clock of its lane last served
        self.lanes: dict[str | None, _Lane[Job]] = {}
        self.order: list[tuple[float, int, _Lane[Job]]] = []  # a heap of its lanes that may run
        self.waits = False  # among those that may be next


class FairQueue(Generic[Job]):
    """For one thread: `take` a job, run it, then `charge` its time; its lane waits in between."""

    def __init__(self) -> None:
        self._callers: dict[str, _Caller[Job]] = {}
        self._order: list[tuple[float, int, _Caller[Job]]] = []  # a heap of callers with lanes that may run
        self._held: dict[str, list[_Lane[Job]]] = {}  # by study: lanes that wait for `release`
        self._taken: _Lane[Job] | None = None
        self._served = 0.0  # clock of the caller last served
        self._numbers = itertools.count()

    def __bool__(self) -> bool:
        """Whether a job may run now, beside the one that was taken."""
        return bool(self._order) or (self._taken is not None and bool(self._taken.caller.order))

    def add(self, job: Job, caller: str, study: str | None) -> None:
        payer = self._callers.get(caller)
        if payer is None:
            if len(self._callers) >= MAX_REMEMBERED:
                self._callers = {name: known for name, known in self._callers.items() if self._is_busy(known)}
            payer = self._callers[caller] = _Caller()
        lane = payer.lanes.get(study)
        if lane is None:
            if len(payer.lanes) >= MAX_REMEMBERED:
                kept = {name: known for name, known in payer.lanes.items() if known.jobs or known is self._taken}
                payer.lanes = kept
            lane = payer.lanes[study] = _Lane(payer, study)
        lane.jobs.append(job)
        if len(lane.jobs) == 1 and lane is not self._taken:
            lane.clock = max(lane.clock, payer.served)
            self._enter(lane)

    def take(self) -> Job | None:
        """The next job, if there is one; nothing else of its lane runs before `charge`."""
        while self._order:
            clock, _, caller = heapq.heappop(self._order)
            caller.waits = False
            while caller.order:
                _, _, lane = heapq.heappop(caller.order)
                if lane.study in self._held:
                    self._held[lane.study].append(lane)
                    continue
                self._served, caller.served, self._taken = clock, lane.clock, lane
                return lane.jobs.popleft()
        return None

    def charge(self, cpu_s: float, unfinished: Job | None = None) -> None:
        """Account for the job taken last; what is unfinished comes next in its lane."""
        lane, self._taken = self._taken, None
        if lane is None:
            raise RuntimeError("no job was taken")
        lane.clock += cpu_s
        lane.caller.clock += cpu_s
        if unfinished is not None:
            lane.jobs.appendleft(unfinished)
        if lane.jobs:
            self._enter(lane)
        self._wait(lane.caller)

    def hold(self, study: str) -> None:
        """Let no job of this study run until `release`."""
        self._held.setdefault(study, [])

    def release(self, study: str) -> None:
        for lane in self._held.pop(study, ()):
            self._enter(lane)

    def heads(self) -> Iterator[Job]:
        """The first job of every lane that may run."""
        for _, _, caller in self._order:
            yield from (lane.jobs[0] for _, _, lane in caller.order if lane.study not in self._held)

    def drain(self) -> Iterator[Job]:
        """All jobs, also those that are held; the queue is empty afterwards."""
        for caller in self._callers.values():
            for lane in caller.lanes.values():
                yield from lane.jobs
        self._callers.clear()
        self._order.clear()
        self._held.clear()

    def _is_busy(self, caller: _Caller[Job]) -> bool:
        return any(lane.jobs or lane is self._taken for lane in caller.lanes.values())

    def _enter(self, lane: _Lane[Job]) -> None:
        heapq.heappush(lane.caller.order, (lane.clock, next(self._numbers), lane))
        self._wait(lane.caller)

    def _wait(self, caller: _Caller[Job]) -> None:
        """Put a caller among those that may be next, if it has lanes that may run."""
        taken = self._taken is not None and self._taken.caller is caller  # `charge` will do it
        if caller.order and not caller.waits and not taken:
            caller.clock, caller.waits = max(caller.clock, self._served), True
            heapq.heappush(self._order, (caller.clock, next(self._numbers), caller))
