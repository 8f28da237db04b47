"""`rasp watch`: tune a running system by what Prometheus knows of it."""

import logging
import signal
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from rasp_tuner.base.terminal_log import log_to_terminal
from rasp_tuner.cli.common import EndingSignals, app, echo, flag, one_line_errors

ROLLED_BACK = 3  # exit status


@app.command("watch")
def watch_command(
    file: Annotated[Path, typer.Argument(help="The study file, such as study.toml.", show_default=False)],
    mode: Annotated[
        str | None, typer.Option(help="shadow, canary or live; by default the file's.", show_default=False)
    ] = None,
    check: Annotated[
        bool, flag("--check", "Ask every query once, show what would be written, change nothing.")
    ] = False,
    steps: Annotated[
        int | None, typer.Option(help="Steps to try; by default it goes on.", min=1, show_default=False)
    ] = None,
    resume: Annotated[bool, flag("--resume", "Try suggestions again after a rollback.")] = False,
    prometheus: Annotated[
        str | None, typer.Option(help="Address of Prometheus, in the place of the file's.", show_default=False)
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Folder of the study; by default rasp-watch/NAME.", show_default=False)
    ] = None,
    fresh: Annotated[bool, flag("--fresh", "Start over; an old journal is set aside.")] = False,
    quiet: Annotated[bool, flag("--quiet", "Only warnings and errors.")] = False,
) -> None:
    """Tune a running system: contexts and metrics from Prometheus, parameters to files, hooks or commands.

    Begin with --check, then --mode shadow, canary, live. The same command goes on after any stop.

    Exit status: 0 done; 1 an error, or no step could be measured; 3 rolled back; 130 stopped by Ctrl-C.

    Example: rasp watch study.toml --mode shadow
    """
    level = logging.WARNING if quiet else logging.INFO
    log_to_terminal(level, "%(asctime)s %(levelname)-7s %(message)s", "%H:%M:%S")
    with one_line_errors("rasp-tuner[cli]"):
        from rasp_tuner.watch import check_study, read_study, watch
        from rasp_tuner.watch.http_call import check_url
        from rasp_tuner.watch.study import check_mode_word

        study = read_study(file)
        chosen = study.mode if mode is None else check_mode_word(mode)
        if prometheus is not None:
            url = check_url("--prometheus", prometheus).rstrip("/")
            study = replace(study, prometheus=replace(study.prometheus, url=url))
        if check:
            found = check_study(study, chosen)
            echo(str(found))
            raise typer.Exit(1 if found.problems else 0)
        signals = EndingSignals()
        result = watch(
            study, mode=chosen, steps=steps, folder=out, fresh=fresh, resume=resume, stopping=lambda: bool(signals.seen)
        )
        if signals.seen == signal.SIGINT:
            raise typer.Exit(130)
        if result.rolled_back:
            raise typer.Exit(ROLLED_BACK)
        raise typer.Exit(0 if result.measured or not result.tried or result.stopped else 1)
