"""Pages of other sites: those that were named may use flags, and nothing else."""

import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st
from ofrep_calls import HOST, evaluate, evaluate_all, track
from serving import STUDY, running, view

from rasp_tuner.service.http.origins import Origins
from rasp_tuner.service.http.route import Request
from rasp_tuner.service.limits import Limits
from rasp_tuner.service.storage.store import sqlite_url

SHOP = "https://shop.example"
FLAGS = "/ofrep/v1/evaluate/flags"


def from_page(origin, **more):
    """Headers that a browser sends with a request of a page."""
    return {"origin": origin, "sec-fetch-site": "cross-site", "sec-fetch-mode": "cors", **more}


def before(origin, method="POST", headers="authorization,content-type,if-none-match,x-api-key"):
    return from_page(origin, **{"access-control-request-method": method, "access-control-request-headers": headers})


@pytest.fixture(scope="module")
def client(tmp_path_factory):
    database = sqlite_url(tmp_path_factory.mktemp("origins"))
    with running(database, origins=Origins([SHOP, "HTTP://127.0.0.1:8400/"])) as client:
        assert client.post("/v1/studies", json=STUDY).status_code == 201
        yield client


@pytest.mark.parametrize("path", [FLAGS, f"{FLAGS}/web", f"{FLAGS}/unknown", "/ofrep/v1/track"])
def test_a_browser_is_told_before_it_sends_anything(client, path):
    answer = client.options(path, headers=before(SHOP))
    assert (answer.status_code, answer.content) == (204, b"")
    assert answer.headers["access-control-allow-origin"] == SHOP
    assert answer.headers["access-control-allow-methods"] == "POST"
    allowed = {name.strip().lower() for name in answer.headers["access-control-allow-headers"].split(",")}
    assert allowed == {"authorization", "content-type", "if-none-match", "x-api-key"}
    assert answer.headers["vary"] == "Origin"


def test_answers_can_be_read_by_the_page_also_errors_and_304(client):
    one = evaluate(client, "web", HOST, headers=from_page(SHOP))
    every = evaluate_all(client, HOST, headers=from_page("http://127.0.0.1:8400"))
    same = evaluate_all(client, HOST, headers=from_page(SHOP, **{"if-none-match": every.headers["etag"]}))
    wrong = evaluate(client, "cash", HOST, headers=from_page(SHOP))
    broken = client.post(f"{FLAGS}/web", content=b"{", headers=from_page(SHOP, **{"content-type": "application/json"}))
    assert [answer.status_code for answer in (one, every, same, wrong, broken)] == [200, 200, 304, 404, 400]
    for answer in (one, same, wrong, broken):
        assert answer.headers["access-control-allow-origin"] == SHOP
        assert answer.headers["access-control-expose-headers"] == "ETag, Retry-After"
    assert every.headers["access-control-allow-origin"] == "http://127.0.0.1:8400"


def test_what_is_refused_early_can_be_read_too(tmp_path):
    with running(sqlite_url(tmp_path), origins=Origins([SHOP]), limits=Limits(rate=1e-9, burst=1)) as client:
        answers = [evaluate(client, "web", HOST, headers=from_page(SHOP)) for _ in range(2)]
    assert [answer.status_code for answer in answers] == [404, 429]
    assert answers[1].headers["access-control-allow-origin"] == SHOP
    assert answers[1].headers["retry-after"]


@pytest.mark.parametrize(
    "origin",
    ["https://evil.example", "http://shop.example", "https://shop.example:8443", f"{SHOP}.evil.example", "null"],
)
def test_other_sites_change_nothing_and_read_nothing(client, origin):
    asked = view(client)["asks"]
    answers = [
        client.options(FLAGS, headers=before(origin)),
        evaluate(client, "web", {"targetingKey": "evil", "qps": 5}, headers=from_page(origin)),
        client.post("/ofrep/v1/track", json={}, headers=from_page(origin)),
    ]
    for answer in answers:
        assert answer.status_code == 403
        assert "access-control-allow-origin" not in answer.headers
    assert view(client)["asks"] == asked


def test_a_site_that_was_named_reaches_flags_alone(client):
    for method, path in (("POST", "/v1/studies/web/ask"), ("DELETE", "/v1/studies/web"), ("GET", "/v1/studies/web")):
        answer = client.request(method, path, headers=from_page(SHOP))
        assert answer.status_code == (200 if method == "GET" else 403)
        assert "access-control-allow-origin" not in answer.headers  # so the browser keeps it from the page
        assert client.options(path, headers=before(SHOP, method)).status_code in (403, 405)


def test_programs_and_own_pages_are_answered_as_before(client):
    own = {"origin": str(client.base_url).rstrip("/"), "sec-fetch-site": "same-origin"}
    for headers in ({}, own):
        answer = evaluate(client, "web", HOST, headers=headers)
        assert answer.status_code == 200
        assert not [name for name in answer.headers if name.startswith("access-control")]
    assert track(client, "web", HOST, value=1.0).json()["status"] == "learned"


@given(st.sampled_from([SHOP, "http://10.0.0.1:8400", "http://[::1]:9"]), st.sampled_from(["", "/"]), st.booleans())
def test_an_origin_is_known_however_it_was_written(origin, end, upper):
    assert allows((origin.upper() if upper else origin) + end, origin)


@pytest.mark.parametrize(("written", "sent"), [(f"{SHOP}:443", SHOP), ("http://a.example:80", "http://a.example")])
def test_browsers_leave_out_the_usual_port(written, sent):
    assert allows(written, sent)
    assert not allows(written, written)


def allows(written, sent):
    return Origins([written]).allow(Request("POST", FLAGS, b"", b"", {b"origin": sent.encode()}, "127.0.0.1"))


@pytest.mark.parametrize(
    "text", ["*", "null", "", "shop.example", "ftp://a", "https://a/b", "https://a b", "https://*.a"]
)
def test_what_is_no_origin_is_refused_in_one_line_when_the_server_starts(text):
    with pytest.raises(ValueError, match="an origin is a scheme and a host"):
        Origins([text])


def test_the_command_says_so_too(tmp_path):
    command = [sys.executable, "-m", "rasp_tuner", "serve", "--data", str(tmp_path / "data"), "--allow-origin", "*"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].startswith("rasp: an origin is a scheme and a host")
    assert not (tmp_path / "data").exists()
