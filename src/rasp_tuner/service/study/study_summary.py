"""StudySummary: what stays in memory of a study that was put away: its view, and its place in lists.

A few kilobytes, where a study takes a megabyte. What depends on the time is computed when it is looked at.
"""

import json
from array import array
from collections.abc import Mapping
from typing import Any, Literal, get_args

from rasp_tuner.service.json_codec import dumps
from rasp_tuner.service.study.alerts import alerts, health
from rasp_tuner.service.study.live_study import LiveStudy

Sort = Literal["recent", "name", "alerts", "gain", "learned"]
SORTS: tuple[Sort, ...] = get_args(Sort)
UNKNOWN = float("inf")  # comes last


class StudySummary:
    """Of a study without uncommitted changes, at the moment it leaves the memory."""

    __slots__ = (
        "_diverged",
        "_dropped",
        "_lease_ends",
        "_problems",
        "_view",
        "places",
    )

    def __init__(self, live: LiveStudy, now: float) -> None:
        view = live.view(now)
        self._problems = live.problems  # not in the log
        self.places = places(view)
        self._view = dumps(view)
        self._diverged, self._dropped = live.counts.diverged, live.counts.dropped
        self._lease_ends = array("d", [live.expires_at(record) for record in live.pending.values()])

    def view(self, now: float) -> dict[str, Any]:
        """The same as that of the study."""
        view: dict[str, Any] = json.loads(self._view)
        overdue = next((i for i, end in enumerate(self._lease_ends) if end >= now), len(self._lease_ends))
        view["expired"], view["pending"] = self._dropped + overdue, len(self._lease_ends) - overdue
        view["health"] = health(self._problems, self._diverged)
        view["alerts"] = alerts(view)
        return view


def places(view: Mapping[str, Any]) -> dict[Sort, float]:
    """The place of a study in each order, by its view."""
    return {sort: place(view, sort) for sort in SORTS}


def place(view: Mapping[str, Any], sort: Sort) -> float:
    """What a study is sorted by: newest, most alerts, worst gain or most learned first; all alike by name."""
    if sort == "recent":
        recent: float = view["last_event_at"] or view["created"]
        return -recent
    if sort == "gain":
        versus = view["versus_default"]
        gain = None if versus is None else versus["gain"]
        return UNKNOWN if gain is None or gain["kind"] != "share" else float(gain["value"])
    if sort == "alerts":
        return -float(len(view["alerts"]))
    return -float(view["learned"]) if sort == "learned" else 0.0
