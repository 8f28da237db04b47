"""RaspProvider in process: through OpenFeature's own SDK, and with errors of OpenFeature at every edge."""

import asyncio
import contextlib
import math
import sys
import threading
import time
from datetime import datetime
from importlib import import_module

import pytest
from hypothesis import given
from hypothesis import strategies as st
from openfeature import api
from openfeature.evaluation_context import EvaluationContext
from openfeature.exception import (
    ErrorCode,
    FlagNotFoundError,
    GeneralError,
    OpenFeatureError,
    TargetingKeyMissingError,
)
from openfeature.flag_evaluation import Reason
from openfeature.track import TrackingEventDetails

from rasp_tuner import Bool, Categorical, Float, Int, InvalidSpace, MissingExtra, Optional, Tuner
from rasp_tuner.integrations.openfeature import RaspProvider

KNOBS = {"cache_gb": Float(1, 64, log=True), "timeout_s": Float(0.1, 10, log=True)}
MIXED = {
    "size": Int(1, 64),
    "rate": Float(0, 1),
    "codec": Categorical(["lz4", "zstd"]),
    "wal": Bool(),
    "most": Optional(Int(1, 9)),
    "level": Int(1, 9, when={"codec": ["zstd"]}),
}
START = {"size": 8, "rate": 0.5, "codec": "lz4", "wal": True, "most": None}


def readme_tuner():
    return Tuner(KNOBS, {"p99_ms": "min"}, ["qps"], {"cache_gb": 8, "timeout_s": 1})


@pytest.fixture
def connect():
    """A function that sets a provider and gives a client of it."""

    def made(source, **settings):
        api.set_provider_and_wait(RaspProvider(source, **settings))
        return api.get_client()

    yield made
    api.clear_providers()


def host(name="host-7", **attributes):
    return EvaluationContext(name, attributes)


def value(number, **attributes):
    return TrackingEventDetails(number, attributes)


def test_the_readmes_example_is_learned_as_by_its_own_loop(connect):
    tuner, own = readme_tuner(), readme_tuner()
    flags = connect({"cache": tuner})
    for hour in range(96):
        qps = 900 if hour % 24 >= 12 else 100
        cache = flags.get_float_value("cache.cache_gb", 0.0, host(qps=qps))
        suggestion = own.ask({"qps": qps})
        assert flags.get_object_value("cache", {}, host(qps=qps)) == suggestion.params
        p99 = 20 + 10 * math.log(cache / (40 if qps == 900 else 4)) ** 2
        flags.track("cache", host(), value(p99))
        own.tell(suggestion.id, {"p99_ms": p99})
    assert [round(tuner.recommend({"qps": qps})["cache_gb"]) for qps in (900, 100)] == [40, 4]
    assert tuner.to_bytes() == own.to_bytes()


def test_every_type_of_knob_comes_from_one_suggestion(connect):
    tuner = Tuner(MIXED, {"loss": "min"}, default=START)
    flags = connect({"app": tuner})
    whole = flags.get_object_details("app", {}, host())
    assert (whole.value, whole.variant, whole.reason) == (START, "s0", Reason.DEFAULT)
    assert flags.get_integer_value("app.size", 0, host()) == 8
    assert flags.get_float_value("app.size", 0.0, host()) == 8.0
    assert flags.get_float_value("app.rate", 0.0, host()) == 0.5
    assert flags.get_string_value("app.codec", "", host()) == "lz4"
    assert flags.get_boolean_value("app.wal", False, host()) is True
    for absent in ("app.most", "app.level"):  # null, and a knob that does not exist now
        details = flags.get_integer_details(absent, 3, host())
        assert (details.value, details.reason, details.variant, details.error_code) == (3, Reason.DEFAULT, "s0", None)
    assert details.flag_metadata["knob"] == "level"
    assert tuner.asked == 1


@pytest.mark.parametrize(
    ("ask", "key", "code"),
    [
        ("get_boolean_details", "app.size", ErrorCode.TYPE_MISMATCH),
        ("get_integer_details", "app.wal", ErrorCode.TYPE_MISMATCH),
        ("get_integer_details", "app.rate", ErrorCode.TYPE_MISMATCH),
        ("get_float_details", "app.codec", ErrorCode.TYPE_MISMATCH),
        ("get_string_details", "app", ErrorCode.TYPE_MISMATCH),
        ("get_object_details", "app.size", ErrorCode.TYPE_MISMATCH),
        ("get_integer_details", "app.sizes", ErrorCode.FLAG_NOT_FOUND),
        ("get_integer_details", "apps.size", ErrorCode.FLAG_NOT_FOUND),
        ("get_integer_details", "", ErrorCode.FLAG_NOT_FOUND),
    ],
)
def test_what_is_not_there_or_of_another_type_is_an_error_and_the_callers_default_holds(connect, ask, key, code):
    flags = connect({"app": Tuner(MIXED, {"loss": "min"}, default=START)})
    default = {"get_boolean_details": False, "get_string_details": "no", "get_object_details": {}}.get(ask, 3)
    details = getattr(flags, ask)(key, float(default) if "float" in ask else default, host())
    assert (details.error_code, details.reason, details.value) == (code, Reason.ERROR, default)
    assert details.error_message


