"""A tuner's snapshot with one array changed."""

import numpy as np

from rasp_tuner.files import snapshot


def damaged(tuner, name, change):
    header, arrays = snapshot.decode(tuner.to_bytes())
    header.pop("numerics")
    return snapshot.encode(header, {**arrays, name: np.array(change(arrays[name]))})
