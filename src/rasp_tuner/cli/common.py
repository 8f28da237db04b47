"""What all commands share: the application, flags, one-line errors, and signs of life while something takes time."""

import csv
import os
import signal
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import FrameType
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape

from rasp_tuner.base.checks import printable, show
from rasp_tuner.cli.extras import EXTRAS, requirement_of
from rasp_tuner.errors import InvalidValue, JournalError, RaspError, TuningStopped

POSIX_MODULES = ("fcntl", "resource")  # of the standard library, not on Windows: serve, tune and watch need them

app = typer.Typer(
    help="""RASP-Tuner: an online optimizer that uses context and remembers what worked.

    Example: rasp tune --knob level=int:1..9 --default level=6 --metric time_s -- gzip -kf -{level} big.log
    """,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


def flag(name: str, help: str) -> Any:
    """An option without a value, shown as `--json` in the help."""
    return typer.Option(name, help=help, metavar="")  # without a metavar the help says `--json <bool>`


Json = Annotated[bool, flag("--json", "Print JSON and nothing else.")]


@contextmanager
def one_line_errors(requirement: str, extras: Mapping[str, str] = EXTRAS) -> Iterator[None]:
    """Errors that a user can fix become one line on stderr; all others are bugs and keep their traceback.

    `requirement` is what to install for a missing package that is not in `extras`.
    """
    try:
        yield
    except (RaspError, OSError) as error:
        raise typer.Exit(complain(error)) from error
    except ModuleNotFoundError as error:
        if error.name is None or error.name.startswith("rasp_"):
            raise
        if error.name in POSIX_MODULES:
            said = "this command needs Linux or macOS; on Windows the library, fleets and the client work"
            raise typer.Exit(complain(said)) from error
        install = f"pip install '{requirement_of(error.name, requirement, extras)}'"
        raise typer.Exit(complain(f"this command needs {error.name}, which is not installed: {install}")) from error


def complain(error: Exception | str) -> int:
    """Print an error on stderr and return the exit status: on one line, unless it quotes what a program said."""
    several = isinstance(error, (TuningStopped, JournalError))
    echo(f"rasp: {error if several else printable(str(error))}", err=True)
    return 1


def echo(text: object = "", err: bool = False) -> None:
    """Print lines, without escape sequences: names, values and reasons may come from a file or a server.

    All commands print by this function; what must stay on one line goes through `printable` before.
    """
    try:
        typer.echo("\n".join(map(printable, str(text).split("\n"))), err=err)
    except BrokenPipeError as error:  # the reader has seen enough, as `head` has
        os.dup2(os.open(os.devnull, os.O_WRONLY), (sys.stderr if err else sys.stdout).fileno())
        raise typer.Exit(1) from error


@contextmanager
def busy(what: str) -> Iterator[None]:
    """Show a spinner while packages load or files are read. It leaves no trace, and a pipe sees nothing of it."""
    with Console(stderr=True).status(escape(printable(f"{what} ..."))):  # a path may hold brackets
        yield


def say(what: str, as_json: bool = False) -> None:
    """Print on stderr what takes time now; with --json only if somebody watches."""
    if not as_json or sys.stderr.isatty():
        echo(what, err=True)


class EndingSignals:
    """Ctrl-C, SIGTERM and a terminal that closes end the program at the next safe moment; a second one at once."""

    def __init__(self) -> None:
        self.seen = 0
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._note)
        if signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:  # as under nohup
            signal.signal(signal.SIGHUP, self._note)

    def _note(self, number: int, frame: FrameType | None) -> None:
        del frame
        if self.seen:
            raise KeyboardInterrupt
        self.seen = number


def words(text: str) -> tuple[str, ...]:
    """The words between commas; one that has a comma in it stands in quotes.

    >>> words('threads, "size, MB"')
    ('threads', 'size, MB')
    """
    try:
        row = next(csv.reader([text], skipinitialspace=True, strict=True), [])
    except csv.Error as reason:
        raise InvalidValue(f"{show(text)} cannot be split at its commas: {reason}") from reason
    return tuple(word.strip() for word in row if word.strip())
