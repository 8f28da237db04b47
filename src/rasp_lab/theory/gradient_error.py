"""Theorem "additive regret from gradient error": what gradients that are off by at most eps_n cost.

The paper's expansion drops the cross term -2 eta <delta, w - w*>. Its bound fails in two ways: for steps above 1 / L
errors are amplified beyond eta / (1 - q), and for small steps an early error costs in proportion to eps d, not eps^2.
"""

from collections.abc import Callable, Iterator
from functools import partial

import numpy as np

from rasp_lab.theory.claim import Claim, Trial
from rasp_lab.theory.descent import DescentConstants, draw_relative_step
from rasp_lab.theory.problems import Regime, draw_regime, quadratic_1d
from rasp_lab.theory.regret import printed_constant
from rasp_lab.theory.sandwich import upper
from rasp_tuner.base.numerics import Array

Errors = Callable[[int, Array], Array]  # (n, w_n - w*) -> delta_n


def printed_bound(descent: DescentConstants, distance: float, squares: float) -> float:
    """C_r + eta / (1 - q) sum eps_n^2."""
    return printed_constant(descent, distance) + descent.step / (1.0 - descent.q) * squares


def bound(descent: DescentConstants, distance: float, tilt: float, squares: float) -> float:
    """(1 + l/b) (G* d + L d^2/2) + (1/eta - mu)+ d^2/2 + (max(1/mu, eta)/2 + l/(2 b^2)) sum eps_n^2.

    Here b = 1/eta - L/2 > 0 and l = (L - 1/eta)+, which vanishes for steps up to 1 / L: what is left then of the
    last factor is 1 / (2 mu), and a constant error reaches it.
    """
    mu, smoothness, step = descent.mu, descent.smoothness, descent.step
    decrease, excess = 1.0 / step - smoothness / 2.0, max(smoothness - 1.0 / step, 0.0)
    first = upper(smoothness, distance, tilt) * (1.0 + excess / decrease)
    start = 0.5 * max(1.0 / step - mu, 0.0) * distance**2
    return first + start + (0.5 * max(1.0 / mu, step) + excess / (2.0 * decrease**2)) * squares


def descend(regime: Regime, descent: DescentConstants, start: Array, errors: Errors, steps: int) -> tuple[float, Array]:
    """Total regret of `steps` visits, and the squared error of the update after each [steps]."""
    point, regret, squares = start, 0.0, np.empty(steps)
    for n in range(steps):
        value, gradient = regime.look(point)
        error = errors(n, point - regime.minimiser)
        regret, squares[n] = regret + value, error @ error
        point = descent.move(point, gradient + error)
    return regret, squares


def measure(
    regime: Regime,
    descent: DescentConstants,
    start: Array,
    errors: Errors,
    steps: int,
    *,
    printed: bool,
    name: str = "",
) -> Trial:
    """The mended bound leaves out the last error, which no visit sees."""
    regret, squares = descend(regime, descent, start, errors, steps)
    distance = regime.distance(start)
    if printed:
        return Trial(regret, printed_bound(descent, distance, float(squares.sum())), name)
    return Trial(regret, bound(descent, distance, regime.tilt, float(squares[:-1].sum())), name)


def draw_errors(rng: np.random.Generator, dim: int) -> Errors:
    """Noise, a constant push, a push away from the minimiser, or one that rocks the state across it."""
    kind, size = int(rng.integers(4)), 10.0 ** rng.uniform(-3.0, 0.0)
    push = rng.normal(size=dim)
    push *= size / np.linalg.norm(push)
    kinds: tuple[Errors, ...] = (
        lambda _, x: rng.normal(size=x.shape) * size,
        lambda *_: push,
        lambda _, x: -min(1.0, size) * x,
        lambda n, _: push if n % 2 else -push,
    )
    return kinds[kind]


def _trials(rng: np.random.Generator, *, printed: bool) -> Iterator[Trial]:
    while True:
        dim = int(rng.integers(1, 4))
        # the printed bound is given interior minimisers, so that nothing but the errors can break it
        regime = draw_regime(rng, dim, interior=printed or bool(rng.integers(2)))
        descent = DescentConstants.on(regime, relative_step=draw_relative_step(rng))
        start, errors = rng.uniform(-1.0, 1.0, dim), draw_errors(rng, dim)
        yield measure(regime, descent, start, errors, int(rng.integers(2, 200)), printed=printed)


def outward_errors(*, printed: bool) -> Trial:
    """f = x^2/2, eta = 0.05, every error half of x and away from 0: the dropped term is all that matters."""
    regime = quadratic_1d(0.0)
    descent = DescentConstants.on(regime, relative_step=0.05)
    name = "x^2/2, eta = 0.05, errors of size x/2 outwards"
    return measure(regime, descent, np.ones(1), lambda _, x: -0.5 * x, 400, printed=printed, name=name)


def oscillating_errors(*, printed: bool) -> Trial:
    """f = x^2/2, eta = 1.9 / L, errors +-0.05 in step with the swing: amplified to |x| = 0.95."""
    regime = quadratic_1d(0.0)
    descent = DescentConstants.on(regime, relative_step=1.9)
    name = "x^2/2, eta = 1.9, errors +-0.05 in step with the swing"
    return measure(regime, descent, np.zeros(1), _with_the_swing, 400, printed=printed, name=name)


def constant_error() -> Trial:
    """Under a constant error f rests at eps^2 / (2 mu): the mended factor cannot be less."""
    regime = quadratic_1d(0.0)
    descent = DescentConstants.on(regime, relative_step=1.0)
    name = "x^2/2, eta = 1, constant error"
    return measure(regime, descent, np.zeros(1), lambda _, x: np.full_like(x, 0.5), 400, printed=False, name=name)


def _with_the_swing(_: int, x: Array) -> Array:
    return np.where(x >= 0.0, 0.05, -0.05)


CLAIMS = (
    Claim(
        "gradient error",
        "paper",
        "sum_n f(w_n) - f* <= C_r + eta/(1-q) sum eps_n^2",
        "interior minimiser, 0 < eta < 2/L",
        partial(_trials, printed=True),
        (partial(outward_errors, printed=True), partial(oscillating_errors, printed=True)),
    ),
    Claim(
        "gradient error",
        "mended",
        "sum_n f(w_n) - f* <= (1+l/b)(G* d + L d^2/2) + (1/eta-mu)+ d^2/2 + (max(1/mu,eta)/2 + l/(2b^2)) sum eps_n^2",
        "minimiser anywhere in Theta, 0 < eta < 2/L; b = 1/eta - L/2, l = (L - 1/eta)+",
        partial(_trials, printed=False),
        (partial(outward_errors, printed=False), partial(oscillating_errors, printed=False), constant_error),
    ),
)
