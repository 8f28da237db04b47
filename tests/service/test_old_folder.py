"""A data folder of an earlier version is served as that version would have served it."""

import gzip
import json
import shutil
from pathlib import Path

import httpx
import service_steps
from serving import Process

V0_1_0 = Path(__file__).parent.parent / "compatibility" / "v0_1_0"


def test_a_data_folder_of_0_1_0_goes_on_with_the_same_suggestions(tmp_path):
    data = tmp_path / "data"
    data.mkdir()
    with gzip.open(V0_1_0 / "rasp.db.gz") as packed, (data / "rasp.db").open("wb") as database:
        shutil.copyfileobj(packed, database)
    server = Process(data)
    try:
        with httpx.Client(base_url=server.url) as client:
            now = service_steps.steps(client, service_steps.BEFORE, service_steps.AFTER)
    finally:
        server.stop()
    assert now == json.loads((V0_1_0 / "service.json").read_text())
