"""summary.json: every number of the report, computed from steps.csv alone."""

import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from typing import Any

from rasp_lab.bench.analysis import returns, stats
from rasp_lab.bench.analysis.metrics import (
    UNPAIRED,
    Adaptation,
    Runs,
    adaptation,
    calibration,
    geometric_means,
    latency,
    ratios,
    second_half_ratio,
    settled_level,
    shared_totals,
)

OURS = ("rasp", "rasp-paper")
ORACLES = ("ra-gd",)  # is shown the truth: a floor, not a competitor


def is_peer(agent: str) -> bool:
    """Whether the agent is somebody else's way to choose; never changing anything and random search are, too."""
    return not agent.startswith("rasp") and agent not in ORACLES


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
                "adaptation": adapted._asdict() if (adapted := adapts(r, here)) else None,
                "second_half_to_first": second_half_ratio(r),
                "calibration": calibration(r),
            }
            for r in here
        ],
        "geometric_mean": geometric_means(here, horizon),
        "returns": [asdict(one) for one in returns.recoveries(here)],
        "tests": {ours: best_peer_tests(here, ours) for ours in OURS if any(r.agent == ours for r in here)},
    }


def adapts(r: Runs, here: Iterable[Runs]) -> Adaptation | None:
    """Adaptation speed of a run among those of its horizon: the best level is that of any agent but an oracle."""
    same = [other for other in here if other.domain == r.domain and other.agent not in ORACLES]
    static = next((other for other in same if other.agent == "static"), None)
    if static is None:
        return None
    return adaptation(r, min(map(settled_level, same)), float(static["loss"].mean()))


def best_peer_tests(runs: Iterable[Runs], ours: str) -> list[dict[str, Any]]:
    """Per domain: the peer with the least mean regret, and the paired test of `ours` against it, Holm-corrected."""
    by_domain: dict[str, list[Runs]] = {}
    for r in runs:
        by_domain.setdefault(r.domain, []).append(r)
    rows: list[dict[str, Any]] = []
    for domain, agents in by_domain.items():
        own = next((r for r in agents if r.agent == ours), None)
        if own is None:
            continue
        peers = [r for r in agents if is_peer(r.agent) and set(r.seeds) & set(own.seeds)]
        if not peers:
            continue
        best = min(peers, key=lambda r: _relative(r, own))
        a, b = shared_totals(own, best)
        rows.append(
            {
                "domain": domain,
                "best_peer": best.agent,
                "ours": float(a.mean()),
                "theirs": float(b.mean()),
                "seeds": len(a),
                "p": float("nan") if UNPAIRED in best.columns else stats.paired_p(a, b),
            }
        )
    adjusted = stats.holm({row["domain"]: row["p"] for row in rows})
    return [{**row, "p_holm": adjusted[row["domain"]]} for row in rows]


def _relative(r: Runs, to: Runs) -> float:
    """Mean regret relative to another agent's, over the seeds both ran."""
    a, b = shared_totals(r, to)
    return float(a.mean() / max(float(b.mean()), 1e-300))


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