def test_a_knob_that_is_not_there_is_no_ask(connect):
    flags = connect({"cache": readme_tuner()})
    for _ in range(3):
        assert flags.get_float_details("cache.none", 0.5, host(qps=5)).error_code == ErrorCode.FLAG_NOT_FOUND
    assert flags.get_object_details("cache", {}, host("host-8", qps=5)).variant == "s0"


def test_a_wrong_context_is_an_error_and_no_ask(connect):
    tuner = Tuner(KNOBS, {"p99_ms": "min"}, {"qps": "number", "region": "category", "at": "time of day"})
    flags = connect({"cache": tuner})
    for context in (host(), host(qps=math.nan), host(qps="many"), host(qps=1, at="noon"), host(qps=1, region=["eu"])):
        details = flags.get_object_details("cache", {"cache_gb": 8}, context)
        assert (details.error_code, details.value) == (ErrorCode.INVALID_CONTEXT, {"cache_gb": 8})
    assert tuner.asked == 0
    good = host(qps=1, region="eu", at=datetime(2026, 11, 17, 13, 45), user="somebody")
    assert flags.get_object_details("cache", {}, good).variant == "s0"


def test_without_a_targeting_key_every_evaluation_is_a_suggestion_of_its_own(connect):
    flags = connect({"cache": readme_tuner()})
    seen = [flags.get_object_details("cache", {}, EvaluationContext(None, {"qps": 5})).variant for _ in range(3)]
    assert seen == ["s0", "s1", "s2"]
    flags.track("cache", None, value(1.0, variant="s1"))


def test_a_lease_ends_with_its_time_its_outcome_or_when_the_tuner_is_frozen(connect):
    tuner = readme_tuner()
    flags = connect({"cache": tuner})
    assert [flags.get_object_details("cache", {}, host(qps=qps)).variant for qps in (5, 900)] == ["s0", "s0"]
    flags.track("cache", host(), value(30.0))
    assert flags.get_object_details("cache", {}, host(qps=5)).variant == "s1"
    tuner.freeze(default=True)
    frozen = flags.get_object_details("cache", {}, host(qps=5))
    assert (frozen.variant, frozen.reason) == ("s2", Reason.DEFAULT)
    short = connect({"cache": tuner}, lease_s=0.05)
    until = short.get_object_details("cache", {}, host(qps=5)).flag_metadata["leaseUntil"]
    time.sleep(max(until - time.time(), 0.0) + 0.01)
    with pytest.raises(GeneralError) as late:
        short.track("cache", host(), value(30.0))
    assert "with variant 's3' the event is learned" in late.value.error_message
    short.track("cache", host(), value(30.0, variant="s3"))
    assert short.get_object_details("cache", {}, host(qps=5)).variant == "s4"
    assert tuner.learned == 2


def test_the_same_event_twice_counts_once(connect):
    tuner = readme_tuner()
    flags = connect({"cache": tuner})
    flags.get_object_value("cache", {}, host(qps=5))
    for name in ("cache", "cache", "cache.p99_ms"):
        flags.track(name, host(), value(30.0))
    flags.track("cache", None, TrackingEventDetails(None, {"p99_ms": 30, "variant": "s0"}))
    assert tuner.learned == 1
    with pytest.raises(GeneralError):
        flags.track("cache", host(), value(31.0))
    flags.get_object_value("cache", {}, host(qps=5))
    flags.track("cache", host(), TrackingEventDetails(None, {"failed": "out of memory"}))
    assert tuner.explain("s1").failure == "out of memory"


@pytest.mark.parametrize(
    ("name", "context", "details", "error"),
    [
        ("cash", host(), value(1.0), FlagNotFoundError),
        ("cache.p98_ms", host(), value(1.0), GeneralError),
        ("cache", host(), value(math.nan), GeneralError),
        ("cache", host(), value(math.inf), GeneralError),
        ("cache", host(), value("slow"), GeneralError),
        ("cache", host(), None, GeneralError),
        ("cache", host(), value(1.0, errors=3), GeneralError),
        ("cache", host(), value(1.0, variant="s99"), GeneralError),
        ("cache", host("host-8"), value(1.0), GeneralError),
        ("cache", EvaluationContext(), value(1.0), TargetingKeyMissingError),
        ("cache", None, value(1.0), TargetingKeyMissingError),
    ],
)
def test_a_wrong_event_is_an_error_and_teaches_nothing(connect, name, context, details, error):
    tuner = readme_tuner()
    flags = connect({"cache": tuner})
    before = flags.get_object_details("cache", {}, host(qps=5))
    with pytest.raises(error) as raised:
        flags.track(name, context, details)
    assert raised.value.error_message
    assert tuner.learned == 0
    assert flags.get_object_details("cache", {}, host(qps=5)) == before
    flags.track("cache", host(), value(1.0, sku="abc"))
    assert tuner.learned == 1


