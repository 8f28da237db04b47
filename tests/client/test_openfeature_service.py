"""RaspProvider on a server: the latest good parameters stay while it is away, and nothing that is tracked is lost."""

from concurrent.futures import ThreadPoolExecutor

import pytest
from openfeature import api
from openfeature.evaluation_context import EvaluationContext
from openfeature.exception import ErrorCode, GeneralError
from openfeature.flag_evaluation import Reason
from openfeature.track import TrackingEventDetails

from rasp_tuner import Category, Int
from rasp_tuner.client import Client
from rasp_tuner.integrations.openfeature import RaspProvider

DEFAULT = {"pool": 8}


@pytest.fixture
def study(server):
    """A client, and a study that the test has for itself."""
    with Client(server.url, timeout=10) as client:
        study = client.create("flags", {"pool": Int(1, 64, log=True)}, {"p99_ms": "min"}, ["qps"], DEFAULT)
        yield client, study
        api.clear_providers()
        if server.alive():
            study.delete()


def host(name="host-7", qps=5.0):
    return EvaluationContext(name, {"qps": qps, "country": "NZ"})


def test_every_study_of_a_server_is_a_flag(study):
    client, own = study
    api.set_provider_and_wait(RaspProvider(client))
    flags = api.get_client()
    whole = flags.get_object_details("flags", {}, host())
    assert (whole.value, whole.reason, whole.variant) == (DEFAULT, Reason.DEFAULT, "s0")
    assert flags.get_integer_details("flags.pool", 0, host()).variant == "s0"
    flags.track("flags", host(), TrackingEventDetails(30.0))
    flags.track("flags", host(), TrackingEventDetails(30.0))
    assert client.flush()
    assert own.view()["tells"] == 1
    assert flags.get_integer_details("flags.pool", 0, host()).variant == "s1"
    for key, code in (("flag", ErrorCode.FLAG_NOT_FOUND), ("flags.pools", ErrorCode.FLAG_NOT_FOUND)):
        assert flags.get_integer_details(key, 3, host()).error_code == code
    wrong = flags.get_integer_details("flags.pool", 3, host("host-8", qps="many"))
    assert (wrong.value, wrong.error_code) == (3, ErrorCode.INVALID_CONTEXT)
    with pytest.raises(GeneralError):
        flags.track("flags", host(), TrackingEventDetails(float("nan")))
    assert own.view()["asks"] == 2


def test_many_threads_with_one_targeting_key_take_one_suggestion_of_the_study(study):
    client, own = study
    api.set_provider_and_wait(RaspProvider(client))
    flags = api.get_client()
    with ThreadPoolExecutor(16) as threads:
        seen = set(threads.map(lambda _: flags.get_object_details("flags", {}, host()).variant, range(32)))
    assert seen == {"s0"}
    assert own.view()["asks"] == 1


@pytest.mark.parametrize("key", ["flags/history", "../studies", "a b", "flags?x", "", "x" * 65, "é"])
def test_a_key_that_is_no_name_is_no_flag(study, key):
    api.set_provider_and_wait(RaspProvider(study[0]))
    assert api.get_client().get_object_details(key, {}, host()).error_code == ErrorCode.FLAG_NOT_FOUND


def test_a_study_that_is_deleted_is_no_flag_and_a_new_one_of_its_name_is(study):
    client, own = study
    api.set_provider_and_wait(RaspProvider(client))
    flags = api.get_client()
    flags.get_object_details("flags", {}, host())
    own.delete()
    assert flags.get_object_details("flags", {}, host("host-8")).error_code == ErrorCode.FLAG_NOT_FOUND
    client.create("flags", {"size": Int(1, 9)}, {"ms": "min"}, {"country": Category()}, {"size": 3})
    assert flags.get_object_value("flags", {}, host()) == {"size": 3}
    assert flags.get_integer_value("flags.size", 0, host()) == 3


def test_a_study_that_is_made_anew_is_noticed_at_the_first_refusal(study):
    client, own = study
    api.set_provider_and_wait(RaspProvider(client))
    flags = api.get_client()
    flags.get_object_details("flags", {}, host())
    own.delete()
    client.create("flags", {"size": Int(1, 9)}, {"ms": "min", "mb": "min"}, {"country": Category()}, {"size": 3})
    assert flags.get_object_details("flags", {}, host("host-8")).error_code == ErrorCode.INVALID_CONTEXT
    found = flags.get_object_details("flags", {}, host("host-8"))
    assert found.value == {"size": 3}
    for _ in range(3):
        assert flags.get_integer_details("flags.pool", 0, host()).error_code == ErrorCode.FLAG_NOT_FOUND
    assert own.view()["asks"] == 1
    flags.track("flags", host("host-8"), TrackingEventDetails(None, {"ms": 1.0, "mb": 2.0}))
    assert client.flush()
    assert own.view()["tells"] == 1


def test_the_latest_good_parameters_stay_while_the_server_is_away(server, study):
    client, own = study
    for _ in range(30):
        suggestion = own.ask({"qps": 5.0})
        own.tell(suggestion.id, {"p99_ms": 20.0 + abs(suggestion.params["pool"] - 40)})
    best = own.recommend({"qps": 5.0})
    assert best != DEFAULT
    api.set_provider_and_wait(RaspProvider({"flags": own}))
    flags = api.get_client()
    leased = flags.get_object_details("flags", {}, host())
    flags.get_object_details("flags", {}, host("host-9"))
    server.kill()
    assert flags.get_object_details("flags", {}, host()) == leased
    away = flags.get_object_details("flags", {}, host("host-8"))
    assert (away.value, away.reason, away.error_code) == (best, Reason.STALE, None)
    for name in ("host-7", "host-8"):
        flags.track("flags", host(name), TrackingEventDetails(25.0))
    flags.track("flags", host("host-9"), TrackingEventDetails(None, {"failed": "out of memory"}))
    assert client.queued == 3
    server.start()
    assert client.flush(20)
    seen = own.view()
    assert (seen["tells"], seen["failures"], seen["observations"], client.dropped) == (31, 1, 1, 0)


@pytest.mark.parametrize("of_client", [True, False])
def test_what_was_tracked_is_sent_before_the_provider_ends(study, of_client):
    client, own = study
    api.set_provider_and_wait(RaspProvider(client if of_client else {"flags": own}))
    flags = api.get_client()
    for i in range(20):
        flags.get_object_details("flags", {}, host(f"host-{i}"))
        flags.track("flags", host(f"host-{i}"), TrackingEventDetails(30.0))
    api.shutdown()
    assert client.queued == 0
    assert own.view()["tells"] == 20


def test_a_program_that_starts_without_the_server_runs_on_its_own_defaults():
    with Client("http://127.0.0.1:9", timeout=0.2) as client:
        api.set_provider_and_wait(RaspProvider(client))
        flags = api.get_client()
        for said in ("127.0.0.1:9", "just now"):  # the second does not wait
            details = flags.get_integer_details("flags.pool", 3, host())
            assert (details.value, details.error_code) == (3, ErrorCode.GENERAL)
            assert said in details.error_message
        with pytest.raises(GeneralError):
            flags.track("flags", host(), TrackingEventDetails(30.0))
        api.set_provider_and_wait(RaspProvider({"flags": client.study("flags", default=DEFAULT)}))
        known = flags.get_integer_details("flags.pool", 3, host())
        assert (known.value, known.reason, known.error_code) == (8, Reason.STALE, None)
    api.clear_providers()
