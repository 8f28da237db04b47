"""Models of the error behind one protocol (base.py), one file each."""

from importlib import import_module
from types import ModuleType

from rasp_tuner.errors import MissingExtra


def load_neural() -> ModuleType:
    """The module of the paper's networks; torch is heavy and optional, so it is imported only through here."""
    try:
        return import_module("rasp_tuner.paper.experts")
    except ModuleNotFoundError as reason:
        if reason.name != "torch":
            raise
        raise MissingExtra(
            "the networks of the paper's surrogate need PyTorch, which is not installed:"
            " pip install 'rasp-tuner[neural]'"
        ) from reason
