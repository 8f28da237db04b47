"""`rasp approve` and `rasp refuse`: what a person says to suggestions that wait."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from rasp_tuner.cli.common import app
from rasp_tuner.cli.remote import Name, Printed, ago, pairs, plain, server_command, shown
from rasp_tuner.page.words import TIMES_FROM, times_words
from rasp_tuner.study_file.fields import seconds

if TYPE_CHECKING:
    from rasp_tuner.client import Client

Waiting = Annotated[str, typer.Argument(help="Id of a suggestion that waits, as w4.", show_default=False)]


@server_command(app, "approve")
def approve(
    client: "Client",
    name: Name,
    id: Annotated[
        str | None, typer.Argument(help="Id of a suggestion that waits, as w4; without it all are listed.")
    ] = None,
) -> Printed:
    """List the suggestions that wait for a person, or let one run at the next ask in its situation.

    Example: rasp approve checkout
    Or: rasp approve checkout w4
    """
    study = client.study(name, default={})
    if id is None:
        return _list(name, study.waiting())
    study.approve(id)
    said = f"{plain(id)} is approved: it runs at the next ask in its situation"
    return Printed({"id": id, "status": "approved"}, [said])


@server_command(app, "refuse")
def refuse(
    client: "Client",
    name: Name,
    id: Waiting,
    for_: Annotated[str, typer.Option("--for", help="How long it is not suggested again, as 30m or 24h.")] = "24h",
) -> Printed:
    """Refuse a suggestion that waits: neither it nor nearly the same is put up again for a while.

    Example: rasp refuse checkout w4 --for 48h
    """
    client.study(name, default={}).refuse(id, seconds("--for", for_))
    said = f"{plain(id)} is refused for {plain(for_)}: what ran before goes on"
    return Printed({"id": id, "status": "refused"}, [said])


def _list(name: str, waiting: list[dict[str, Any]]) -> Printed:
    lines = [] if waiting else [f"nothing waits for approval in {plain(name)}"]
    for one in waiting:
        where = f" where {pairs(one['context'])}" if one["context"] else ""
        lines.append(f"{plain(one['id'])}  asked {ago(one['asked_at'])}{where}")
        lines += [
            f"  {plain(knob)}: {shown(runs)} -> {shown(wanted)}" for knob, (runs, wanted) in one["changes"].items()
        ]
        lines += [f"  stake: {_stake(one)}", f"  {plain(one['explanation'])}"]
    if waiting:
        lines.append(f"rasp approve {plain(name)} {plain(waiting[0]['id'])} lets it run, rasp refuse ... does not")
    return Printed(waiting, lines)


def _stake(one: dict[str, Any]) -> str:
    """What a run of it may cost."""
    stop, level = one["stop"], one["level"]
    if stop is None:
        return "not bounded: such a run has no stop, and goes on to its end"
    more = ""
    if level is not None and level > 0.0:
        ratio = stop / level
        more = f", {times_words(ratio)}" if ratio >= TIMES_FROM else f", {ratio - 1.0:.0%} above"
        more += " what the default comes to"
    return f"the run should be ended at {shown(stop)}{more}"
