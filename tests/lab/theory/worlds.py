"""Hypothesis strategies for regimes, steps and points of Theta = [-1, 1]^d."""

import numpy as np
from hypothesis import strategies as st

from rasp_lab.theory.descent import DescentConstants
from rasp_lab.theory.problems import Regime

inside = st.floats(-1.0, 1.0)
relative_steps = st.floats(0.02, 1.98)  # eta L


def points(dim):
    return st.lists(inside, min_size=dim, max_size=dim).map(np.array)


@st.composite
def regimes(draw, dim, interior=False):
    """Rotated curvature from 0.03 to 1, ripples or none, the minimiser inside or against some sides of Theta."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    turn, _ = np.linalg.qr(rng.normal(size=(dim, dim)))
    eigenvalues = draw(st.lists(st.floats(0.03, 1.0), min_size=dim, max_size=dim))
    curvature = turn @ np.diag(eigenvalues) @ turn.T
    ripples = rng.normal(size=(draw(st.integers(0, 2)), dim))
    sides = np.zeros(dim) if interior else np.array(draw(st.tuples(*[st.sampled_from([-1.0, 0.0, 1.0])] * dim)))
    minimiser = np.where(sides == 0.0, np.array(draw(st.tuples(*[st.floats(-0.9, 0.9)] * dim))), sides)
    slope = -sides * np.array(draw(st.tuples(*[st.floats(0.0, 3.0)] * dim)))
    return Regime(minimiser, slope, (curvature + curvature.T) / 2.0, ripples)


@st.composite
def worlds(draw, most=3, interior=False):
    """Some regimes of one dimension, a step that suits all of them and a start for each [R, d]."""
    dim = draw(st.integers(1, 3))
    count = draw(st.integers(1, most))
    chosen = [draw(regimes(dim, interior)) for _ in range(count)]
    starts = np.array([draw(points(dim)) for _ in range(count)])
    return chosen, DescentConstants.on(*chosen, relative_step=draw(relative_steps)), starts
