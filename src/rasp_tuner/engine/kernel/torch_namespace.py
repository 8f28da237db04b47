"""array-api-compat's torch, with shorter ways to a few functions that a step calls often.

A bound that is a Python number would be sent to the GPU as an array first; a dot product would be a matrix product of
one row and one column for each tuner.
"""

from typing import Any

import torch
from array_api_compat.torch import *  # noqa: F403 - the whole namespace
from array_api_compat.torch import linalg as linalg

globals().pop("classes", None)  # torch's door to C++: doctest would look behind it
where = torch.where


def maximum(x: Any, other: Any) -> Any:
    """The larger of an array and an array or a number."""
    return torch.maximum(x, other) if isinstance(other, torch.Tensor) else torch.clamp(x, min=other)


def minimum(x: Any, other: Any) -> Any:
    """The smaller of an array and an array or a number."""
    return torch.minimum(x, other) if isinstance(other, torch.Tensor) else torch.clamp(x, max=other)


def clip(x: Any, low: Any = None, high: Any = None) -> Any:
    """Within bounds that are arrays, numbers or None."""
    if isinstance(low, torch.Tensor) == isinstance(high, torch.Tensor) or low is None or high is None:
        return torch.clamp(x, low, high)
    return minimum(maximum(x, low), high)


def vecdot(x: Any, other: Any) -> Any:
    """Of the last axes."""
    return (x * other).sum(-1)
