"""RaspProvider on a server: the latest good parameters stay while it is away, and nothing that is tracked is lost."""

import pytest
from openfeature import api
from openfeature.evaluation_context import EvaluationContext
from openfeature.exception import ErrorCode, GeneralError
from openfeature.flag_evaluation import Reason
from openfeature.track import TrackingEventDetails

from rasp_tuner import Int
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
    server.kill()
    assert flags.get_object_details("flags", {}, host()) == leased
    away = flags.get_object_details("flags", {}, host("host-8"))
    assert (away.value, away.reason, away.error_code) == (best, Reason.STALE, None)
    for name in ("host-7", "host-8"):
        flags.track("flags", host(name), TrackingEventDetails(25.0))
    assert client.queued == 2
    server.start()
    assert client.flush(20)
    seen = own.view()
    assert (seen["tells"], seen["observations"], client.dropped) == (31, 1, 0)


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
