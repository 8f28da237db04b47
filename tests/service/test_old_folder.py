"""A data folder of an earlier version is served: it goes on learning, and nothing is lost."""

import gzip
import json
import shutil
from pathlib import Path

import httpx
import service_steps
from serving import Process, view

V0_1_0 = Path(__file__).parent.parent / "compatibility" / "v0_1_0"


def events(client, name):
    return [json.loads(line) for line in client.get(f"/v1/studies/{name}/export").text.splitlines()][1:-1]


def test_a_data_folder_of_0_1_0_goes_on_and_loses_nothing(tmp_path):
    data = tmp_path / "data"
    data.mkdir()
    with gzip.open(V0_1_0 / "rasp.db.gz") as packed, (data / "rasp.db").open("wb") as database:
        shutil.copyfileobj(packed, database)
    server = Process(data)
    first, more = service_steps.BEFORE, service_steps.AFTER
    try:
        with httpx.Client(base_url=server.url, timeout=30) as client:
            logs = {name: events(client, name) for name in service_steps.STUDIES}
            for name in logs:
                shown = view(client, name)
                assert (shown["asks"], shown["tells"], shown["learned"], shown["late"]) == (first, first, first, 0)
                assert (shown["budget"], shown["scales"]) == (None, {"p99_ms": "linear"})
            service_steps.create(client)  # the requests of that time open the studies
            service_steps.steps(client, first, more)
            for name, log in logs.items():
                shown = view(client, name)
                assert [shown[count] for count in ("asks", "tells", "learned")] == [first + more] * 3
                assert len(log) == 2 * first
                assert events(client, name)[: len(log)] == log
    finally:
        server.stop()
