"""Shared settings and builders of the test suite. RASP_TEST_EXAMPLES=1000 looks longer for counterexamples."""

import os

import numpy as np
from hypothesis import settings

settings.register_profile(
    "suite", deadline=None, derandomize=True, max_examples=int(os.environ.get("RASP_TEST_EXAMPLES", "60"))
)
settings.load_profile("suite")

# Tests start many servers and commands: without stored bytecode each compiles all of our files first.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

np.seterr(all="raise", under="ignore")  # an overflow or an invalid operation inside the library is a failure
