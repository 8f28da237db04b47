"""How the tables of the tabular streams were measured; needs scikit-learn, the streams themselves do not.

    python -m rasp_lab.bench.domains.stream_tables

measures all three (about an hour of one core; a killed run goes on where it stopped) and replaces the committed files.

n rows, k features, a features of the context, d_c context dimensions.
"""

import argparse
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rasp_lab.bench.domains.stream_data import load, save
from rasp_lab.bench.domains.streams import BATCHES, LEVELS
from rasp_tuner.base.numerics import Array

CLIP_DEVIATIONS = 5.0  # one extreme row must not decide a mean
RIDGE = 1.0  # penalty of the base model, per window


@dataclass(frozen=True)
class Windows:
    """Batch t trains on `train` rows from row t * stride on, and validates on the `validation` rows after them."""

    train: int
    validation: int
    stride: int

    def rows(self, batch: int) -> tuple[slice, slice]:
        start = batch * self.stride
        split = start + self.train
        return slice(start, split), slice(split, split + self.validation)


WINDOWS = {  # 99 strides and one window of both kinds are exactly the rows there are
    "california": Windows(train=240, validation=204, stride=204),
    "boston": Windows(train=150, validation=59, stride=3),
    "digits": Windows(train=150, validation=162, stride=15),
}


class Dataset:
    """A data set in stream order, its target scaled to mean 0 and variance 1 over all rows."""

    def __init__(self, name: str) -> None:
        if name == "digits":
            from sklearn.datasets import load_digits  # here: it takes a second, and other parts need none of it

            features, target = load_digits(return_X_y=True)
        else:
            arrays = load(name)
            features, target = arrays["features"], arrays["target"]
        self.name = name
        self.windows = WINDOWS[name]
        self.features = features.astype(np.float32)  # [n, k] what the regressor sees
        self.target = _standardise(target.astype(np.float64))  # [n]
        described = _standardise(_summarised(name, features))
        self.described = np.clip(described, -CLIP_DEVIATIONS, CLIP_DEVIATIONS)  # [n, a] for the context

    def curve(self, batch: int, learning_rate: float, max_depth: float, subsample: float, seed: int) -> Array:
        """Validation MSE at every level of n_estimators [16]: the stages of one fit."""
        import sklearn
        from sklearn.ensemble import GradientBoostingRegressor

        train, validation = self.windows.rows(batch)
        model = GradientBoostingRegressor(
            learning_rate=learning_rate,
            n_estimators=int(max(LEVELS["n_estimators"])),
            max_depth=int(max_depth),
            subsample=subsample,
            random_state=seed,
        )
        with sklearn.config_context(assume_finite=True, skip_parameter_validation=True):  # a third faster
            model.fit(self.features[train], self.target[train])
            stages = np.array(list(model.staged_predict(self.features[validation])))  # [trees, validation]
        wanted = stages[np.array(LEVELS["n_estimators"], dtype=int) - 1]
        mse: Array = np.mean((wanted - self.target[validation]) ** 2, axis=1)
        return mse

    def mse(self, batch: int) -> Array:
        """Validation MSE at every cell of the grid [6, 16, 5, 3]; all fits of a batch share one random state."""
        table = np.empty([len(levels) for levels in LEVELS.values()])
        for i, learning_rate in enumerate(LEVELS["learning_rate"]):
            for j, max_depth in enumerate(LEVELS["max_depth"]):
                for k, subsample in enumerate(LEVELS["subsample"]):
                    table[i, :, j, k] = self.curve(batch, learning_rate, max_depth, subsample, seed=batch)
        return table

    def context(self, batch: int) -> Array:
        """Means [a], standard deviations [a] and two gradient norms, all of the training rows: d_c = 2 a + 2."""
        train, _ = self.windows.rows(batch)
        rows = self.described[train]
        return np.concatenate([rows.mean(axis=0), rows.std(axis=0), gradient_norms(rows, self.target[train])])


def gradient_norms(rows: Array, target: Array) -> Array:
    """How a linear base model of the older half of the rows [n, a] would have to move for the newer half [2].

    The model is ridge regression with a free intercept. Of its loss 1/2 mean (prediction - target)^2 on the newer half:
    the norm of the gradient in weights and intercept, and the norm of the gradient in the predictions, times sqrt(n/2)
    (the root mean square of the residuals, which are what boosting descends on).
    """
    half = len(rows) // 2
    inputs = np.column_stack([rows, np.ones(len(rows))])
    old, new = inputs[:half], inputs[half:]
    penalty = RIDGE * np.eye(inputs.shape[1])
    penalty[-1, -1] = 0.0
    weights = np.linalg.solve(old.T @ old + penalty, old.T @ target[:half])
    residual = new @ weights - target[half:]
    return np.array([np.linalg.norm(new.T @ residual / len(new)), np.sqrt(np.mean(residual**2))])


def _summarised(name: str, features: NDArray[Any]) -> Array:
    """The features [n, a] that the context describes: all, but of an 8 x 8 image the 16 means of 2 x 2 pixels."""
    wide = features.astype(np.float64)
    return wide.reshape(-1, 4, 2, 4, 2).mean(axis=(2, 4)).reshape(-1, 16) if name == "digits" else wide


def _standardise(values: Array) -> Array:
    scaled: Array = (values - values.mean(axis=0)) / values.std(axis=0)
    return scaled


def build(name: str, work: Path) -> None:
    """Measure every batch of a data set into work/<name>/, then write <name>_table.npz."""
    dataset = Dataset(name)
    parts = work / name
    parts.mkdir(parents=True, exist_ok=True)
    for batch in range(BATCHES):
        part = parts / f"{batch:02d}.npy"
        if not part.exists():
            unfinished = part.with_suffix(".tmp")
            with unfinished.open("wb") as file:
                np.save(file, dataset.mse(batch))
            unfinished.replace(part)
            sys.stderr.write(f"{name} {batch + 1}/{BATCHES}\n")
    mse = np.stack([np.load(parts / f"{batch:02d}.npy") for batch in range(BATCHES)])
    context = np.stack([dataset.context(batch) for batch in range(BATCHES)])
    levels = {knob: np.array(values) for knob, values in LEVELS.items()}
    save(f"{name}_table", {"mse": mse.astype(np.float32), "context": context.astype(np.float32)} | levels)


def spread(name: str) -> float:
    """How much refits that differ in the random state alone differ in MSE: deviation over mean, median of batches."""
    dataset = Dataset(name)
    refits = [[dataset.curve(batch, 0.1, 3, 0.75, seed)[-1] for seed in range(10)] for batch in range(0, BATCHES, 10)]
    return float(np.median(np.std(refits, axis=1) / np.mean(refits, axis=1)))


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure the tables of the tabular streams.")
    parser.add_argument("datasets", nargs="*", default=list(WINDOWS), help="which of: " + ", ".join(WINDOWS))
    parser.add_argument("--work", type=Path, default=Path("out/streams"), help="where finished batches are kept")
    parser.add_argument("--spread", action="store_true", help="only print how much refits differ, which sets the noise")
    options = parser.parse_args()
    for name in options.datasets:
        if options.spread:
            sys.stdout.write(f"{name} {spread(name):.3f}\n")
        else:
            build(name, options.work)


if __name__ == "__main__":
    main()
