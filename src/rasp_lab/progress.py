"""A bar for long work, on stderr."""

import sys

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn


def progress_bar(as_json: bool = False) -> Progress:
    """A bar with the time left; with --json only if somebody watches."""
    columns = (TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    return Progress(*columns, console=Console(stderr=True), disable=as_json and not sys.stderr.isatty())
