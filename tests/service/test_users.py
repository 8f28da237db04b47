"""Who uses a study: the keys that asked or told lately."""

import pytest
from serving import STUDY, running

from rasp_tuner.service import service
from rasp_tuner.service.auth import create_key
from rasp_tuner.service.storage.store import Store


@pytest.fixture
def keys(sqlite):
    """Headers of keys by label; one has none."""
    store = Store(sqlite)
    made = {
        label: create_key(store, "read" if label == "reader" else "admin", None, label)
        for label in ("ci", "shop", "reader", "")
    }
    store.close()
    return {label: ({"authorization": f"Bearer {key}"}, row.id) for label, (key, row) in made.items()}


def users(client, keys):
    shown = client.get("/v1/studies/web/users", headers=keys["reader"][0]).json()["users"]
    assert [user["at"] for user in shown] == sorted((user["at"] for user in shown), reverse=True)
    return [user["name"] for user in shown]


def test_the_view_names_the_keys_that_wrote_latest_first(sqlite, keys, monkeypatch):
    with running(sqlite) as client:
        client.post("/v1/studies", json=STUDY, headers=keys["ci"][0]).raise_for_status()
        assert users(client, keys) == []  # who only makes or reads it does not use it
        for label in ("ci", "shop", ""):
            client.post(
                "/v1/studies/web/ask", json={"context": {"qps": 1.0}}, headers=keys[label][0]
            ).raise_for_status()
        assert users(client, keys) == [keys[""][1], "shop", "ci"]
        client.post("/v1/studies/none/ask", json={"context": {"qps": 1.0}}, headers=keys["ci"][0])
        assert set(client.service.users) == {"web"}
        monkeypatch.setattr(service, "USED_S", -1.0)
        assert users(client, keys) == []
        client.delete("/v1/studies/web", headers=keys["ci"][0]).raise_for_status()
        assert client.service.users == {}
