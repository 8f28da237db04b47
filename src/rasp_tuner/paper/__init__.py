"""Preset `paper`: Algorithm 1 of the paper and its parts, to the letter (docs/PAPER.md)."""
