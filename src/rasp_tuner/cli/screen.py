"""`rasp screen`: does the context in a log help to predict the metrics?"""

import json
from pathlib import Path
from typing import Annotated

import typer

from rasp_tuner.cli.common import Json, app, busy, echo, one_line_errors, say
from rasp_tuner.cli.lists import parse_metrics, words


@app.command("screen")
def screen_log(
    log: Annotated[Path, typer.Argument(help="CSV file with one row for each run, oldest first.")],
    context: Annotated[str, typer.Option(help="Context columns, separated by commas.")],
    metrics: Annotated[str, typer.Option(help="Metric columns, such as p99_ms:min,fps:max.")],
    params: Annotated[str, typer.Option(help="Parameter columns, separated by commas.")],
    as_json: Json = False,
) -> None:
    """Test whether the context in a log helps to predict the metrics, before you give it to a tuner.

    Example: rasp screen log.csv --context qps,codec --metrics p99_ms:min --params pool,timeout_s
    """
    with one_line_errors("rasp-tuner[cli]"):
        from rasp_tuner.context_report import screen
        from rasp_tuner.context_report.log import read

        weights = {name: 1.0 if direction == "min" else -1.0 for name, direction in parse_metrics(metrics)}
        with busy(f"reading {log}"):
            found = read(log, words(context), weights, words(params))
        say(f"testing the context on {len(found.losses):,} rows", as_json)
        report = screen(found.contexts, found.points, found.losses, found.names)
        if as_json:
            echo(json.dumps({**report.as_json(), "left_out": found.left_out}, indent=1))
            return
        echo(str(report))
        if found.left_out:
            echo(f"Rows left out because a value is missing: {found.left_out}")
