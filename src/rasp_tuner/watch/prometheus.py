"""Prometheus, asked by `GET /api/v1/query`: one number for one query, or a typed error that says why not."""

import json
import math
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from urllib.parse import urlencode

from rasp_tuner.base.checks import show
from rasp_tuner.errors import NoData, QueryFailed
from rasp_tuner.watch.http_call import call, filled_headers

SHOWN_TEXT = 200  # characters of an error page


class SeriesSample(NamedTuple):
    """One series of an answer."""

    labels: Mapping[str, str]
    value: float
    time: float  # at which the query was evaluated, by the clock of Prometheus


@dataclass(frozen=True)
class Prometheus:
    """A server to ask. Headers may name environment variables: secrets are in no file."""

    url: str
    timeout_s: float = 5.0
    max_age_s: float = 120.0  # of the newest sample behind an answer
    headers: Mapping[str, str] = field(default_factory=dict)

    def one(self, query: str) -> SeriesSample:
        """The only series that a query gives, with a finite value."""
        found = self.series(query)
        if not found:
            raise NoData(
                "empty",
                f"{show_query(query)} gives no series: is the name right, is its target scraped (see up), and is the"
                " window long enough for two scrapes?",
            )
        if len(found) > 1:
            names = [_labels(sample.labels) for sample in found[:2]]
            raise NoData(
                "several",
                f"{show_query(query)} gives {len(found)} series, such as {names[0]} and {names[1]}: make one of them"
                " with sum(...), avg(...) or max(...), or select one by its labels",
            )
        [sample] = found
        if not math.isfinite(sample.value):
            raise NoData(
                "nan",
                f"{show_query(query)} gives {sample.value}, which is no finite number: often nothing was counted in"
                " the window, and zero was divided by zero",
            )
        age = time.time() - sample.time
        if abs(age) > self.max_age_s:
            raise NoData(
                "stale",
                f"{show_query(query)} was answered for a moment {abs(age):.0f} s {'ago' if age > 0 else 'from now'},"
                f" max_age is {self.max_age_s:g} s: is an old answer cached, or is a clock wrong?",
            )
        return sample

    def check_age(self, query: str) -> float:
        """Seconds since the newest sample, by a query for its timestamp; NoData if that is too old."""
        found = self.one(query)
        age = found.time - found.value
        if age < -self.max_age_s:
            raise NoData(
                "stale",
                f"the newest sample is of a moment {-age:.0f} s from now, max_age is {self.max_age_s:g} s (by"
                f" {show_query(query)}): is the clock of its target wrong?",
            )
        if age > self.max_age_s:
            raise NoData(
                "stale",
                f"the newest sample is {age:.0f} s old, max_age is {self.max_age_s:g} s (by {show_query(query)}): is"
                " its target still scraped?",
            )
        return age

    def series(self, query: str) -> list[SeriesSample]:
        """All series that a query gives; QueryFailed if there is no sound answer."""
        url = f"{self.url}/api/v1/query?{urlencode({'query': query})}"
        headers = {"Accept": "application/json", **filled_headers("prometheus", self.headers)}
        try:
            status, body = call(url, headers, self.timeout_s)
        except OSError as reason:
            raise QueryFailed(f"no answer from Prometheus at {self.url}: {reason}; is it running there?") from reason
        if 300 <= status < 400:
            raise QueryFailed(f"{self.url} answers {status}, a redirect: give the address that it leads to")
        answer = _json(self.url, status, body)
        if answer.get("status") == "error":
            raise QueryFailed(
                f"Prometheus refuses {show_query(query)}: {answer.get('errorType')}: {answer.get('error')}"
            )
        try:
            return _samples(answer["data"])
        except (KeyError, TypeError, ValueError, IndexError, AttributeError) as reason:
            raise QueryFailed(
                f"the answer to {show_query(query)} is not what Prometheus gives: {show(answer)}"
            ) from reason


def _json(url: str, status: int, body: bytes) -> dict[str, Any]:
    try:
        found = json.loads(body)
        if not isinstance(found, dict) or found.get("status") not in ("success", "error"):
            raise ValueError("no status")
    except (ValueError, RecursionError) as reason:
        said = " ".join(body[:SHOWN_TEXT].decode("utf-8", "replace").split()) or "nothing"
        raise QueryFailed(
            f"{url} answers with status {status} and not as Prometheus does: {said!r}; is the address right, without"
            " /api/v1/query at its end?"
        ) from reason
    return found


def _samples(data: Mapping[str, Any]) -> list[SeriesSample]:
    kind, result = data["resultType"], data["result"]
    if kind == "scalar":
        return [SeriesSample({}, _number(result[1]), float(result[0]))]
    if kind != "vector":
        raise QueryFailed(
            f"a query must give one value for each series, this one gives a {kind}: put rate(...) or avg_over_time(...)"
            " around a range such as x[{window}]"
        )
    if any("histogram" in one for one in result):
        raise QueryFailed("a query must give numbers, this one gives native histograms: use histogram_quantile(...)")
    return [
        SeriesSample(
            {str(k): str(v) for k, v in one["metric"].items()}, _number(one["value"][1]), float(one["value"][0])
        )
        for one in result
    ]


def _number(text: object) -> float:
    """Prometheus writes numbers as texts, with NaN and +Inf among them."""
    if not isinstance(text, str):
        raise TypeError(f"a value must be a text, got {show(text)}")
    return float(text)


def _labels(labels: Mapping[str, str]) -> str:
    inside = ", ".join(f"{name}={json.dumps(text)}" for name, text in labels.items() if name != "__name__")
    return f"{labels.get('__name__', '')}{{{inside}}}"


def show_query(query: str) -> str:
    """A query on one line, not too long."""
    plain = " ".join(query.split())
    return f"the query `{plain if len(plain) <= SHOWN_TEXT else plain[:SHOWN_TEXT] + '...'}`"
