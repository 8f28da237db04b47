"""The `rasp` commands: thin; parse, call, print. One file a group of commands."""

import typer

from rasp_tuner import __version__
from rasp_tuner.cli import bench as bench
from rasp_tuner.cli import forget as forget
from rasp_tuner.cli import screen as screen
from rasp_tuner.cli import serve as serve
from rasp_tuner.cli import study as study
from rasp_tuner.cli import tail as tail
from rasp_tuner.cli import theory as theory
from rasp_tuner.cli.common import app as app


@app.callback()
def common() -> None:
    """Commands share no options; each has its own --help with an example."""


@app.command("version")
def show_version() -> None:
    """Print the version.

    Example: rasp version
    """
    typer.echo(__version__)
