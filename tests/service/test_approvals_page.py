"""Approvals on the page of a study: a person sees what waits, and decides."""

import re

import pytest
from browsing import CONTRAST, Tab
from serving import STUDY, Process, plain_client

playwright = pytest.importorskip("playwright.sync_api", reason="no Playwright: pip install playwright")
expect = playwright.expect
expect.set_options(timeout=15_000)  # a busy machine is no failure


@pytest.fixture(scope="module")
def client(tmp_path_factory):
    server = Process(tmp_path_factory.mktemp("approvals") / "data")
    with plain_client(server.url) as client:
        client.post("/v1/studies", json={**STUDY, "approve_s": 86_400.0, "max_change": 0.2}).raise_for_status()
        yield client
    server.stop()


def run(client, steps=6):
    for _ in range(steps):
        asked = client.post("/v1/studies/web/ask", json={"context": {"qps": 1.0}}).json()
        cost = 20.0 + abs(asked["params"]["pool"] - 32)
        told = {"id": asked["id"], "metrics": {"p99_ms": cost}}
        client.post("/v1/studies/web/tell", json=told).raise_for_status()


def test_a_person_refuses_and_approves(client, browser):
    run(client)
    tab = Tab(browser, str(client.base_url))
    page = tab.page
    page.goto(f"{client.base_url}/studies/web")
    item = page.locator("#waiting-w0")
    expect(item.locator(".change")).to_have_text(re.compile("pool 8 → "))
    assert page.evaluate(CONTRAST)[0] >= 4.5
    item.get_by_role("button", name="Refuse").click()
    page.get_by_role("dialog").get_by_role("button", name="Refuse").click()
    expect(item).to_have_count(0)
    run(client, 2)
    other = page.locator("#waiting-w1")
    other.get_by_role("button", name="Approve").click()
    page.get_by_role("dialog").get_by_role("button", name="Approve").click()
    expect(page.get_by_role("heading", name="Waiting for approval")).to_be_hidden()
    view = client.get("/v1/studies/web").json()
    assert view["waiting"] == 0
    events = client.get("/v1/studies/web/history").json()["events"]
    assert [event["kind"] for event in events if event["kind"] in ("approved", "refused")] == ["refused", "approved"]
    tab.context.close()
