"""`rasp screen`: does the context in a log help to predict the metrics?"""

import json
from pathlib import Path
from typing import Annotated

import typer

from rasp_tuner.cli.common import Json, app, busy, echo, late_progress, one_line_errors, say
from rasp_tuner.cli.lists import parse_metrics, words
from rasp_tuner.context_report import ContextReport
from rasp_tuner.errors import InvalidValue

HELPS, SILENT = "#1b7f5c", "#9aa0a6"  # colours
LONGEST = 24  # characters of a name in the picture


@app.command("screen")
def screen_log(
    log: Annotated[Path, typer.Argument(help="CSV file with one row for each run, oldest first.")],
    context: Annotated[str, typer.Option(help="Context columns, separated by commas.")],
    metrics: Annotated[str, typer.Option(help="Metric columns, such as p99_ms:min,fps:max.")],
    params: Annotated[str, typer.Option(help="Parameter columns, separated by commas.")],
    plot: Annotated[Path | None, typer.Option(help="Picture to write, such as screen.png (needs Matplotlib).")] = None,
    as_json: Json = False,
) -> None:
    """Test whether the context in a log helps to predict the metrics, before you give it to a tuner.

    Example: rasp screen log.csv --context qps,payload_kb --metrics p99_ms:min --params pool,timeout_s --plot screen.png
    """
    with one_line_errors("rasp-tuner[plot]"):
        from rasp_tuner.context_report import screen
        from rasp_tuner.context_report.log import read

        if plot is not None:
            _check_ending(plot)
        weights = {name: 1.0 if direction == "min" else -1.0 for name, direction in parse_metrics(metrics)}
        with busy(f"reading {log}"):
            found = read(log, words(context), weights, words(params))
        say(f"testing the context on {len(found.losses):,} rows", as_json)
        with late_progress("shifted contexts") as progress:
            report = screen(found.contexts, found.points, found.losses, found.names, progress=progress)
        if plot is not None:
            with busy(f"drawing {plot}"):
                draw(report, plot)
        if as_json:
            echo(json.dumps({**report.as_json(), "left_out": found.left_out}, indent=1))
            return
        echo(str(report))
        if found.left_out:
            echo(f"Rows left out because a value is missing: {found.left_out}")
        if plot is not None:
            echo(f"Picture: {plot}")


def _check_ending(path: Path) -> None:
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    known = sorted(FigureCanvasAgg.get_supported_filetypes())
    if path.suffix.lower().lstrip(".") not in known:
        raise InvalidValue(f"plot must end in one of {', '.join(known)}, such as screen.png, got {str(path)!r}")


def draw(report: ContextReport, path: Path) -> None:
    """Write a picture: what each dimension explains, and the true context among the shifted ones."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9.0, 1.8 + 0.25 * max(len(report.dimensions), 6)), layout="constrained")
    FigureCanvasAgg(figure)
    if report.p is None:
        figure.text(0.5, 0.5, report.words, ha="center", va="center", wrap=True)
        figure.savefig(path, dpi=130)
        return
    left, right = figure.subplots(1, 2)
    figure.suptitle(f"Verdict: {report.verdict} (p = {report.p:.2f}, {report.samples} samples)")
    shown = report.dimensions[::-1]
    colours = [HELPS if d.p <= report.level else SILENT for d in shown]
    rows = range(len(shown))
    bars = left.barh(rows, [100.0 * d.share for d in shown], color=colours)
    left.set_yticks(rows, [_short(d.name) for d in shown])
    left.bar_label(bars, [f"{d.share:.0%}, p = {d.p:.2f}" for d in shown], padding=3, fontsize="small")
    left.set_xlim(0.0, 135.0)  # room for the labels
    left.set_xticks(range(0, 101, 20))
    left.set_xlabel("% of squared error taken away, by itself")
    right.hist(report.shifted, bins=30, color=SILENT, label="shifted contexts")
    right.axvline(report.gain or 0.0, color=HELPS, linewidth=2.0, label="the context itself")
    right.legend(loc="upper center")
    right.set_xlabel("gain in log likelihood, nats")
    right.set_ylabel("shifts")
    for axes in (left, right):
        axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=130)


def _short(name: str) -> str:
    return name if len(name) <= LONGEST else f"{name[: LONGEST - 1]}…"
