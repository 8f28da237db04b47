"""What tests of families share."""

import numpy as np

from rasp_tuner.engine.family import RunOutcome


def teach(family, point, context, losses, failed=False, weights=None):
    """Have a family learn a sample as the engine does: with what it believed and forecast just before."""
    belief = family.believe(context) if family.samples else None
    y = float(losses @ (np.ones(len(losses)) if weights is None else weights))
    forecast = belief.forecast(point, y) if family.samples >= 2 else None
    family.learn(RunOutcome(point, context, losses, failed), belief, forecast)
