"""Outcomes a second that simulated edges tell one server as sums, its share of a core, and how soon a policy has them.

python -m rasp_lab.speed.edge_speed
python -m rasp_lab.speed.edge_speed --sources 4 --outcomes 25000 --seconds 20

Every source sends a batch a second: what so many outcomes come to under the latest policy, which it then fetches. The
sums are drawn as their mean and variance would be, since the edges are not what is measured. The study is a bowl with
noise: one whole number, two situations.
"""

import argparse
import time
from math import log, sqrt
from typing import Any

import numpy as np

from rasp_lab.reliability.harness import Link, ServerProcess, folder, good
from rasp_tuner.policy.tree import leaves_of

STUDY = {
    "name": "edge",
    "space": {"pool": {"type": "int", "low": 1, "high": 64, "log": True}},
    "metrics": {"p99_ms": "min"},
    "context": ["qps"],
    "default": {"pool": 16},
}
WATCHED = 5  # of so many batches, one is followed until a policy has it
PATH, NOISE, SITUATIONS = "/v1/studies/edge", 5.0, (100.0, 900.0)


def level(pool: float, qps: float) -> float:
    return 20.0 + 10.0 * log(pool / (40.0 if qps > 500.0 else 4.0)) ** 2


def sums_of(policy: dict[str, Any], outcomes: int, rng: np.random.Generator) -> tuple[list[dict[str, Any]], float]:
    """What so many outcomes add up to, and their mean without noise."""
    found, total = [], 0.0
    leaves = list(leaves_of(policy["tree"]))
    for qps in SITUATIONS:
        at = float(qps + rng.random())
        leaf = leaves[_leaf(policy["tree"], at)]
        for i, one in enumerate(leaf["settings"]):
            count = int(rng.binomial(outcomes // 2, one["weight"] / 10_000))
            if not count:
                continue
            mean = level(one["params"]["pool"], at)
            total += count * mean
            mean += NOISE / sqrt(count) * float(rng.normal())
            parts = {"sum": mean * count, "squares": (mean**2 + NOISE**2) * count}
            found.append({
                "params": one["params"], "contexts": [[at]], "count": count, "metrics": {"p99_ms": parts},
                "policy": policy["explore"]["version"], "leaf": leaf["leaf"], "setting": i,
            })  # fmt: skip
    return found, total / outcomes


def _leaf(node: dict[str, Any], qps: float) -> int:
    while "if" in node:
        node = node["then" if qps <= node["if"]["at_most"] else "else"]
    number: int = node["leaf"]
    return number


def measured(server: ServerProcess, sources: int, outcomes: int, seconds: int) -> None:
    link, rng = server.link(), np.random.default_rng(0)
    good(link.post("/v1/studies", STUDY), 201)
    policies = [_policy(link, outcomes) for _ in range(sources)]
    told, means, waits = 0, [], []
    started, cpu, due = time.monotonic(), server.cpu_s(), time.monotonic()
    for second in range(seconds):
        sent = time.monotonic()
        for source in range(sources):
            sums, mean = sums_of(policies[source], outcomes, rng)
            body = {"source": f"edge-{source}", "sequence": second, "sums": sums}
            told += good(link.post(f"{PATH}/tells", body))["runs"]
            means.append(mean)
        before = policies[0]["explore"]["version"]
        policies = [_policy(link, outcomes) for _ in range(sources)]
        while second % WATCHED == 0 and policies[0]["explore"]["version"] == before and time.monotonic() - sent < 5.0:
            time.sleep(0.05)  # the latest policy was too fresh to be made anew
            policies = [_policy(link, outcomes) for _ in range(sources)]
        waits += [time.monotonic() - sent] if second % WATCHED == 0 else []
        due += 1.0
        time.sleep(max(due - time.monotonic(), 0.0))
    took = time.monotonic() - started
    share = (server.cpu_s() - cpu) / took
    heads = ["outcomes a second", "requests a second", "share of a core", "outcome to policy", "mean: first, last"]
    print("| " + " | ".join(heads) + " |")
    print("|---|---|---|---|---|")
    print(
        f"| {told / took:,.0f} | {sources * seconds / took:.1f} | {share:.0%} | {np.median(waits):.2f} s,"
        f" {max(waits):.2f} s | {means[0]:.1f}, {np.mean(means[-sources:]):.1f} |"
    )


def _policy(link: Link, outcomes: int) -> dict[str, Any]:
    found: dict[str, Any] = good(link.get(f"{PATH}/policy?outcomes={outcomes}"))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--sources", type=int, default=8)
    parser.add_argument("--outcomes", type=int, default=12_500, help="of one source, a second")
    parser.add_argument("--seconds", type=int, default=30)
    options = parser.parse_args()
    with folder() as data:
        server = ServerProcess(data)
        server.start()
        try:
            measured(server, options.sources, options.outcomes, options.seconds)
        finally:
            server.stop()


if __name__ == "__main__":
    main()
