"""`rasp tail`: watch a study in the terminal; without a terminal, one plain line for each update."""

import os
import queue
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from itertools import count as numbers
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from rasp_tuner.cli.common import app
from rasp_tuner.cli.remote import URL, Json, Key, Name, Url, ago, emit, pairs, plain, talking
from rasp_tuner.gain.versus_default import Gain

if TYPE_CHECKING:
    from rasp_tuner.client import Study

BARS, ASCII_BARS = "▁▂▃▄▅▆▇█", "_.-=+*%#"
PERIOD_S = 0.5  # between looks at the server
GIVE_UP_S = 60.0  # without a server
QUIET_S = 2.0  # without an update, until it says that it waits
SERIES = 5  # drawn at most
STYLES = {"told": "green", "failed": "red", "expired": "yellow", "pending": "cyan"}


@app.command("tail")
def tail(
    name: Name,
    count: Annotated[
        int | None,
        typer.Option(
            min=1, help="Stop after this many updates; by default never. The first is the latest step there is."
        ),
    ] = None,
    wait: Annotated[
        float | None, typer.Option(min=0.1, help="Stop after this many seconds without an update; not in a terminal.")
    ] = None,
    url: Url = URL,
    key: Key = None,
    as_json: Json = False,
) -> None:
    """Watch a study live: counts, errors, the latest suggestions and their reasons. Ctrl-C ends it.

    If the output is not a terminal, it prints one line for each update, at most five a second.

    Example: rasp tail checkout
    Example: rasp tail checkout --count 2 --wait 10 | cat
    """
    with talking(url, key, timeout=2.0) as client:
        study = client.study(name)
        try:
            if sys.stdout.isatty() and not as_json:
                _watch(study, count)
            else:
                _print(study, count, wait, as_json)
        except BrokenPipeError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # `| head` has seen enough
            raise typer.Exit(0) from None
        except KeyboardInterrupt:
            raise typer.Exit(0) from None


def _print(study: "Study", count: int | None, wait: float | None, as_json: bool) -> None:
    if not as_json:
        view = study.view()
        typer.echo(f"{view['name']}: {_counts(view)}; last event {ago(view['last_event_at'])}")
        if view["versus_default"] is not None:
            typer.echo(f"against the default: {plain(view['versus_default']['words'])}")
    told = ""
    for row in islice(_rows_in_time(study, wait), count):
        if as_json:
            emit(row)
        else:
            back = _back(row)
            typer.echo(_line(row) + (f"  {back}" if back != told else ""))
            told = back
        sys.stdout.flush()


def _rows_in_time(study: "Study", wait: float | None) -> Iterator[dict[str, Any]]:
    """Live rows until none came for `wait` seconds; None: for ever, and it says so when it begins to wait."""
    arrived: queue.SimpleQueue[dict[str, Any] | Exception] = queue.SimpleQueue()
    stopped = threading.Event()

    def read() -> None:
        try:
            for row in _rows(study, stopped):
                arrived.put(row)
        except Exception as error:  # noqa: BLE001 - raised where the rows are used
            arrived.put(error)

    threading.Thread(target=read, daemon=True).start()
    quiet: float | None = QUIET_S if wait is None else wait
    try:
        while True:
            try:
                row = arrived.get(timeout=quiet)
            except queue.Empty:
                if wait is not None:
                    return
                typer.echo("rasp: waiting for the next step; Ctrl-C ends it, and so does --wait SECONDS", err=True)
                quiet = None
                continue
            if isinstance(row, Exception):
                raise row
            yield row
    finally:
        stopped.set()


def _rows(study: "Study", stopped: threading.Event) -> Iterator[dict[str, Any]]:
    """Live rows, also over restarts of the server."""
    from rasp_tuner.client import ServerUnavailable

    heard = time.monotonic()
    while not stopped.is_set():
        try:
            for row in study.live():
                heard = time.monotonic()
                yield row
        except ServerUnavailable:
            if time.monotonic() - heard > GIVE_UP_S:
                raise
        if not stopped.wait(2 * PERIOD_S):
            typer.echo("rasp: the server is gone, trying again", err=True)


def _line(row: dict[str, Any]) -> str:
    """12:00:01  step 41  error 0.123  p99_ms=181.2  pool=8  fast"""
    if "step" not in row:
        return f"nothing learned yet: {row['asks']:,} asks"
    at = time.strftime("%H:%M:%S", time.localtime(row["at"]))
    error = "" if row["error"] is None else f"error {row['error']:.4g}"
    came = "FAILED" if row["failed"] else pairs(row["metrics"])
    late = "late" if row["late"] else ""
    words = (at, f"step {row['step']}", error, came, pairs(row["params"]), row["path"], late)
    return "  ".join(word for word in words if word)


def _back(row: dict[str, Any]) -> str:
    """That the situation of this step is one that returned; "" if it is not."""
    returned = row.get("returned")  # not of a server of an earlier version
    if returned is None or returned["regime"] != row.get("regime"):
        return ""
    return f"returned: {plain(returned['words'])}"


