"""The `rasp` commands: each parses its options, calls the library and prints. One file for each group of commands."""

from typing import Annotated

import typer

from rasp_tuner import __version__
from rasp_tuner.cli import approve as approve
from rasp_tuner.cli import export as export
from rasp_tuner.cli import forget as forget
from rasp_tuner.cli import lab as lab
from rasp_tuner.cli import mcp as mcp
from rasp_tuner.cli import screen as screen
from rasp_tuner.cli import serve as serve
from rasp_tuner.cli import show as show
from rasp_tuner.cli import study as study
from rasp_tuner.cli import tail as tail
from rasp_tuner.cli import tune as tune
from rasp_tuner.cli import watch as watch
from rasp_tuner.cli import what_if as what_if
from rasp_tuner.cli.common import app as app


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(__version__)
        raise typer.Exit


@app.callback()
def common(
    version: Annotated[
        bool,
        typer.Option(
            "--version", help="Print the version and exit.", metavar="", callback=_print_version, is_eager=True
        ),
    ] = False,
) -> None:
    """Options of `rasp` itself; every command has its own --help with an example."""


@app.command("version")
def show_version() -> None:
    """Print the version.

    Example: rasp version
    """
    typer.echo(__version__)


lab.add_commands()
