"""Steps of two studies over HTTP, the same whichever version answers; recorded by the version that wrote the folder.

Record with the version to be remembered, while it serves an empty folder at URL:
python tests/service/service_steps.py URL before    # then kill the server, and keep its folder
python tests/service/service_steps.py URL after > FOLDER/service.json    # on the folder, served again
"""

import json
import math
import sys

import httpx

POOL = {"type": "int", "low": 1, "high": 64, "log": True}
STUDIES = {
    "mixed": {"pool": POOL, "t": {"type": "float", "low": 0.1, "high": 10}},
    "smooth": {"t": {"type": "float", "low": 0.1, "high": 10}, "u": {"type": "float", "low": 0, "high": 1}},
}
BEFORE, AFTER = 40, 30
SEED = 4  # one with which 0.1.0 never took its slow path, which later versions do not have


def create(client):
    for name, space in STUDIES.items():
        metrics = {"p99_ms": {"direction": "min"}}
        definition = {"name": name, "space": space, "metrics": metrics, "context": ["qps"], "seed": SEED}
        client.post("/v1/studies", json=definition).raise_for_status()


def measure(params, i, busy):
    """What a made-up system answers at step i."""
    away = abs(math.log2(params.get("pool", 4)) - 2.0 - busy) + abs(params["t"] - 4.0 - 0.5 * busy) + params.get("u", 0)
    return 50.0 + 0.3 * away + 1.5 * math.sin(3.7 * i)


def steps(client, first, count):
    """The parameters that each study suggested."""
    seen = {name: [] for name in STUDIES}
    for name, params in seen.items():
        for i in range(first, first + count):
            busy = i % 20 >= 10
            asked = client.post(f"/v1/studies/{name}/ask", json={"context": {"qps": 9.0 * busy + 0.01 * (i % 7)}})
            suggestion = asked.raise_for_status().json()
            p = suggestion["params"]
            told = {"id": suggestion["id"], "metrics": {"p99_ms": measure(p, i, busy)}}
            client.post(f"/v1/studies/{name}/tell", json=told).raise_for_status()
            params.append(p)
    return seen


if __name__ == "__main__":
    url, part = sys.argv[1:]
    with httpx.Client(base_url=url) as client:
        if part == "before":
            create(client)
            steps(client, 0, BEFORE)
        else:
            json.dump(steps(client, BEFORE, AFTER), sys.stdout, indent=0)
