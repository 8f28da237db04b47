"""Log lines for a terminal, without the escape sequences of what they quote."""

import logging
import sys

from rasp_tuner.base.checks import printable


class PrintableFormatter(logging.Formatter):
    """Escapes every line of a record; tracebacks keep their lines."""

    def format(self, record: logging.LogRecord) -> str:
        return "\n".join(map(printable, super().format(record).split("\n")))


def log_to_terminal(level: int, form: str, times: str | None = None) -> None:
    """Log to stderr in this form, with times in that one, unless something logs already."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(PrintableFormatter(form, times))
    logging.basicConfig(level=level, handlers=[handler])
