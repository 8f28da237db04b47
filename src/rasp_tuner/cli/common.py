"""What all commands share: the application, and errors said in one line."""

from collections.abc import Iterator
from contextlib import contextmanager

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from rasp_tuner.errors import RaspError

app = typer.Typer(
    help="RASP-Tuner: the online, context-aware optimizer that remembers.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


@contextmanager
def one_line_errors(extra: str) -> Iterator[None]:
    """Errors a user can mend are said in one line; everything else is a bug and keeps its traceback.

    `extra` is the one to install when a package is missing.
    """
    try:
        yield
    except (RaspError, OSError) as error:
        raise typer.Exit(complain(error)) from error
    except ModuleNotFoundError as error:
        if error.name is None or error.name.startswith("rasp_tuner"):
            raise
        mend = f"this command needs {error.name}, which is not installed: pip install 'rasp-tuner[{extra}]'"
        raise typer.Exit(complain(mend)) from error


def complain(error: Exception | str) -> int:
    """Say what went wrong in one line and give the exit status."""
    typer.echo(f"rasp: {error}", err=True)
    return 1


def progress_bar(hidden: bool = False) -> Progress:
    """A bar on stderr, with what is left to do."""
    columns = (TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    return Progress(*columns, console=Console(stderr=True), disable=hidden)
