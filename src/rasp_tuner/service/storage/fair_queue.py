"""FairQueue: jobs wait in lanes, one for each caller and study; who has used the least CPU time comes first.

Start-time fair queueing: a lane's clock advances by the CPU time of its jobs, and so does its caller's. The lane whose
clocks are furthest behind is next. A lane that was empty starts at the clock of the lane last served, so that nobody
saves up time. Within a lane jobs keep their order.
"""

import heapq
import itertools
from collections import deque
from collections.abc import Iterator
from typing import Generic, TypeVar

MAX_IDLE = 4_096  # lanes, and callers, remembered without jobs

Job = TypeVar("Job")


class _Lane(Generic[Job]):
    def __init__(self, caller: str, study: str | None) -> None:
        self.caller, self.study = caller, study
        self.clock = 0.0
        self.jobs: deque[Job] = deque()


class FairQueue(Generic[Job]):
    """For one thread: `take` a job, run it, then `charge` its time; the lane waits in between."""

    def __init__(self) -> None:
        self._lanes: dict[tuple[str, str | None], _Lane[Job]] = {}
        self._callers: dict[str, float] = {}  # clocks
        self._order: list[tuple[float, int, _Lane[Job]]] = []  # a heap of the lanes with jobs that may run
        self._held: dict[str, list[_Lane[Job]]] = {}  # by study: lanes that wait for `release`
        self._taken: _Lane[Job] | None = None
        self._clock = 0.0
        self._numbers = itertools.count()

    def __bool__(self) -> bool:
        """Whether a job may run now."""
        return bool(self._order)

    def add(self, job: Job, caller: str, study: str | None) -> None:
        lane = self._lanes.get((caller, study))
        if lane is None:
            self._forget_idle()
            lane = self._lanes[caller, study] = _Lane(caller, study)
        lane.jobs.append(job)
        if len(lane.jobs) == 1 and lane is not self._taken:
            lane.clock = max(lane.clock, self._clock)
            self._callers[caller] = max(self._callers.get(caller, 0.0), self._clock)
            self._enter(lane)

    def take(self) -> Job | None:
        """The next job, if there is one; nothing else of its lane runs before `charge`."""
        while self._order:
            due, _, lane = heapq.heappop(self._order)
            if lane.study in self._held:
                self._held[lane.study].append(lane)
            elif self._due(lane) > due:
                self._enter(lane)  # its caller has used time in other lanes meanwhile
            else:
                self._clock, self._taken = due, lane
                return lane.jobs.popleft()
        return None

    def charge(self, cpu_s: float, unfinished: Job | None = None) -> None:
        """Account for the job taken last; what is unfinished comes next in its lane."""
        lane, self._taken = self._taken, None
        if lane is None:
            raise RuntimeError("no job was taken")
        lane.clock += cpu_s
        self._callers[lane.caller] += cpu_s
        if unfinished is not None:
            lane.jobs.appendleft(unfinished)
        if lane.jobs:
            self._enter(lane)

    def hold(self, study: str) -> None:
        """Let no job of this study run until `release`."""
        self._held.setdefault(study, [])

    def release(self, study: str) -> None:
        for lane in self._held.pop(study, ()):
            self._enter(lane)

    def is_held(self, study: str) -> bool:
        return study in self._held

    def heads(self) -> Iterator[Job]:
        """The first job of every lane that may run."""
        return (lane.jobs[0] for _, _, lane in self._order if lane.study not in self._held)

    def drain(self) -> Iterator[Job]:
        """All jobs, also those that are held; the queue is empty afterwards."""
        for lane in self._lanes.values():
            yield from lane.jobs
            lane.jobs.clear()
        self._order.clear()
        self._held.clear()

    def _due(self, lane: _Lane[Job]) -> float:
        return max(lane.clock, self._callers[lane.caller])

    def _enter(self, lane: _Lane[Job]) -> None:
        heapq.heappush(self._order, (self._due(lane), next(self._numbers), lane))

    def _forget_idle(self) -> None:
        """Keep the memory bounded: names of studies and callers come from requests."""
        if len(self._lanes) < MAX_IDLE:
            return
        self._lanes = {key: lane for key, lane in self._lanes.items() if lane.jobs or lane is self._taken}
        busy = {lane.caller for lane in self._lanes.values()}
        self._callers = {caller: clock for caller, clock in self._callers.items() if caller in busy}
