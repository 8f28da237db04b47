"""Commands of other packages, by entry points; without the laboratory, its commands say what to install."""

from collections.abc import Callable
from importlib.metadata import entry_points

import typer

from rasp_tuner.cli.common import app, complain

GROUP = "rasp_tuner.commands"  # an entry point names a module, which adds its commands to `app` when it is imported
LAB_COMMANDS = ("demo", "bench", "bench-report", "results", "theory")


def add_commands() -> None:
    """Load the commands of the packages that are installed."""
    for point in entry_points(group=GROUP):
        point.load()
    there = {command.name for command in app.registered_commands}
    for name in LAB_COMMANDS:
        if name not in there:
            any_words = {"allow_extra_args": True, "ignore_unknown_options": True}
            app.command(name, hidden=True, context_settings=any_words, add_help_option=False)(_missing(name))


def _missing(name: str) -> Callable[[], None]:
    def say_what_to_install() -> None:
        raise typer.Exit(complain(f"`rasp {name}` is a command of the laboratory: pip install rasp-lab"))

    return say_what_to_install
