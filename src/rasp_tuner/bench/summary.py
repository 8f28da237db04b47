"""summary.json: every number of the report, computed from steps.csv alone."""

import json
import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from rasp_tuner.bench import stats
from rasp_tuner.bench.domains import SYNTHETIC
from rasp_tuner.bench.metrics import Runs, adaptation_steps, calibration, geometric_mean, latency, ratios, settled_level

OURS = ("rasp", "rasp-paper")
NOT_PEERS = ("static", "ra-gd")  # a baseline and a floor, neither a method that searches


def is_peer(agent: str) -> bool:
    """Whether the agent is somebody else's method."""
    return not agent.startswith("rasp") and agent not in NOT_PEERS


def summarise(runs: Sequence[Runs]) -> dict[str, Any]:
    """Per horizon: regret tables, geometric means, tests, latency, adaptation, calibration."""
    return {f"T{horizon}": _at(horizon, runs) for horizon in sorted({r.horizon for r in runs})}


def to_json(summary: dict[str, Any]) -> str:
    """Strict JSON: what is not a finite number is null."""
    return json.dumps(_finite(summary), indent=1)


def _at(horizon: int, runs: Sequence[Runs]) -> dict[str, Any]:
    here = [r for r in runs if r.horizon == horizon]
    relative = ratios(here, horizon)
    return {
        "regret": [
            {
                "domain": r.domain,
                "agent": r.agent,
                "seeds": len(r.seeds),
                "mean": float(r.totals.mean()),
                "ci95": stats.confidence(r.totals),
                "ratio_to_static": relative.get(r.agent, {}).get(r.domain),
                **latency(r),
                "adaptation_steps": _adaptation(r, here),
                "calibration": calibration(r),
            }
            for r in here
        ],
        "geometric_mean": {
            agent: geometric_mean(by_domain[d] for d in SYNTHETIC)
            for agent, by_domain in relative.items()
            if all(d in by_domain for d in SYNTHETIC)
        },
        "tests": {ours: best_peer_tests(here, ours) for ours in OURS if any(r.agent == ours for r in here)},
    }


def best_peer_tests(runs: Iterable[Runs], ours: str) -> list[dict[str, Any]]:
    """Per domain: the peer with the least mean regret, and the paired test of `ours` against it, Holm-corrected."""
    by_domain: dict[str, list[Runs]] = {}
    for r in runs:
        by_domain.setdefault(r.domain, []).append(r)
    rows: list[dict[str, Any]] = []
    for domain, agents in by_domain.items():
        own = next((r for r in agents if r.agent == ours), None)
        peers = [r for r in agents if is_peer(r.agent)]
        if own is None or not peers:
            continue
        best = min(peers, key=lambda r: float(r.totals.mean()))
        shared = [seed for seed in own.seeds if seed in best.seeds]
        a = np.array([own.totals[own.seeds.index(seed)] for seed in shared])
        b = np.array([best.totals[best.seeds.index(seed)] for seed in shared])
        rows.append(
            {
                "domain": domain,
                "best_peer": best.agent,
                "ours": float(a.mean()),
                "theirs": float(b.mean()),
                "p": stats.paired_p(a, b),
            }
        )
    adjusted = stats.holm({row["domain"]: row["p"] for row in rows})
    return [{**row, "p_holm": adjusted[row["domain"]]} for row in rows]


def _adaptation(r: Runs, here: Sequence[Runs]) -> float | None:
    same = [other for other in here if other.domain == r.domain]
    static = next((other for other in same if other.agent == "static"), None)
    if static is None:
        return None
    return adaptation_steps(r, min(settled_level(other) for other in same), float(static["loss"].mean()))


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
