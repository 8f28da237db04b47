"""Emulators: forests of log(cost) fitted to the recorded runs of src/rasp_lab/real, with their residuals as noise."""

import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rasp_lab.beds.bed import OUT
from rasp_lab.real import harness
from rasp_lab.real.__main__ import KEPT, STEPS
from rasp_lab.real.system import System, Work
from rasp_lab.real.systems import load
from rasp_tuner.space import Params

TREES, LEAF, FEATURES = 80, 4, 0.6  # trees, samples in a leaf, share of features that a split looks at

Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Forest:
    """Trees as arrays [trees, nodes]; a leaf is its own child."""

    feature: NDArray[np.int64]
    threshold: Array
    left: NDArray[np.int64]
    right: NDArray[np.int64]
    value: Array
    depth: NDArray[np.int64]  # of the deepest tree

    def predict(self, x: Array) -> float:
        """The mean of all trees for the features x [k]."""
        x = x.astype(np.float32)  # as scikit-learn compares
        tree, at = np.arange(len(self.value)), np.zeros(len(self.value), dtype=np.int64)
        for _ in range(int(self.depth)):
            down = x[self.feature[tree, at]] <= self.threshold[tree, at]
            at = np.where(down, self.left[tree, at], self.right[tree, at])
        return float(self.value[tree, at].mean())


FIELDS = [field.name for field in fields(Forest)]


class Emulator:
    """A system's cost by its forest: log(cost) of settings and a piece of work, and noise by the kind of work."""

    def __init__(self, name: str) -> None:
        self.system = load(name)(Path())
        with np.load(_file(name)) as kept:
            self._forest = Forest(**{name: kept[name] for name in FIELDS})
            self._noise = {kind: kept[f"noise/{kind}"] for kind in self.system.kinds}
            self.explained = float(kept["explained"])  # R^2 of log(cost) on steps that a tree has not seen
        self._known: dict[tuple[float, ...], float] = {}

    def log_cost(self, params: Params, work: Work) -> float:
        x = features(self.system, params, work)
        key = tuple(x)
        if key not in self._known:
            self._known[key] = self._forest.predict(np.array(x))
        return self._known[key]

    def noise(self, kind: str, rng: np.random.Generator) -> float:
        return float(rng.choice(self._noise[kind]))


def features(system: System, params: Params, work: Work) -> list[float]:
    """Numbers by their logarithm, words by one number for each choice."""
    found: list[float] = []
    for name, value in params.items():
        words = getattr(system.space[name], "choices", ()) if isinstance(value, str) else ()
        found += [float(value == word) for word in words] or [float(np.log1p(float(value)))]  # type: ignore[arg-type]
    found += [float(work.kind == kind) for kind in system.kinds]
    return found + [
        float(np.log1p(v)) for v in work.context.values() if not isinstance(v, str)
    ]  # words are in the kind


def fit(name: str) -> None:
    """Fit the forest of a system and keep it, unless it is there already."""
    file = _file(name)
    if file.exists():
        return
    from sklearn.ensemble import RandomForestRegressor

    system = load(name)(Path())
    rows = list(recorded(name))
    x = np.array([features(system, params, work) for params, work, _ in rows])
    y = np.log([cost for *_, cost in rows])
    kinds = np.array([work.kind for _, work, _ in rows])
    model = RandomForestRegressor(TREES, min_samples_leaf=LEAF, max_features=FEATURES, oob_score=True, random_state=0)
    model.fit(x, y)
    residuals = y - model.oob_prediction_
    noise = {f"noise/{kind}": residuals[kinds == kind] - np.median(residuals[kinds == kind]) for kind in system.kinds}
    file.parent.mkdir(parents=True, exist_ok=True)
    part = file.with_suffix(".part.npz")
    np.savez_compressed(part, explained=model.oob_score_, **arrays(model), **noise)  # type: ignore[arg-type]
    part.replace(file)


def recorded(name: str) -> Iterable[tuple[Params, Work, float]]:
    """Settings, work and cost of each recorded step; the work follows from the run's seed."""
    system = load(name)(Path())
    for file in _runs(name):
        sequence = system.sequence(STEPS, int(file.name.removesuffix(".csv.gz").rpartition("-")[2]))
        for row in harness.read(file):
            if row.phase == "tune":
                work = sequence[row.step]
                if work.kind != row.kind:
                    raise ValueError(f"{file}: step {row.step} is {row.kind}, its sequence says {work.kind}")
                values = json.loads(row.params) if row.params else list(system.default.values())
                yield dict(zip(system.default, values, strict=True)), work, row.cost_ms


def arrays(model: Any) -> dict[str, Array]:
    """Trees of scikit-learn, padded to the largest."""
    trees = [found.tree_ for found in model.estimators_]
    most = max(tree.node_count for tree in trees)
    shape, own = (len(trees), most), np.arange(most)
    feature, left, right = np.zeros(shape, int), np.tile(own, (len(trees), 1)), np.tile(own, (len(trees), 1))
    threshold, value = np.zeros(shape), np.zeros(shape)
    for i, tree in enumerate(trees):
        n, inner = tree.node_count, tree.children_left >= 0
        feature[i, :n] = np.where(inner, tree.feature, 0)
        threshold[i, :n] = np.where(inner, tree.threshold, 0.0)
        left[i, :n] = np.where(inner, tree.children_left, own[:n])
        right[i, :n] = np.where(inner, tree.children_right, own[:n])
        value[i, :n] = tree.value[:, 0, 0]
    depth = np.array(max(tree.max_depth for tree in trees))
    return {"feature": feature, "threshold": threshold, "left": left, "right": right, "value": value, "depth": depth}


def _runs(name: str) -> list[Path]:
    return sorted(KEPT.glob(f"{name}-[0-9]*.csv.gz"))


def _file(name: str) -> Path:
    made_of = hashlib.sha256(b"".join(file.read_bytes() for file in [*_runs(name), Path(__file__)])).hexdigest()[:16]
    return OUT / "forests" / f"{name}-{made_of}.npz"
