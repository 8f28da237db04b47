"""Proof on real systems: agents in turns on the same work, against the shipped defaults."""
