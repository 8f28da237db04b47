"""Beds: what the tuner is worth, in one command, beside the commit before. `python -m benchmarks.beds --help`."""
