"""Service: called by the routes. It turns each request into a job for the writer and waits for the answer."""

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, TypeVar

from rasp_tuner.errors import RaspError
from rasp_tuner.service import service_errors
from rasp_tuner.service.auth import ApiKeys, Caller
from rasp_tuner.service.limits import Limits
from rasp_tuner.service.service_errors import Conflict, InvalidRequest, ServiceError
from rasp_tuner.service.sse import SseBroadcaster
from rasp_tuner.service.storage.erasure import Replay, erasure_query
from rasp_tuner.service.storage.file_watch import FilesGone
from rasp_tuner.service.storage.lease_keeper import LeaseKeeper, begin
from rasp_tuner.service.storage.leases import Leases
from rasp_tuner.service.storage.store import Store
from rasp_tuner.service.storage.transaction import MORE, UnitOfWork
from rasp_tuner.service.storage.writer import Writer, WriterJob
from rasp_tuner.service.study import study_snapshot
from rasp_tuner.service.study.definition import StudyDefinition, check_default_given
from rasp_tuner.service.study.events import Event, ask_id
from rasp_tuner.service.study.live_study import LiveStudy
from rasp_tuner.service.study.study_summary import StudySummary
from rasp_tuner.service.study_list import PAGE_S, ListQuery, PageRead, StudyDirectory
from rasp_tuner.service.telemetry import NumbersRead, Telemetry

T = TypeVar("T")

CLEAN_FILES_WAIT_S = 30.0  # how long `forget` waits for the files to be clean
TRUST_WRITE_S = 2.0  # for how long a write that succeeded shows that the next one will
TEST_WRITE_S = 2.0  # how long /readyz waits for a test write
USED_S = 3_600.0  # for which a caller counts as a user of a study

caller_name: ContextVar[str] = ContextVar("caller_name", default="local")  # whose request it is; the gateway sets it


@dataclass(frozen=True, slots=True)
class Answer:
    """What somebody tells of a suggestion."""

    id: str
    metrics: dict[str, float] | None  # None: it failed
    reason: str = ""
    params: dict[str, Any] | None = None  # what ran; None: what was suggested
    stopped: bool = False  # the run was ended: the metrics are at least so bad
    control: dict[str, float] | None = None  # metrics of the default, measured beside it


