"""The laboratory: what measures RASP-Tuner. It imports the product `rasp_tuner`, never the other way round."""

from pathlib import Path

HERE = Path(__file__).resolve().parent  # also where it was imported through a link (checkouts.py)
REPOSITORY = HERE.parents[1]  # of a clone, which some commands need: they read other commits, or write pages
