"""The list of studies: sorted and cut into pages, fast also where there are thousands, in memory or not."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from rasp_tuner.service.storage.store import StoredStudy
from rasp_tuner.service.storage.transaction import MORE, UnitOfWork
from rasp_tuner.service.study.live_study import LiveStudy
from rasp_tuner.service.study.study_summary import UNKNOWN, Sort, StudySummary, places

PAGE_S = 0.1  # that sorting may keep the writer, and that a page waits for studies which are read from disk


@dataclass(frozen=True, slots=True)
class ListQuery:
    """Which studies, in which order."""

    only: str | None = None  # the one study of the key
    find: str = ""  # part of the name
    sort: Sort = "name"
    limit: int | None = None  # None: all of them, however long it takes
    offset: int = 0


class StudyDirectory:
    """Remembers the facts of studies in memory, so that a page costs little where few of them changed."""

    def __init__(self) -> None:
        self._facts: dict[str, tuple[tuple[int, int], dict[Sort, float]]] = {}  # valid while id and events are the same

    def page(self, work: UnitOfWork, query: ListQuery) -> tuple[list[str], int]:
        """The names on the page, in order, and how many were found in all; called by the writer."""
        others, wanted = self._not_put_away(work, query.sort), query.find.casefold()
        order = sorted(work.cache.orders[query.sort] + others)  # nearly sorted already: takes little
        names = [name for _, name in order]
        if query.only is not None or wanted:
            names = [name for name in names if query.only in (None, name) and wanted in name.casefold()]
        end = None if query.limit is None else query.offset + query.limit
        return names[query.offset : end], len(names)

    def _not_put_away(self, work: UnitOfWork, sort: Sort) -> list[tuple[float, str]]:
        """Places and names of studies in memory, and of those not read yet: last, or by when they were made."""
        cache = work.cache
        live, rows = cache.live, cache.rows
        if sort == "recent":
            order = {name: -(study.last_at or study.created) for name, study in live.items()}
        elif sort == "learned":
            order = {name: -float(study.tuner.learned) for name, study in live.items()}
        elif sort == "name":
            order = dict.fromkeys(live, 0.0)
        else:
            self._look(work)
            order = {name: self._facts[name][1][sort] if name in self._facts else UNKNOWN for name in live}
        if len(live) + len(cache.away) < len(rows):
            unseen = [name for name in rows if name not in live and name not in cache.away]
            order |= {name: _place_unseen(rows[name], sort) for name in unseen}
        return [(place, name) for name, place in order.items()]

    def _look(self, work: UnitOfWork) -> None:
        live, until = work.cache.live, time.monotonic() + PAGE_S
        self._facts = {name: facts for name, facts in self._facts.items() if name in live}
        for name, study in live.items():
            now = study.id, study.seq
            if name in self._facts and self._facts[name][0] == now:
                continue
            if time.monotonic() > until:
                return  # the rest keeps its place
            self._facts[name] = now, places(study.view(work.now))


def _place_unseen(row: StoredStudy, sort: Sort) -> float:
    return -row.created if sort == "recent" else 0.0 if sort == "name" else UNKNOWN


class PageRead:
    """Reads one page of the list, in pieces; `run` is a job of the writer."""

    def __init__(
        self,
        studies: StudyDirectory,
        query: ListQuery,
        view: Callable[[LiveStudy | StudySummary, UnitOfWork], dict[str, Any]],
    ) -> None:
        self._studies, self._query, self._view = studies, query, view
        self._names: list[str] = []
        self._left: list[str] | None = None
        self._damaged: dict[str, str] = {}
        self._total = 0
        self.views: dict[str, dict[str, Any]] = {}

    def run(self, work: UnitOfWork) -> Any:
        cache = work.cache
        if self._left is None:
            self._names, self._total = self._studies.page(work, self._query)
            self._left = self._names[::-1]
        while self._left and not work.piece_ends():
            name = self._left.pop()
            study = cache.live.get(name) or cache.away.get(name)
            if study is not None:
                self.views[name] = self._view(study, work)
        if self._left:
            return MORE
        self._damaged = {name: cache.damaged[name] for name in self._names if name in cache.damaged}
        return None

    @property
    def missing(self) -> list[str]:
        """Studies of which nothing is known yet."""
        return [name for name in self._names if name not in self.views and name not in self._damaged]

    def answer(self, loading: int) -> dict[str, Any]:
        return {
            "studies": [self.views[name] for name in self._names if name in self.views],
            "damaged": [{"name": name, "health": why} for name, why in sorted(self._damaged.items())],
            "total": self._total,
            "loading": loading,
        }
