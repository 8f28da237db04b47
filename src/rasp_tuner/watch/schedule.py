"""Which steps run the default, so that suggestions can be compared with it: some of every block, in random order.

A fixed rhythm could fall in step with the load, such as every fourth quarter of an hour. The draw is a function of
seed, mode and block alone, so a study that is continued goes on with it.
"""

from fractions import Fraction

import numpy as np

LONGEST_BLOCK = 50


def runs_suggestion(step: int, share: float, seed: int, mode: str) -> bool:
    """Whether this step runs a suggestion and not the default; of every block exactly the share does.

    >>> sum(runs_suggestion(step, 0.25, 0, "canary") for step in range(40))
    10
    """
    exact = Fraction(share).limit_denominator(LONGEST_BLOCK)
    if exact in (0, 1):
        return exact == 1
    block, place = divmod(step, exact.denominator)
    rng = np.random.default_rng([seed, block, *mode.encode()])
    return int(np.flatnonzero(rng.permutation(exact.denominator) == place)[0]) < exact.numerator
