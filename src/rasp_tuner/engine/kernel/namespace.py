"""The array namespace of an array: NumPy's own, or torch's through array-api-compat."""

from typing import Any

import numpy as np


def namespace(array: Any) -> Any:
    """Functions for this kind of array, by the names of the Python array API standard."""
    if isinstance(array, np.ndarray):
        return np
    import array_api_compat.torch  # with extra `fleet`

    return array_api_compat.torch
