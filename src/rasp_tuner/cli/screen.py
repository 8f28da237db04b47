"""`rasp screen`: is the context in a log any good?"""

import json
from pathlib import Path
from typing import Annotated

import typer

from rasp_tuner.cli.common import app, one_line_errors, progress_bar
from rasp_tuner.screening import ContextReport

HELPS, SILENT = "#1b7f5c", "#9aa0a6"  # colours


@app.command("screen")
def screen_log(
    log: Annotated[Path, typer.Argument(help="CSV file with one run a row, in the order of time.")],
    context: Annotated[str, typer.Option(help="Columns that are context, with commas between.")],
    metrics: Annotated[str, typer.Option(help="Columns that are metrics, as in p99_ms:min,fps:max.")],
    params: Annotated[str, typer.Option(help="Columns that are parameters.")],
    plot: Annotated[Path | None, typer.Option(help="Picture to write, as in screen.png.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the report as JSON and nothing else.")] = False,
) -> None:
    """Say how much a context tells about the metrics beyond the parameters, before a tuner is given it.

    Example: rasp screen log.csv --context qps,payload_kb --metrics p99_ms:min --params pool,timeout_s --plot screen.png
    """
    with one_line_errors("bench"):
        from rasp_tuner.bench.domains.table import parse_metrics
        from rasp_tuner.screening import screen
        from rasp_tuner.screening.log import read

        weights = {name: 1.0 if direction == "min" else -1.0 for name, direction in parse_metrics(metrics)}
        found = read(log, _words(context), weights, _words(params))
        with progress_bar(hidden=as_json) as progress:
            task = progress.add_task("shifts", total=None)
            report = screen(
                found.contexts,
                found.points,
                found.losses,
                found.names,
                progress=lambda done, total: progress.update(task, completed=done, total=total),
            )
        if plot is not None:
            draw(report, plot)
        if as_json:
            typer.echo(json.dumps({**report.as_json(), "left_out": found.left_out}, indent=1))
            return
        typer.echo(str(report))
        if found.left_out:
            typer.echo(f"{found.left_out} rows lack a value and were left out.")
        if plot is not None:
            typer.echo(f"Picture: {plot}")


def _words(text: str) -> list[str]:
    return [word.strip() for word in text.split(",") if word.strip()]


def draw(report: ContextReport, path: Path) -> None:
    """Write what each dimension explains, and the true context among the shifted ones; the ending says which kind."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9.0, 1.8 + 0.25 * max(len(report.dimensions), 6)), layout="constrained")
    FigureCanvasAgg(figure)
    left, right = figure.subplots(1, 2)
    figure.suptitle(report.verdict.capitalize() + (f" (p = {report.p:.2f})" if report.p is not None else ""))
    shown = report.dimensions[::-1]
    colours = [HELPS if d.p <= report.level else SILENT for d in shown]
    left.barh([d.name for d in shown], [100.0 * d.share for d in shown], color=colours)
    left.set_xlim(0.0, 100.0)
    left.set_xlabel("% of squared error taken away, by itself")
    if report.shifted:
        right.hist(report.shifted, bins=30, color=SILENT, label="shifted")
        right.axvline(report.gain or 0.0, color=HELPS, linewidth=2.0, label="the context itself")
        right.legend()
    right.set_xlabel("gain in log likelihood, nats")
    right.set_ylabel("shifts")
    figure.savefig(path, dpi=130)