def _watch(study: "Study", count: int | None) -> None:
    """Redraw until stopped; the last picture stays on the terminal."""
    from rasp_tuner.client import ServerUnavailable

    console = Console()
    picture: RenderableType = Text(f"waiting for {study.name}")
    heard = time.monotonic()
    try:
        with Live(picture, console=console, auto_refresh=False, screen=True) as live:
            for drawn in numbers(1):
                try:
                    picture = _screen(study, console)
                    heard = time.monotonic()
                    live.update(picture, refresh=True)
                except ServerUnavailable as error:
                    if time.monotonic() - heard > GIVE_UP_S:
                        raise
                    live.update(Group(Text(plain(error), style="bold red"), picture), refresh=True)
                if drawn == count:
                    break
                time.sleep(PERIOD_S)
    finally:
        console.print(picture)


def _screen(study: "Study", console: Console) -> RenderableType:
    """Everything about a study that fits on the terminal."""
    view = study.view()
    history = study.history(min(max(console.width - 20, 10), 1000))
    state = Text(" frozen ", style="black on cyan") if view["frozen"] else Text("exploring", style="green")
    head = Table.grid(expand=True)
    head.add_column()
    head.add_column(justify="right")
    title = Text.assemble((view["name"], "bold"), "  ", state)
    head.add_row(title, Text(f"last event {ago(view['last_event_at'])}", style="dim"))
    versus = view["versus_default"]
    gain = [] if versus is None else [Text(f"Against the default: {plain(versus['words'])}.", style=_colour(versus))]
    back = [Text(f"returned: {plain(one['words'])}") for one in history.get("situations", ()) if one["words"]]
    parts: list[RenderableType] = [head, Text(_counts(view)), *gain, *back, Text()]
    parts += [_series(history, view, console), Text()]
    room = (
        console.height
        - 7
        - sum(-(-line.cell_len // console.width) for line in (*gain, *back))
        - min(1 + len(view["metrics"]), SERIES)
    )
    parts += _suggestions(study, console.width, room)
    return Group(*parts)


def _colour(versus: dict[str, Any]) -> str:
    outcome = "open" if versus["gain"] is None else Gain.from_json(versus["gain"]).outcome
    return {"better": "green", "worse": "red", "open": ""}[outcome]


def _counts(view: dict[str, Any]) -> str:
    names = ["asks", "tells", "failures", "observations", "pending", "late", "expired"]
    return "  ".join(f"{name} {view[name]:,}" for name in names if view[name] or name in ("asks", "tells", "pending"))


def _series(history: dict[str, Any], view: dict[str, Any], console: Console) -> RenderableType:
    """Error and metrics as sparklines, the newest values at the right, with the latest value and the range."""
    bars = BARS if "utf" in console.encoding.lower() else ASCII_BARS
    rows = []
    for name in ["error", *(f"metric:{metric}" for metric in view["metrics"])][:SERIES]:
        drawn = history["series"][name]
        if drawn["mean"]:
            label, span = (
                plain(name.removeprefix("metric:"))[:16],
                f"{min(drawn['min']):.4g} to {max(drawn['max']):.4g}",
            )
            rows.append((label, drawn["mean"], f"{drawn['mean'][-1]:.4g}", span))
    if not rows:
        return Text("nothing learned yet", style="dim")
    taken = sum(max(len(row[i]) for row in rows) + 2 for i in (0, 2, 3))
    table = Table.grid(padding=(0, 2))
    for style in ("", "cyan", "bold", "dim"):
        table.add_column(style=style, justify="right" if style == "bold" else "left", no_wrap=True)
    for label, means, latest, span in rows:
        table.add_row(Text(label), sparkline(means[-max(console.width - taken, 8) :], bars), latest, span)
    return table


def sparkline(values: Sequence[float], bars: str = BARS) -> str:
    """One character a value; a few outliers do not flatten the rest.

    >>> sparkline([1.0, 2.0, 3.0, 4.0])
    '▁▃▆█'
    """
    ordered, edge = sorted(values), len(values) // 20
    low, high = ordered[edge], ordered[-1 - edge]
    width = high / 2 - low / 2  # halves: the difference itself may overflow
    scale = [(value / 2 - low / 2) / width if width > 0 else 0.0 for value in values]
    return "".join(bars[round(min(max(share, 0.0), 1.0) * (len(bars) - 1))] for share in scale)


def _suggestions(study: "Study", width: int, room: int) -> list[RenderableType]:
    """The newest suggestions, as many as fit into `room` lines."""
    found: list[RenderableType] = []
    for suggestion in study.suggestions(20):
        status = suggestion["status"]
        came = pairs(suggestion["metrics"]) if "metrics" in suggestion else ""
        head = Text.assemble(
            (suggestion["id"], "bold"),
            "  ",
            (status, STYLES.get(status, "")),
            "  ",
            pairs(suggestion["context"]),
            "  ->  ",
            (pairs(suggestion["params"]), "bold"),
            f"  ran {pairs(suggestion['ran'])}" if "ran" in suggestion else "",
            "  ",
            came,
        )
        why = Text(plain(suggestion["explanation"] or "so old that its reasons are gone"), style="dim")
        indented = Padding(why, (0, 0, 0, 2))
        room -= (
            -(-head.cell_len // width) + -(-why.cell_len // max(width - 2, 1)) + 1
        )  # wrapped; words may need one more
        if room < 0 and found:
            break
        found += [head, indented]
    return found or [Text("no suggestion yet", style="dim")]
