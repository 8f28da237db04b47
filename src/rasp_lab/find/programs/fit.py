"""Trains LightGBM on a table and returns its loss on rows it has not seen; the time of the call is measured."""

import lightgbm
import numpy as np


def fit(input: str, bins: int, leaves: int, wise: str, threads: int) -> dict[str, float]:
    """For `rasp tune --call fit:fit`."""
    table = np.load(input)
    x, y, rows = table[:, :-1], table[:, -1], len(table) // 2
    options = {"max_bin": bins, "num_leaves": leaves, "num_threads": threads, "verbose": -1, f"force_{wise}_wise": True}
    model = lightgbm.train({"objective": "l2", **options}, lightgbm.Dataset(x[:rows], y[:rows]), num_boost_round=20)
    return {"loss": float(np.mean((np.asarray(model.predict(x[rows:])) - y[rows:]) ** 2))}
