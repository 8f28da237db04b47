"""Situation: what a server says of one situation; its fields, and a sentence."""

from typing import Any


class Situation(dict[str, Any]):
    """The fields of the answer by name; `str()` is the sentence that a tuner's own situations have.

    >>> print(Situation(label="qps 900", words="qps 900: the default"))
    qps 900: the default
    """

    def __str__(self) -> str:
        return str(self.get("words", dict.__repr__(self)))
