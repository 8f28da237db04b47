"""The one door to the paper's networks: torch is heavy and optional."""

from importlib import import_module
from types import ModuleType

from rasp_tuner.errors import MissingExtra


def load_experts() -> ModuleType:
    """The module of the paper's networks, or an error that names the extra to install."""
    try:
        return import_module("rasp_tuner.paper.experts")
    except ModuleNotFoundError as reason:
        if reason.name != "torch":
            raise
        raise MissingExtra(
            "the networks of the paper's surrogate need PyTorch, which is not installed:"
            " pip install 'rasp-tuner[neural]'"
        ) from reason
