"""What the laboratory's commands share: their place in the help, and errors that name what to install."""

from contextlib import AbstractContextManager

from rasp_lab.extras import EXTRAS
from rasp_tuner.cli.common import one_line_errors

PANEL = "Laboratory (rasp-lab)"


def lab_errors() -> AbstractContextManager[None]:
    """Errors that a user can fix become one line; what a missing package asks for is an extra of rasp-lab."""
    return one_line_errors("rasp-lab", EXTRAS)
