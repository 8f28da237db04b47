"""Beds: what the tuner is worth, in one command, beside the commit before. `python -m rasp_lab.beds --help`."""
