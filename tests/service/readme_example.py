"""The README's example, for tests that reach a study in other ways."""

import math

from rasp_tuner import Float, Tuner
from rasp_tuner.client import Client

KNOBS = {"cache_gb": Float(1, 64, log=True), "timeout_s": Float(0.1, 10, log=True)}
TODAY = {"cache_gb": 8.0, "timeout_s": 1.0}


def latency(params, qps):
    return 20 + 10 * math.log(params["cache_gb"] / (40 if qps == 900 else 4)) ** 2


def load(hour):
    return 900 if hour % 24 >= 12 else 100


def native(hours):
    """What the README's loop suggests."""
    tuner, seen = Tuner(KNOBS, {"p99_ms": "min"}, ["qps"], TODAY), []
    for hour in range(hours):
        suggestion = tuner.ask({"qps": load(hour)})
        seen.append(suggestion.params)
        tuner.tell(suggestion.id, {"p99_ms": latency(suggestion.params, load(hour))})
    return seen


def served(url, limit=200):
    """What the study "cache" of a server suggested, oldest first."""
    with Client(url, timeout=20) as client:
        return [made["params"] for made in reversed(client.study("cache").suggestions(limit))]


def recommended(url):
    with Client(url, timeout=20) as client:
        study = client.study("cache")
        return [round(study.recommend({"qps": qps})["cache_gb"]) for qps in (900, 100)]
