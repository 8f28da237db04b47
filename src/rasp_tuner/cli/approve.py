"""`rasp approve` and `rasp refuse`: what a person says to suggestions that wait."""

from typing import Annotated, Any

import typer

from rasp_tuner.cli.common import app, echo
from rasp_tuner.cli.remote import URL, Json, Key, Name, Url, ago, emit, pairs, plain, shown, talking
from rasp_tuner.study_file.fields import seconds

Waiting = Annotated[str, typer.Argument(help="Id of a suggestion that waits, as w4.", show_default=False)]


@app.command("approve")
def approve(
    name: Name,
    id: Annotated[
        str | None, typer.Argument(help="Id of a suggestion that waits, as w4; without it all are listed.")
    ] = None,
    url: Url = URL,
    key: Key = None,
    as_json: Json = False,
) -> None:
    """List the suggestions that wait for a person, or let one run at the next ask in its situation.

    Example: rasp approve checkout
    Or: rasp approve checkout w4
    """
    with talking(url, key) as client:
        study = client.study(name, default={})
        if id is None:
            _list(name, study.waiting(), as_json)
            return
        study.approve(id)
        if as_json:
            emit({"id": id, "status": "approved"})
        else:
            echo(f"{plain(id)} is approved: it runs at the next ask in its situation")


@app.command("refuse")
def refuse(
    name: Name,
    id: Waiting,
    for_: Annotated[str, typer.Option("--for", help="How long it is not suggested again, as 30m or 24h.")] = "24h",
    url: Url = URL,
    key: Key = None,
    as_json: Json = False,
) -> None:
    """Refuse a suggestion that waits: neither it nor nearly the same is put up again for a while.

    Example: rasp refuse checkout w4 --for 48h
    """
    with talking(url, key) as client:
        client.study(name, default={}).refuse(id, seconds("--for", for_))
        if as_json:
            emit({"id": id, "status": "refused"})
        else:
            echo(f"{plain(id)} is refused for {plain(for_)}: what ran before goes on")


def _list(name: str, waiting: list[dict[str, Any]], as_json: bool) -> None:
    if as_json:
        emit(waiting)
        return
    if not waiting:
        echo(f"nothing waits for approval in {plain(name)}")
    for one in waiting:
        where = f" where {pairs(one['context'])}" if one["context"] else ""
        echo(f"{plain(one['id'])}  asked {ago(one['asked_at'])}{where}")
        for knob, (runs, wanted) in one["changes"].items():
            echo(f"  {plain(knob)}: {shown(runs)} -> {shown(wanted)}")
        echo(f"  stake: {_stake(one)}")
        echo(f"  {plain(one['explanation'])}")
    if waiting:
        echo(f"rasp approve {plain(name)} {plain(waiting[0]['id'])} lets it run, rasp refuse ... does not")


def _stake(one: dict[str, Any]) -> str:
    """What a run of it may cost."""
    stop, level = one["stop"], one["level"]
    if stop is None:
        return "not bounded: such a run has no stop, and goes on to its end"
    more = f", {stop / level - 1.0:.0%} above what the default comes to" if level is not None and level > 0.0 else ""
    return f"the run should be ended at {shown(stop)}{more}"
