"""Service: what the routes call. Turns a request into a job for the writer and waits for its answer."""

import asyncio
import contextlib
import time
from collections.abc import Callable, Mapping
from typing import Any

from rasp_tuner.errors import RaspError
from rasp_tuner.service import http_errors as problems
from rasp_tuner.service.auth import Caller, Keys
from rasp_tuner.service.http_errors import Problem
from rasp_tuner.service.limits import Limits
from rasp_tuner.service.sse import Hub
from rasp_tuner.service.storage.erasure import Remainder, where
from rasp_tuner.service.storage.store import Store
from rasp_tuner.service.storage.transaction import Desk
from rasp_tuner.service.storage.writer import Job, Writer
from rasp_tuner.service.study import study_snapshot as still
from rasp_tuner.service.study.definition import StudyDefinition
from rasp_tuner.service.study.events import Event, ask_id
from rasp_tuner.service.study.live_study import LiveStudy
from rasp_tuner.service.telemetry import Telemetry, facts

SCRUBBED_S = 30.0  # for which an answer to `forget` waits for the files to be clean


class Service:
    """One store, one writer; all methods belong to the event loop."""

    def __init__(self, store: Store, limits: Limits, *, open_without_keys: bool) -> None:
        self.store, self.limits = store, limits
        self.keys = Keys(store, open_without_keys)
        self.hub = Hub(limits.streams)
        self.telemetry = Telemetry()
        self.writer = Writer(store, self.hub.publish, self.telemetry.commits.observe)
        self._waiting = {True: 0, False: 0}  # writes, reads

    @property
    def full(self) -> bool:
        """Whether as many asks and tells wait as may: one more would be refused."""
        return self._waiting[True] >= self.limits.waiting

    async def do(self, run: Callable[[Desk], Any], *, writes: bool, weight: int = 1) -> Any:
        """The answer of a job, or the Problem it raised; refused at once if too much waits already."""
        if not self.writer.is_alive():
            raise problems.storage()
        if self._waiting[writes] + weight > self.limits.waiting:
            raise problems.overloaded()
        self._waiting[writes] += weight
        future = asyncio.get_running_loop().create_future()
        self.writer.put(Job(run, writes, future))
        try:
            return await future
        finally:
            self._waiting[writes] -= weight

    # studies

    async def create(self, definition: StudyDefinition, caller: Caller) -> tuple[bool, dict[str, Any]]:
        """Whether it is new, and its view; a 409 if the name stands for another definition."""

        def run(desk: Desk) -> tuple[bool, dict[str, Any]]:
            if definition.name in desk.shelf.rows:
                live = desk.study(definition.name)
                if live.definition != definition:
                    message = (
                        f"study {definition.name!r} exists with another definition; delete it or take another name"
                    )
                    raise Problem(409, "conflict", message, "name")
                return False, live.view(desk.now)
            self.room_for_one(desk)
            live = desk.add(definition)
            desk.record(caller.name, "study created", definition.name)
            return True, live.view(desk.now)

        result: tuple[bool, dict[str, Any]] = await self.do(run, writes=True)
        return result

    def room_for_one(self, desk: Desk) -> None:
        if len(desk.shelf.rows) >= self.limits.studies:
            raise Problem(
                409, "conflict", f"there are {self.limits.studies} studies already, which is the limit", "name"
            )

    async def views(self, only: str | None) -> list[dict[str, Any]]:
        def run(desk: Desk) -> list[dict[str, Any]]:
            names = sorted(desk.shelf.rows) if only is None else [name for name in desk.shelf.rows if name == only]
            found = []
            for name in names:
                with contextlib.suppress(Problem):  # damaged: asked for by name, it says so
                    found.append(desk.study(name).view(desk.now))
            return found

        views: list[dict[str, Any]] = await self.do(run, writes=False)
        return views

    async def look(self, name: str, look: Callable[[LiveStudy, Desk], Any]) -> Any:
        """What `look` sees of a study; it must change nothing."""
        return await self.do(lambda desk: look(desk.study(name), desk), writes=False)

    async def delete(self, name: str, caller: Caller) -> None:
        def run(desk: Desk) -> None:
            desk.remove(name)
            desk.record(caller.name, "study deleted", name)

        await self.do(run, writes=True)

    async def take(self, new: LiveStudy, events: list[Event], caller: Caller) -> dict[str, Any]:
        """The view of an imported study, with all its events, in one commit."""
        pack = await asyncio.to_thread(still.capture(new))

        def run(desk: Desk) -> dict[str, Any]:
            name = new.definition.name
            if name in desk.shelf.rows:
                raise Problem(409, "conflict", f"a study {name!r} exists already; import it under another name", "name")
            self.room_for_one(desk)
            live = desk.adopt(new)
            for event in events:
                desk.emit(live, event)
            desk.keep(live.id, live.seq, pack)
            desk.record(caller.name, "study imported", name)
            return live.view(desk.now)

        view: dict[str, Any] = await self.do(run, writes=True)
        return view

    async def record(self, caller: Caller, action: str, subject: str) -> None:
        """A line in the audit log."""
        await self.do(lambda desk: desk.record(caller.name, action, subject), writes=True)

    async def freeze(self, name: str, frozen: bool, caller: Caller) -> dict[str, Any]:
        def run(desk: Desk) -> dict[str, Any]:
            live = desk.study(name, writes=True)
            event = live.freeze(frozen, desk.now)
            if event is not None:
                desk.emit(live, event)
                desk.record(caller.name, "study frozen" if frozen else "study unfrozen", name)
            return {"frozen": frozen}

        result: dict[str, Any] = await self.do(run, writes=True)
        return result

    async def forget(self, name: str, wanted: Mapping[str, Any], caller: Caller) -> dict[str, Any]:
        """What was erased: the study is then one that never had those records, and soon so are all files."""
        rest: Remainder = await self.look(name, lambda live, _: Remainder(self.store, live, where(wanted, live)))
        erased = await asyncio.to_thread(rest.derive)

        def finish(desk: Desk) -> bool:
            done = rest.finish(desk)
            if done:
                desk.record(caller.name, "records erased", f"{name}: {erased}")
            return done

        while erased and not await self.do(finish, writes=True):
            await asyncio.to_thread(rest.catch_up)
        backups = await self.do(lambda desk: desk.drop_backups(), writes=True)
        until = time.monotonic() + SCRUBBED_S
        while self.writer.purging and time.monotonic() < until:
            await asyncio.sleep(0.05)
        return {"erased": erased, "scrubbed": not self.writer.purging, "backups": backups}

    # asks and answers

    async def ask(self, name: str, contexts: list[Any]) -> list[dict[str, Any]]:
        """Suggestions, or a Problem before the first of them is made."""

        def run(desk: Desk) -> list[dict[str, Any]]:
            live = desk.study(name, writes=True)
            for i, context in enumerate(contexts if len(contexts) > 1 else []):
                try:
                    live.tuner.check_context(context)
                except RaspError as error:
                    raise problems.invalid(f"contexts[{i}]: {error}", f"contexts[{i}]") from error
            return [self._suggest(desk, live, context) for context in contexts]

        suggestions: list[dict[str, Any]] = await self.do(run, writes=True, weight=len(contexts))
        return suggestions

    def _suggest(self, desk: Desk, live: LiveStudy, context: Any) -> dict[str, Any]:
        started = time.perf_counter()
        event = live.ask(context, desk.now)
        self.telemetry.ask(time.perf_counter() - started)
        desk.emit(live, event)
        expires = event.at + live.definition.lease_s
        return {"id": ask_id(event.ask or 0), "params": event.body["params"], "expires_at": expires}

    async def tell(self, name: str, id: str, metrics: dict[str, float] | None, reason: str = "") -> dict[str, Any]:
        def run(desk: Desk) -> dict[str, Any]:
            return self._tell(desk, desk.study(name, writes=True), id, metrics, reason)

        told: dict[str, Any] = await self.do(run, writes=True)
        return told

    async def tell_all(self, name: str, tells: list[tuple[str, dict[str, float] | None, str]]) -> list[dict[str, Any]]:
        """One result a tell; each is judged alone."""

        def run(desk: Desk) -> list[dict[str, Any]]:
            live = desk.study(name, writes=True)
            return [self._judge(desk, live, *tell) for tell in tells]

        results: list[dict[str, Any]] = await self.do(run, writes=True, weight=len(tells))
        return results

    def _judge(
        self, desk: Desk, live: LiveStudy, id: str, metrics: dict[str, float] | None, reason: str
    ) -> dict[str, Any]:
        try:
            return self._tell(desk, live, id, metrics, reason)
        except RaspError as error:
            problem = problems.of(error)
        except Problem as error:
            problem = error
        self.telemetry.refused(problem.code)
        return {"id": id, "status": "rejected", **problem.body()}

    def _tell(
        self, desk: Desk, live: LiveStudy, id: str, metrics: dict[str, float] | None, reason: str
    ) -> dict[str, Any]:
        started = time.perf_counter()
        outcome = live.tell(id, desk.now, desk.log(live), metrics, reason)
        if not isinstance(outcome, Event):
            return {"id": id, "status": "duplicate", "late": outcome.late}
        self.telemetry.tell(time.perf_counter() - started)
        desk.emit(live, outcome)
        return {"id": id, "status": "learned", "late": live.answer_was_late(outcome)}

    async def observe(
        self, name: str, context: Any, params: dict[str, Any], metrics: dict[str, float], key: str | None
    ) -> dict[str, Any]:
        def run(desk: Desk) -> dict[str, Any]:
            live = desk.study(name, writes=True)
            event = live.observe(context, params, metrics, key, desk.now, desk.log(live))
            if event is None:
                return {"status": "duplicate"}
            desk.emit(live, event)
            return {"status": "learned"}

        observed: dict[str, Any] = await self.do(run, writes=True)
        return observed

    async def metrics(self) -> bytes:
        """What Prometheus reads."""

        def run(desk: Desk) -> list[dict[str, Any]]:
            return [facts(live, desk.now) for live in desk.shelf.live.values()]

        studies = await self.do(run, writes=False)
        self.telemetry.waiting.set(self._waiting[True])
        self.telemetry.failing.set(self.writer.failing)
        self.telemetry.streams.set(self.hub.streams)
        return self.telemetry.text(studies)
