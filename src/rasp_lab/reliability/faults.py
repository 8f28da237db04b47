"""`rasp serve` with a fault planted from outside, which the scripts must detect. Product code knows nothing of it.

commit-after-ack   answers are sent before the commit, which follows a moment later
double-apply       a repeated answer is learned as a new one
no-sync            commits are not synced to disk
replay-twice       building a study after a restart applies the last event of its log a second time
"""

import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

import sqlalchemy as sa

from rasp_tuner.__main__ import main
from rasp_tuner.service.storage import store as store_module
from rasp_tuner.service.storage import study_cache as cache_module
from rasp_tuner.service.storage import study_loader as loader_module
from rasp_tuner.service.storage import writer as writer_module
from rasp_tuner.service.storage.store import Store, StoredStudy
from rasp_tuner.service.storage.transaction import UnitOfWork
from rasp_tuner.service.storage.writer import Writer
from rasp_tuner.service.study.events import Event
from rasp_tuner.service.study.live_study import LiveStudy

LAZY_S = 0.05  # between the answer and the commit


def commit_after_ack() -> None:
    held: list[tuple[Writer, UnitOfWork]] = []
    commit, answer = Writer._commit, writer_module.answer

    def hold(self: Writer, work: UnitOfWork) -> set[int]:
        held.append((self, work))
        return set()

    def answer_first(outcomes: Sequence[Any]) -> None:
        answer(outcomes)
        time.sleep(LAZY_S)
        while held:
            commit(*held.pop())

    Writer._commit = hold  # type: ignore[method-assign]
    writer_module.answer = answer_first


def double_apply() -> None:
    tell = LiveStudy.tell

    def forgetful(self: LiveStudy, id: str, at: float, log: Any, metrics: Any, *more: Any) -> Any:
        outcome = tell(self, id, at, log, metrics, *more)
        if isinstance(outcome, Event):
            return outcome
        body = {"metrics": metrics, "asked_at": outcome.asked_at, "context": outcome.context, "params": outcome.params}
        return self._applied("tell", at, body, ask=outcome.number)

    LiveStudy.tell = forgetful  # type: ignore[method-assign]


def replay_twice() -> None:
    load_study = loader_module.load_study

    def careless(store: Store, row: StoredStudy, check: Callable[[], object] = bool) -> LiveStudy:
        live = load_study(store, row, check)
        told = [event for event in store.events_after(row.id, max(live.seq - 200, 0)) if event.kind == "tell"]
        if told:
            asked = store.events_of_ask(row.id, told[-1].ask or 0)[0]
            live.tuner.observe(asked.body["context"], asked.body["params"], told[-1].body["metrics"])
        return live

    cache_module.load_study = loader_module.load_study = careless


def no_sync() -> None:
    engine = store_module._engine

    def lazy(*args: Any, **settings: Any) -> sa.Engine:
        made = engine(*args, **settings)
        sa.event.listen(made, "connect", lambda connection, _: connection.execute("PRAGMA synchronous=OFF").close())
        return made

    store_module._engine = lazy


PLANTS = {
    "no-sync": no_sync,
    "commit-after-ack": commit_after_ack,
    "double-apply": double_apply,
    "replay-twice": replay_twice,
}

if __name__ == "__main__":
    PLANTS[sys.argv.pop(1)]()
    main()
