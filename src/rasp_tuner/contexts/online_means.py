"""RunningCentres: mean contexts of regimes, kept as contexts come. When to open or merge one is decided elsewhere."""

import numpy as np

from rasp_tuner.base.numerics import Array


class RunningCentres:
    """n centres [n, d_c], each the mean of so many contexts [n]."""

    def __init__(self, dim: int) -> None:
        self.centres = np.zeros((0, dim))
        self.counts = np.zeros(0)

    def __len__(self) -> int:
        return len(self.counts)

    def open(self, context: Array) -> int:
        """The index of a new centre at `context`."""
        self.centres = np.concatenate([self.centres, context[None]])
        self.counts = np.concatenate([self.counts, [1.0]])
        return len(self) - 1

    def add(self, index: int, context: Array) -> None:
        """Move a centre towards one more of its contexts."""
        self.counts[index] += 1.0
        self.centres[index] += (context - self.centres[index]) / self.counts[index]

    def merge(self, kept: int, gone: int) -> None:
        """Fold one centre into another, each by its count; later indices move down by one."""
        share = self.counts[gone] / (self.counts[gone] + self.counts[kept])
        self.centres[kept] += share * (self.centres[gone] - self.centres[kept])
        self.counts[kept] += self.counts[gone]
        self.drop(gone)

    def drop(self, gone: int) -> None:
        """Leave one out; later indices move down by one."""
        self.centres = np.concatenate([self.centres[:gone], self.centres[gone + 1 :]])
        self.counts = np.concatenate([self.counts[:gone], self.counts[gone + 1 :]])
