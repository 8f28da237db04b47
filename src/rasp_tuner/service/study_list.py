"""The list of studies: sorted and cut into pages, fast also where there are thousands, in memory or not."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from rasp_tuner.service.storage.jobs import MORE
from rasp_tuner.service.storage.transaction import UnitOfWork
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


@dataclass(frozen=True, slots=True)
class Facts:
    """What a study in memory is sorted by; valid while it has the same id and events."""

    id: int
    seq: int
    places: dict[Sort, float]


class StudyList:
    """Remembers the facts of studies in memory, so that a page costs little where few of them changed."""

    def __init__(self) -> None:
        self._facts: dict[str, Facts] = {}

    def page(self, work: UnitOfWork, query: ListQuery) -> tuple[list[str], int]:
        """The names on the page, in order, and how many were found in all; called by the writer."""
        names, wanted = sorted(work.cache.rows), query.find.casefold()
        if query.only is not None or wanted:
            names = [name for name in names if query.only in (None, name) and wanted in name.casefold()]
        if query.sort != "name":
            names.sort(key=self._order(work, query.sort).__getitem__)
        end = None if query.limit is None else query.offset + query.limit
        return names[query.offset : end], len(names)

    def _order(self, work: UnitOfWork, sort: Sort) -> dict[str, float]:
        """The place of every study; what is not known yet comes last, or by the time it was made."""
        cache = work.cache
        order = {name: -row.created if sort == "recent" else UNKNOWN for name, row in cache.rows.items()}
        order |= {name: summary.places[sort] for name, summary in cache.away.items()}
        if sort == "recent":
            return order | {name: -live.last_at for name, live in cache.live.items() if live.last_at is not None}
        if sort == "learned":
            return order | {name: -float(live.tuner.learned) for name, live in cache.live.items()}
        self._look(work)
        return order | {name: facts.places[sort] for name, facts in self._facts.items()}

    def _look(self, work: UnitOfWork) -> None:
        live, until = work.cache.live, time.monotonic() + PAGE_S
        self._facts = {name: facts for name, facts in self._facts.items() if name in live}
        for name, study in live.items():
            before = self._facts.get(name)
            if before is not None and (before.id, before.seq) == (study.id, study.seq):
                continue
            if time.monotonic() > until:
                return  # the rest keeps its place
            self._facts[name] = Facts(study.id, study.seq, places(study.view(work.now)))


class PageRead:
    """Reads one page of the list, in pieces; `run` is a job of the writer."""

    def __init__(
        self,
        studies: StudyList,
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
