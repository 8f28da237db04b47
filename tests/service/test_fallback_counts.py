"""What clients report of asks that they answered without the server."""

import pytest
from serving import STUDY, ask, running, view

from rasp_tuner.service.auth import create_key
from rasp_tuner.service.storage.store import Store, sqlite_url
from rasp_tuner.service.study.fallback_counts import FallbackCounts


def test_reports_are_summed_over_the_last_hour():
    counts = FallbackCounts()
    for minute in range(120):
        counts.add(b"1/3", 60.0 * minute)
    assert counts.view(60.0 * 119) == {"without_server": 60, "asks": 180}
    assert counts.view(60.0 * 150) == {"without_server": 29, "asks": 87}
    assert counts.view(1e9) == {"without_server": 0, "asks": 0}
    counts.add(b"2/2", 0.0)  # the clock went back
    assert counts.view(0.0) == {"without_server": 2, "asks": 2}


@pytest.mark.parametrize("report", [b"", b"1", b"3/2", b"-1/2", b"1/2/3", b"9999999/9999999", b"1 / 2", b"\xff/1"])
def test_nonsense_is_ignored(report):
    counts = FallbackCounts()
    counts.add(report, 0.0)
    assert counts.view(0.0) == {"without_server": 0, "asks": 0}


def test_the_study_shows_what_its_clients_report(tmp_path):
    with running(sqlite_url(tmp_path)) as client:
        client.post("/v1/studies", json=STUDY)
        assert view(client)["fallbacks"] == {"without_server": 0, "asks": 0}
        told = {"Rasp-Fallbacks": "3/7"}
        client.post("/v1/studies/web/ask", json={"context": {"qps": 1.0}}, headers=told).raise_for_status()
        client.post("/v1/studies/web/ask", json={"context": {"qps": "x"}}, headers=told)  # refused: said again later
        client.post("/v1/studies/nowhere/ask", json={"context": {"qps": 1.0}}, headers=told)
        body = {"id": ask(client)["id"], "metrics": {"p99_ms": 1.0}}
        client.post("/v1/studies/web/tell", json=body, headers={"Rasp-Fallbacks": "1/2"}).raise_for_status()
        assert view(client)["fallbacks"] == {"without_server": 4, "asks": 9}
        assert 'rasp_client_fallbacks{study="web"} 4.0' in client.get("/metrics").text


def test_a_key_that_only_reads_raises_no_alert(tmp_path):
    store = Store(sqlite_url(tmp_path))
    keys = {scope: create_key(store, scope, None if scope == "admin" else "web")[0] for scope in ("admin", "read")}
    store.close()
    admin, reader = ({"Authorization": f"Bearer {keys[scope]}"} for scope in ("admin", "read"))
    said = {**reader, "Rasp-Fallbacks": "900/900"}
    with running(sqlite_url(tmp_path), open_without_keys=False) as client:
        client.post("/v1/studies", json=STUDY, headers=admin).raise_for_status()
        client.post("/v1/studies/web/recommend", json={"context": {"qps": 1.0}}, headers=said).raise_for_status()
        client.get("/v1/studies/web", headers=said).raise_for_status()
        shown = client.get("/v1/studies/web", headers=reader).json()
    assert shown["fallbacks"] == {"without_server": 0, "asks": 0}
    assert not any("without this server" in words for words in shown["alerts"])