class Service:
    """One store, one writer; all methods are called on the event loop."""

    def __init__(
        self,
        store: Store,
        limits: Limits,
        *,
        open_without_keys: bool,
        leases: Leases | None = None,
        make_writer: Callable[..., Writer] = Writer,
    ) -> None:
        """`leases`: one of several servers."""
        self.store, self.limits, self.leases = store, limits, leases
        self.keys = ApiKeys(store, open_without_keys)
        self.broadcaster = SseBroadcaster(limits.streams, limits.streams_of_one)
        self.telemetry = Telemetry()
        if leases is not None:
            begin(leases)
        publish, committed = self.broadcaster.publish, self.telemetry.commits.observe
        self.writer = make_writer(store, publish, committed, limits.studies_in_memory, leases)
        self.keeper = None if leases is None else LeaseKeeper(leases, self.writer)
        self._list = StudyDirectory()
        self._waiting = {True: 0, False: 0}  # writes, reads
        self._testing: asyncio.Future[Any] | None = None  # a test write for /readyz
        self._waiting_of: dict[tuple[str | None, bool], int] = {}  # the same, by study
        self.users: dict[str, dict[str, float]] = {}  # study -> caller -> when they last wrote to it

    def close(self) -> None:
        """Called when the writer has stopped."""
        if self.keeper is not None:
            self.keeper.stop()
        self.store.close()

    def holds_study(self, name: str) -> bool:
        """Whether this server has the study; with one server every study that there is."""
        return name in self.writer.cache.rows or (self.leases is not None and name in self.leases.taken)

    def view(self, study: LiveStudy | StudySummary, work: UnitOfWork) -> dict[str, Any]:
        """A study as its routes show it, with the server that has it if there may be several."""
        return {**study.view(work.now), "server": None if self.leases is None else self.leases.url}

    def users_of(self, study: str, now: float) -> list[dict[str, Any]]:
        """Who has asked or told lately, latest first."""
        seen = self.users.get(study, {})
        lately = {caller: at for caller, at in list(seen.items()) if at > now - USED_S}
        latest = sorted(lately, key=lambda caller: -lately[caller])
        return [{"name": self.keys.shown(caller), "at": lately[caller]} for caller in latest]

    async def study_names(self) -> list[str]:
        """The names of all studies, of all servers."""
        if self.leases is None:
            return sorted(self.writer.cache.rows)
        return sorted(await asyncio.to_thread(self.leases.names))

    @property
    def queue_is_full(self) -> bool:
        """Whether the maximum number of asks and tells wait: one more would be refused."""
        return self._waiting[True] >= self.limits.waiting

    async def submit(
        self,
        run: Callable[[UnitOfWork], Any],
        *,
        writes: bool,
        weight: int = 1,
        study: str | None = None,
    ) -> Any:
        """The answer of a job, or the error it raised; Unavailable at once if too many jobs wait.

        No study may take more than half of the room: those of others must find some.
        """
        if not self.writer.is_alive():
            raise service_errors.storage_failed()
        if writes and self.leases is not None and not self.leases.holds:
            raise service_errors.lease_over()
        waiting, of_study = self._waiting[writes], self._waiting_of.get((study, writes), 0)
        if waiting + weight > self.limits.waiting or of_study + weight > max(self.limits.waiting // 2, 1):
            raise service_errors.overloaded()
        self._add_waiting(study, writes, weight)
        if writes and study in self.writer.cache.rows:  # of no other, so that it stays small
            self.users.setdefault(study, {})[caller_name.get()] = time.time()
        future = asyncio.get_running_loop().create_future()
        self.writer.put(WriterJob(run, writes, future, study, caller_name.get()))
        try:
            return await future
        finally:
            self._add_waiting(study, writes, -weight)

    def _add_waiting(self, study: str | None, writes: bool, weight: int) -> None:
        self._waiting[writes] += weight
        left = self._waiting_of.pop((study, writes), 0) + weight
        if left:
            self._waiting_of[study, writes] = left

    async def why_not_ready(self) -> str | None:
        """Why no durable tell can be taken now; None: one can. A test write is made if the latest write is old."""
        writer = self.writer
        if not (writer.is_alive() and writer.ready.is_set()):
            return "the writer does not run"
        if self.leases is not None and not self.leases.holds:
            return service_errors.lease_over().message
        try:
            self.store.check_files()
        except FilesGone as error:
            return str(error)
        if writer.loading is not None:
            return f"study {writer.loading!r} is being built from its log"
        if not writer.failing and time.monotonic() - writer.committed_at > TRUST_WRITE_S:
            if self._testing is None or self._testing.done():
                self._testing = asyncio.ensure_future(self.submit(lambda _: writer.probe(), writes=False))
            try:
                await asyncio.wait_for(asyncio.shield(self._testing), TEST_WRITE_S)
            except TimeoutError:
                return f"the writer has not come to a test write for {TEST_WRITE_S:g} s"
            except ServiceError as error:
                return error.message
        return writer.failing

    # studies

    def create(self, request: Mapping[str, Any], caller: Caller) -> Awaitable[tuple[bool, dict[str, Any]]]:
        """Whether the study is new, and its view; a Conflict if the name has another definition."""
        definition = StudyDefinition.from_wire(request)

        def run(work: UnitOfWork) -> tuple[bool, dict[str, Any]]:
            if work.cache.row(definition.name) is not None:
                live = work.study(definition.name)
                if live.definition != definition:
                    message = (
                        f"study {definition.name!r} exists with another definition; delete it or take another name"
                    )
                    raise Conflict(message, "name")
                return False, self.view(live, work)
            check_default_given(request)
            self._check_study_limit(work)
            live = work.create_study(definition)
            work.audit(caller.name, "study created", definition.name)
            return True, self.view(live, work)

        return self.submit(run, writes=True, study=definition.name)

    def _check_study_limit(self, work: UnitOfWork) -> None:
        if len(work.cache.rows) >= self.limits.studies:
            most = self.limits.studies
            raise Conflict(f"the limit of studies is reached, which is {most}: rasp serve --studies", "name")

    async def list_studies(self, query: ListQuery) -> dict[str, Any]:
        """The views of a page of studies; without a limit it waits for those that are not in memory yet."""
        page = PageRead(self._list, query, self.view)
        await self.submit(page.run, writes=False)
        missing, until = page.missing, time.monotonic() + PAGE_S
        while missing and (query.limit is None or time.monotonic() < until):
            name = missing.pop(0)
            with contextlib.suppress(ServiceError):  # deleted meanwhile, or damaged: a request by name explains
                page.views[name] = await self._read_view(name)
        return page.answer(len(missing))

    def _read_view(self, name: str) -> Awaitable[dict[str, Any]]:
        """The view of a study; it is loaded only if nothing is known of it."""
        cache = self.writer.cache
        known = name in cache.live or name in cache.away

        def run(work: UnitOfWork) -> dict[str, Any]:
            return self.view(cache.away.get(name) or work.study(name), work)

        return self.submit(run, writes=False, study=None if known else name)

    def read(self, name: str, read: Callable[[LiveStudy, UnitOfWork], Any]) -> Awaitable[Any]:
        """The result of `read` on a study; it must change nothing."""
        return self.submit(lambda work: read(work.study(name), work), writes=False, study=name)

    def write(self, name: str, write: Callable[[LiveStudy, UnitOfWork], Any], weight: int = 1) -> Awaitable[Any]:
        """The result of `write`, which may change a study, once it is on disk; MORE: it is called again."""

        def run(work: UnitOfWork) -> Any:
            return write(work.study(name, writes=True), work)

        return self.submit(run, writes=True, weight=weight, study=name)

    async def import_study(self, new: LiveStudy, events: list[Event], caller: Caller) -> dict[str, Any]:
        """Add an imported study with all its events in one commit; returns its view."""
        snapshot = await asyncio.to_thread(study_snapshot.capture(new))

        def run(work: UnitOfWork) -> dict[str, Any]:
            name = new.definition.name
            if work.cache.row(name) is not None:
                raise Conflict(f"a study {name!r} exists already; import it under another name", "name")
            self._check_study_limit(work)
            live = work.adopt_study(new, events)
            work.add_snapshot(live, live.seq, snapshot)
            work.audit(caller.name, "study imported", name)
            return self.view(live, work)

        view: dict[str, Any] = await self.submit(run, writes=True, study=new.definition.name)
        return view

    async def forget(self, name: str, wanted: Mapping[str, Any], caller: Caller) -> dict[str, Any]:
        """Erase records: the study is rebuilt as if it never had them, then the files are cleaned."""
        replay: Replay = await self.read(name, lambda live, _: Replay(self.store, live, erasure_query(wanted, live)))
        erased = await asyncio.to_thread(replay.run)

        def finish(work: UnitOfWork) -> bool:
            done = replay.finish(work)
            if done:
                work.audit(caller.name, "records erased", f"{name}: {erased}")
            return done

        while erased and not await self.submit(finish, writes=True, study=name):
            await asyncio.to_thread(replay.catch_up)
        until = time.monotonic() + CLEAN_FILES_WAIT_S
        while self.writer.purging and time.monotonic() < until:
            await asyncio.sleep(0.05)
        return {"erased": erased, "scrubbed": not self.writer.purging}

    # asks and answers

    def ask(self, name: str, contexts: list[Any]) -> Awaitable[list[dict[str, Any]]]:
        """One suggestion for each context; a wrong context raises before the first is made."""

        made: list[dict[str, Any]] = []

        def run(live: LiveStudy, work: UnitOfWork) -> Any:
            for i, context in enumerate(contexts if len(contexts) > 1 and not made else []):
                try:
                    live.tuner.check_context(context)
                except RaspError as error:
                    raise InvalidRequest(f"contexts[{i}]: {error}", f"contexts[{i}]") from error
            return _in_pieces(contexts, made, lambda context: self.suggest(work, live, context), work)

        return self.write(name, run, len(contexts))

    def suggest(
        self, work: UnitOfWork, live: LiveStudy, context: Any, flag: dict[str, str] | None = None
    ) -> dict[str, Any]:
        """A suggestion, within a job; `flag` as in flag_leases.py."""
        started = time.perf_counter()
        event = live.ask(context, work.now, flag)
        self.telemetry.ask(time.perf_counter() - started)
        work.add_event(live, event)
        expires = event.at + live.definition.lease_s
        number = event.ask or 0
        stop = live.stop_of(number)
        return {"id": ask_id(number), "params": event.body["params"], "expires_at": expires, "stop": stop}

    def tell(self, name: str, answer: Answer) -> Awaitable[dict[str, Any]]:
        """The result of one tell."""
        return self.write(name, lambda live, work: self.learn(work, live, answer))

    def tell_batch(self, name: str, tells: list[Answer]) -> Awaitable[list[dict[str, Any]]]:
        """One result for each tell; each is accepted or rejected on its own."""

        told: list[dict[str, Any]] = []

        def run(live: LiveStudy, work: UnitOfWork) -> Any:
            return _in_pieces(tells, told, lambda tell: self._tell_in_batch(work, live, tell), work)

        return self.write(name, run, len(tells))

    def _tell_in_batch(self, work: UnitOfWork, live: LiveStudy, answer: Answer) -> dict[str, Any]:
        try:
            return self.learn(work, live, answer)
        except RaspError as error:
            rejected = service_errors.as_service_error(error)
        self.telemetry.count_rejected(rejected.code)
        return {"id": answer.id, "status": "rejected", **rejected.to_json()}

    def learn(self, work: UnitOfWork, live: LiveStudy, answer: Answer) -> dict[str, Any]:
        """The result of one tell, within a job."""
        id, started = answer.id, time.perf_counter()
        told = answer.metrics, answer.reason, answer.params, answer.stopped, answer.control
        outcome = live.tell(id, work.now, work.store, *told)
        if not isinstance(outcome, Event):
            return {"id": id, "status": "duplicate", "late": outcome.late}
        self.telemetry.tell(time.perf_counter() - started)
        work.add_event(live, outcome)
        return {"id": id, "status": "learned", "late": live.answer_was_late(outcome)}

    def learn_sums(
        self, work: UnitOfWork, live: LiveStudy, sums: list[dict[str, Any]], source: str | None, sequence: int
    ) -> str:
        """The status of telling sums of runs, within a job."""
        started = time.perf_counter()
        event = live.tell_sums(sums, source, sequence, work.now, work.store)
        if event is None:
            return "duplicate"
        self.telemetry.tell(time.perf_counter() - started)
        work.add_event(live, event)
        return "learned"

    async def metrics(self) -> bytes:
        """The answer to /metrics."""
        return await asyncio.to_thread(self.telemetry.text, *await self.numbers())  # others ask meanwhile

    async def numbers(self) -> tuple[dict[str, float], list[dict[str, Any]]]:
        """The gauges of the server, and the numbers of each study in memory."""
        read, cache = NumbersRead(), self.writer.cache
        await self.submit(read.run, writes=False)
        gauges: dict[str, float] = {
            "rasp_waiting": self._waiting[True],
            "rasp_damaged_studies": len(cache.damaged),
            "rasp_loading_studies": self.writer.not_loaded_yet,
            "rasp_storage_failing": self.writer.failing is not None,
            "rasp_streams": self.broadcaster.streams,
            "rasp_studies_owned": len(cache.rows),
            "rasp_lease_held": self.leases is None or self.leases.holds,  # nobody takes studies from one server alone
            "rasp_leases_lost": 0 if self.leases is None else self.leases.lost_count,
            "rasp_studies_in_memory": len(cache.live),
            "rasp_studies_with_alerts": read.with_alerts,
            "rasp_study_loads": cache.loads,
        }
        return gauges, read.numbers


def _in_pieces(items: Sequence[T], done: list[Any], one: Callable[[T], Any], work: UnitOfWork) -> Any:
    """What `one` gives for every item, added to `done`; MORE if others should run before the rest."""
    for item in items[len(done) :]:
        done.append(one(item))
        if len(done) < len(items) and work.piece_ends():
            return MORE
    return done
