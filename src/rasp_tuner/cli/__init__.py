"""The `rasp` commands: each parses its options, calls the library and prints. One file for each group of commands."""

from typing import Annotated

import typer

from rasp_tuner import __version__
from rasp_tuner.cli import approve as approve
from rasp_tuner.cli import doctor as doctor
from rasp_tuner.cli import export as export
from rasp_tuner.cli import forget as forget
from rasp_tuner.cli import lab as lab
from rasp_tuner.cli import mcp as mcp
from rasp_tuner.cli import report as report
from rasp_tuner.cli import serve as serve
from rasp_tuner.cli import show as show
from rasp_tuner.cli import stream as stream
from rasp_tuner.cli import study as study
from rasp_tuner.cli import tune as tune
from rasp_tuner.cli import watch as watch
from rasp_tuner.cli.common import app as app
from rasp_tuner.cli.common import echo

PANELS = {
    "Start here": ("tune", "watch", "serve"),
    "Look": ("report", "show", "what-if", "export"),
    "Studies of a server": ("ask", "tell", "approve", "refuse", "stream", "mcp", "study", "keys", "doctor", "version"),
}
LABORATORY = "Laboratory"  # all other commands


def _print_version(wanted: bool) -> None:
    if wanted:
        echo(__version__)
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
    echo(__version__)


lab.add_commands()


def _arrange() -> None:
    """Commands in panels, what a new user needs first."""
    places = {name: (panel, i) for panel, names in PANELS.items() for i, name in enumerate(names)}
    order = [*PANELS, LABORATORY]
    for command in app.registered_commands:
        command.rich_help_panel = places.get(str(command.name), (LABORATORY, 0))[0]
    for group in app.registered_groups:
        group.rich_help_panel = places.get(str(group.name), (LABORATORY, 0))[0]
    app.registered_commands.sort(
        key=lambda info: (order.index(str(info.rich_help_panel)), places.get(str(info.name), ("", 0))[1])
    )


_arrange()
