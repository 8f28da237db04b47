"""Which stored rows are most alike. `kept` [n] says where each is in the fit; -1: it is new, or it has changed."""

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from rasp_tuner.base.numerics import LARGEST
from rasp_tuner.contexts.context_metric import likeness
from rasp_tuner.engine.gp.knobs import Indices
from rasp_tuner.engine.gp.model import Fit
from rasp_tuner.engine.gp.native_gp import closest
from rasp_tuner.engine.gp.rows import StoredRows
from rasp_tuner.engine.gp.search import point_keys


def most_similar(fit: Fit, stored: StoredRows, kept: Indices) -> tuple[float, int, int]:
    """How alike the contexts of the most similar two rows of one point are, and which they are."""
    if fit.native is not None:
        return closest(fit.knobs.compiled(), fit.native, stored.table, stored.columns, kept)
    groups = dict[tuple[bytes, float], list[int]]()
    for i, key in enumerate(zip(point_keys(stored["points"]), stored["failed"].tolist(), strict=True)):
        groups.setdefault(key, []).append(i)
    most, one, two = 0.0, 0, 0
    z = fit.metric.z(stored["contexts"], fit.weights.relevance)
    for group in groups.values():
        if len(group) > 1:
            alike = likeness(z[group], z[group])
            alike[_lower(len(group))] = 0.0
            at, to = divmod(int(alike.argmax()), len(group))
            if alike[at, to] > most:
                most, one, two = float(alike[at, to]), group[at], group[to]
    return most, one, two


def nearest(row: int, fit: Fit, stored: StoredRows, kept: Indices) -> int:
    """The row most like this one that is not the default's, unless this one is, or all others are."""
    knobs = fit.knobs
    if fit.native is not None:
        return closest(knobs.compiled(), fit.native, stored.table, stored.columns, kept, row)[1]
    embedded, z = knobs.features(stored["points"]).embedding, fit.metric.z(stored["contexts"], fit.weights.relevance)
    apart = ((embedded - embedded[row]) ** 2).sum(axis=1) + ((z - z[row]) ** 2).sum(axis=1)
    defaults = (stored["points"] == knobs.default).all(axis=1)
    apart = np.where(defaults != defaults[row], LARGEST, apart)
    apart[row] = np.inf
    return int(apart.argmin())


@lru_cache(maxsize=64)
def _lower(size: int) -> NDArray[np.bool_]:
    """[size, size] where a pair was seen before, or is none."""
    return np.tri(size, dtype=bool)
