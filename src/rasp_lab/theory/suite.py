"""All claims in the paper's order, run together."""

from collections.abc import Iterator

from rasp_lab.theory import composer, descent, ema, gradient_error, misretrieval, noisy, regret, retrieval, sandwich
from rasp_lab.theory import weights as soft
from rasp_lab.theory.claim import Claim, Outcome, examine
from rasp_tuner.base.checks import whole

CLAIMS: tuple[Claim, ...] = (
    *composer.CLAIMS,
    *ema.CLAIMS,
    *retrieval.CLAIMS,
    *noisy.CLAIMS,
    *soft.CLAIMS,
    *descent.CLAIMS,
    *sandwich.CLAIMS,
    *regret.CLAIMS,
    *misretrieval.CLAIMS,
    *gradient_error.CLAIMS,
)


def run(seed: int = 0) -> Iterator[Outcome]:
    """Every claim on its named and its random instances, one after the other."""
    whole("seed", seed, 0, 2**32 - 1)
    for claim in CLAIMS:
        yield examine(claim, seed)
