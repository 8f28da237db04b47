"""The paper's theory as something to run: each claim with its assumptions, its bound and what was measured of it.

A file a claim. `suite.run()` measures all; docs/THEORY.md has the proofs. Nothing here is used by the tuner.
"""