def test_several_metrics_are_told_by_their_names(connect):
    tuner = Tuner(KNOBS, {"p99_ms": "min", "hits": "max"}, default={"cache_gb": 8, "timeout_s": 1})
    flags = connect({"cache": tuner, "cache.more": readme_tuner()})
    flags.get_object_value("cache", {}, host())
    for wrong in (value(1.0), value(None, p99_ms=1.0), value(None, hits=1)):
        with pytest.raises(GeneralError):
            flags.track("cache", host(), wrong)
    flags.track("cache", host(), value(None, p99_ms=1.0, hits=0.9))
    assert tuner.learned == 1
    assert flags.get_object_details("cache.more", {}, host(qps=5)).flag_metadata["study"] == "cache.more"


def test_threads_and_tasks_with_one_targeting_key_get_one_suggestion(connect):
    flags = connect({"cache": readme_tuner()})
    seen, start = [], threading.Barrier(8)

    def evaluate():
        start.wait()
        seen.append(flags.get_object_details("cache", {}, host(qps=5)).variant)

    threads = [threading.Thread(target=evaluate) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    async def knobs():
        keys = ["cache.cache_gb", "cache.timeout_s"] * 4
        found = [flags.get_float_details_async(key, 0.0, host(qps=5)) for key in keys]
        return [details.variant for details in await asyncio.gather(*found)]

    assert len(set(seen) | set(asyncio.run(knobs()))) == 1


def test_all_types_can_be_awaited(connect):
    flags = connect({"app": Tuner(MIXED, {"loss": "min"}, default=START)})

    async def look():
        return [
            await flags.get_object_value_async("app", {}, host()),
            await flags.get_integer_value_async("app.size", 0, host()),
            await flags.get_string_value_async("app.codec", "", host()),
            await flags.get_boolean_value_async("app.wal", False, host()),
            (await flags.get_float_details_async("app.none", 0.5, host())).error_code,
        ]

    assert asyncio.run(look()) == [START, 8, "lz4", True, ErrorCode.FLAG_NOT_FOUND]


def test_the_tables_are_bounded_and_keep_no_targeting_keys(connect, monkeypatch):
    monkeypatch.setattr("rasp_tuner.integrations.openfeature_flags.MOST_LEASES", 3)
    flags = connect({"cache": readme_tuner()})
    seen = [flags.get_object_details("cache", {}, host(f"somebody-{i}", qps=5)).variant for i in (0, 1, 2, 3, 3, 1, 0)]
    assert seen == ["s0", "s1", "s2", "s3", "s3", "s1", "s4"]
    assert "somebody" not in repr([vars(flag) for flag in flags.provider._flags.values()])


@pytest.mark.parametrize("source", [None, {}, readme_tuner(), {"cache": 7}, {"": readme_tuner()}, {7: readme_tuner()}])
def test_a_source_that_is_none_is_refused(source):
    with pytest.raises(InvalidSpace):
        RaspProvider(source)


@pytest.mark.parametrize("lease_s", [0, -1, math.nan, "long"])
def test_a_lease_that_is_none_is_refused(lease_s):
    with pytest.raises(InvalidSpace):
        RaspProvider({"cache": readme_tuner()}, lease_s=lease_s)


def test_without_the_sdk_the_error_names_the_extra(monkeypatch):
    for name in [name for name in sys.modules if name.startswith("openfeature")]:
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.delitem(sys.modules, "rasp_tuner.integrations.openfeature")
    with pytest.raises(MissingExtra, match=r"rasp-tuner\[openfeature\]"):
        import_module("rasp_tuner.integrations.openfeature")


keys = st.text("ab.", max_size=9)
contexts = st.dictionaries(st.sampled_from(["qps", "x"]), st.integers() | st.text("a"))


@given(key=keys, attributes=contexts)
def test_whatever_comes_is_answered_or_an_error_of_openfeature(key, attributes):
    provider = RaspProvider({"a": readme_tuner(), "a.b": readme_tuner()})
    with contextlib.suppress(OpenFeatureError):
        details = provider.resolve_object_details(key, {}, host(**attributes))
        assert details.variant == "s0"
        provider.track(key, host(), value(float(len(attributes))))
