"""`rasp tail`: one line for each step of a study, as it happens."""

import os
import sys
import time
from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rasp_tuner.cli.common import app, echo
from rasp_tuner.cli.remote import URL, Json, Key, Name, Url, ago, emit, pairs, plain, talking

if TYPE_CHECKING:
    from rasp_tuner.client import Study

TRY_AGAIN_S = 1.0  # after the server has gone
GIVE_UP_S = 60.0  # without a server


@app.command("tail")
def tail(
    name: Name,
    count: Annotated[
        int | None,
        typer.Option(
            min=1, help="Stop after this many updates; by default never. The first is the latest step there is."
        ),
    ] = None,
    url: Url = URL,
    key: Key = None,
    as_json: Json = False,
) -> None:
    """Print a line for each step of a study as it happens, at most five a second. Ctrl-C ends it.

    The dashboard of the server draws the same.

    Example: rasp tail checkout
    Example: rasp tail checkout --count 2 | cat
    """
    with talking(url, key, timeout=2.0) as client:
        study = client.study(name)
        try:
            _print(study, count, as_json)
        except BrokenPipeError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # `| head` has seen enough
            raise typer.Exit(0) from None
        except KeyboardInterrupt:
            raise typer.Exit(0) from None


def _print(study: "Study", count: int | None, as_json: bool) -> None:
    if not as_json:
        view = study.view()
        echo(f"{view['name']}: {_counts(view)}; last event {ago(view['last_event_at'])}")
        if view["versus_default"] is not None:
            echo(f"against the default: {plain(view['versus_default']['words'])}")
    told = ""
    for row in islice(_rows(study), count):
        if as_json:
            emit(row)
        else:
            back = _back(row)
            echo(_line(row) + (f"  {back}" if back != told else ""))
            told = back
        sys.stdout.flush()


def _rows(study: "Study") -> Iterator[dict[str, Any]]:
    """Live rows, also over restarts of the server."""
    from rasp_tuner.client import ServerUnavailable

    heard = time.monotonic()
    while True:
        try:
            for row in study.live():
                heard = time.monotonic()
                yield row
        except ServerUnavailable:
            if time.monotonic() - heard > GIVE_UP_S:
                raise
        time.sleep(TRY_AGAIN_S)
        echo("rasp: the server is gone, trying again", err=True)


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
    returned = row["returned"]
    if returned is None or returned["regime"] != row.get("regime"):
        return ""
    return f"returned: {plain(returned['words'])}"


def _counts(view: dict[str, Any]) -> str:
    names = ["asks", "tells", "failures", "observations", "pending", "late", "expired"]
    return "  ".join(f"{name} {view[name]:,}" for name in names if view[name] or name in ("asks", "tells", "pending"))
