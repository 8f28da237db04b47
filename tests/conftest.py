"""Shared settings and builders of the test suite."""

import numpy as np
from hypothesis import settings

settings.register_profile("suite", deadline=None, derandomize=True, max_examples=200)
settings.load_profile("suite")

np.seterr(all="raise", under="ignore")  # an overflow or an invalid operation inside the library is a failure
