"""Reads a file of sales with pandas and sums it up by shop; the time of the call is measured."""

from typing import Any

import pandas as pd


def read(input: str, engine: str, shop: str, map: bool, floats: str) -> dict[str, float]:
    """For `rasp tune --call read:read`."""
    options: dict[str, Any] = {"engine": engine, "dtype": {"shop": shop}}
    if engine != "pyarrow":
        options["memory_map"] = map
    if engine == "c":
        options["float_precision"] = None if floats == "usual" else floats
    sales = pd.read_csv(input, **options)
    return {"total": float(sales.groupby("shop", observed=True)["price"].sum().sum())}
