"""The array namespace of an array: NumPy's own, or torch's by the names of the Python array API standard."""

from typing import Any

import numpy as np


def namespace(array: Any) -> Any:
    """Functions for this kind of array."""
    if isinstance(array, np.ndarray):
        return np
    from rasp_tuner.engine.kernel import torch_namespace  # with extra `fleet`

    return torch_namespace
