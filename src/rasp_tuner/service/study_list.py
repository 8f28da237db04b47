"""The list of studies: sorted and cut into pages, fast also where there are thousands."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

from rasp_tuner.service.storage.transaction import UnitOfWork

Sort = Literal["recent", "name", "alerts", "gain", "learned"]
SORTS: tuple[Sort, ...] = get_args(Sort)
PAGE_S = 0.1  # that sorting may keep the writer, and that a page waits for studies which are read from disk
UNKNOWN = float("inf")  # comes last


@dataclass(frozen=True, slots=True)
class ListQuery:
    """Which studies, in which order."""

    only: str | None = None  # the one study of the key
    find: str = ""  # part of the name
    sort: Sort = "name"
    limit: int | None = None  # None: all of them, however long it takes
    offset: int = 0


@dataclass(frozen=True, slots=True)
class Facts:
    """What a study is sorted by; valid while it has the same id and events."""

    id: int
    seq: int
    place: dict[Sort, float]


class StudyList:
    """Remembers the facts of studies, so that a page costs little where few of them changed."""

    def __init__(self) -> None:
        self._facts: dict[str, Facts] = {}

    def page(self, work: UnitOfWork, query: ListQuery) -> tuple[list[str], int]:
        """The names on the page, in order, and how many were found in all; called by the writer."""
        rows, wanted = work.cache.rows, query.find.casefold()
        names = sorted(name for name in rows if query.only in (None, name) and wanted in name.casefold())
        if query.sort != "name":
            names.sort(key=self._key(work, query.sort, names))
        end = None if query.limit is None else query.offset + query.limit
        return names[query.offset : end], len(names)

    def _key(self, work: UnitOfWork, sort: Sort, names: list[str]) -> Callable[[str], float]:
        """The order of a sort; what is not known yet comes last, or by the time it was made."""
        live, rows, known = work.cache.live, work.cache.rows, self._facts
        if sort == "recent":
            return lambda name: -((live[name].last_at if name in live else None) or rows[name].created)
        if sort == "learned":
            return lambda name: -float(live[name].tuner.learned) if name in live else UNKNOWN
        self._look(work, names)
        return lambda name: known[name].place[sort] if name in known else UNKNOWN

    def _look(self, work: UnitOfWork, names: list[str]) -> None:
        live, until = work.cache.live, time.monotonic() + PAGE_S
        for name in [name for name in self._facts if name not in live]:
            del self._facts[name]
        for name in names:
            study, before = live.get(name), self._facts.get(name)
            if study is None or (before is not None and (before.id, before.seq) == (study.id, study.seq)):
                continue
            if time.monotonic() > until:
                return  # the rest keeps its place
            view = study.view(work.now)
            self._facts[name] = Facts(study.id, study.seq, {sort: place(view, sort) for sort in SORTS})


def place(view: Mapping[str, Any], sort: Sort) -> float:
    """What a study is sorted by: newest, most alerts, worst gain or most learned first; all alike by name."""
    if sort == "recent":
        recent: float = view["last_event_at"] or view["created"]
        return -recent
    if sort == "gain":
        shares = [gain["lately"]["mean_share"] for gain in view["gains"].values() if gain["lately"] is not None]
        return min((share for share in shares if share is not None), default=UNKNOWN)
    if sort == "alerts":
        return -float(len(view["alerts"]))
    return -float(view["learned"]) if sort == "learned" else 0.0
