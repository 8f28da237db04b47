"""`rasp study ...`, `rasp ask`, `rasp tell`: studies of a running server."""

import json
import os
import sys
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich import box
from rich.table import Table
from rich.text import Text

from rasp_tuner.cli.common import app, complain, echo, flag, say
from rasp_tuner.cli.remote import (
    URL,
    Json,
    Key,
    Name,
    Printed,
    Url,
    ago,
    context_of,
    numbers,
    plain,
    server_command,
    settings,
    shown,
    talking,
)
from rasp_tuner.errors import InvalidValue
from rasp_tuner.page.words import range_words
from rasp_tuner.space import knob_from_json
from rasp_tuner.types import Budget

if TYPE_CHECKING:
    from rasp_tuner.client import Client

ContextWords = Annotated[
    list[str] | None, typer.Argument(help="By name, as in qps=420 region=eu, or values in the order of the study.")
]
SHOWN_COUNTS = ("asks", "tells", "failures", "observations", "late", "expired", "pending")

studies = typer.Typer(
    help="""Create, list, show, copy and delete the studies of a running server.

    Example: rasp study create checkout.toml
    """,
    no_args_is_help=True,
)
app.add_typer(studies, name="study")


@server_command(studies, "create")
def create(
    client: "Client",
    file: Annotated[Path, typer.Argument(help="A TOML study file; see docs/CLIENT.md.", show_default=False)],
    name: Annotated[str | None, typer.Option(help="Name of the study, if not the one in the file.")] = None,
) -> Printed:
    """Create a study from a TOML file; creating it again from the same file changes nothing.

    Example: rasp study create checkout.toml
    """
    definition = read_definition(file)
    study, new = client.create_from(definition if name is None else {**definition, "name": name})
    view = study.view()
    said = f"{'Created' if new else 'Exists already with this definition:'} {view['name']}"
    return Printed({"created": new, "study": view}, [said, f"Next: {_next_ask(view)}"])


@server_command(studies, "list")
def show_all(client: "Client") -> Printed:
    """List the studies that the key may see.

    Example: rasp study list
    """
    views = client.studies()
    if not views:
        return Printed({"studies": views}, ["No studies yet. Next: rasp study create FILE.toml"])
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    for head in ("study", "asks", "tells", "failures", "pending", "last event", ""):
        table.add_column(head, justify="left" if head in ("study", "last event", "") else "right", no_wrap=True)
    for view in views:
        counts = (f"{view[name]:,}" for name in ("asks", "tells", "failures", "pending"))
        frozen = "frozen" if view["frozen"] else ""
        table.add_row(Text(plain(view["name"])), *counts, ago(view["last_event_at"]), frozen)
    return Printed({"studies": views}, table)


@server_command(studies, "show")
def show(client: "Client", name: Name) -> Printed:
    """Show a study's definition and counts.

    Example: rasp study show checkout
    """
    view, situations = client.study(name).view(), client.study(name).situations()
    lines = [f"{view['name']}  {', '.join(_settings(view))}; last event {ago(view['last_event_at'])}"]
    lines.append("  ".join(f"{count} {view[count]:,}" for count in SHOWN_COUNTS))
    lines += [f"alert    {plain(words)}" for words in view["alerts"]]
    context = view["context"]
    if isinstance(context, dict):
        context = [f"{name} ({kind['kind']})" for name, kind in context.items()]
    lines.append(f"context  {', '.join(map(plain, context)) if isinstance(context, list) else context or 'none'}")
    knobs = {name: plain(range_words(knob_from_json(name, spec))) for name, spec in view["space"].items()}
    default = view["default"]
    lines += _columns("knobs", [(plain(n), own, f"default {shown(default.get(n, '-'))}") for n, own in knobs.items()])
    if rules := view.get("constraints"):
        lines += _columns("constraints", [(plain(rule),) for rule in rules])
    lines += _columns(
        "metrics",
        [
            (plain(m), spec["direction"], _counts(spec), f"{view['scales'][m]} scale")
            for m, spec in view["metrics"].items()
        ],
    )
    if (report := view["budget_report"]) is not None:
        lines.append(str(Budget(**report)))
    if (versus := view["versus_default"]) is not None:
        lines.append(f"Against the default: {plain(versus['words'])}.")
    if (looks := view["looks"]) is not None:
        lines.append(f"Exploring: {plain(looks['words'])}.")
    if situations:
        lines += _columns("recommended, by situation", [(plain(one["words"]),) for one in situations])
    return Printed({**view, "situations": situations}, lines)


def _counts(metric: dict[str, Any]) -> str:
    """How a metric counts: by its weight, by its limit, or both."""
    limits = [
        f"{name.replace('_', ' ')} {metric[name]}" for name in ("max", "min", "at_most", "at_least") if name in metric
    ]
    weight = [f"weight {metric['weight']:g}"] if metric["weight"] or not limits else []
    return ", ".join(map(plain, weight + limits))


@studies.command("export")
def export(
    name: Name,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="File to write; by default NAME.ndjson, - for stdout.")
    ] = None,
    url: Url = URL,
    key: Key = None,
    as_json: Json = False,
) -> None:
    """Write the whole log of a study to a file for `rasp study import`.

    Example: rasp study export checkout --out checkout.ndjson
    """
    with talking(url, key) as client:
        lines = client.study(name, default={}).export()
        if out == Path("-"):
            for line in lines:
                echo(line)
            return
        target = out or Path(f"{name}.ndjson")
        say(f"exporting {name}", as_json)
        part = target.with_name(f".{target.name}.{os.getpid()}.part")
        try:
            with part.open("w", encoding="ascii") as file:
                count = sum(1 for line in lines if file.write(f"{line}\n"))
            part.replace(target)
        finally:
            part.unlink(missing_ok=True)
        events = count - 2  # a header, a checksum
        if as_json:
            echo(json.dumps({"name": name, "file": str(target), "events": events}))
        else:
            echo(f"Wrote {events:,} events of {name} to {target}")


@server_command(studies, "import")
def take_in(
    client: "Client",
    file: Annotated[Path, typer.Argument(help="A file that `rasp study export` wrote.", show_default=False)],
    name: Annotated[str | None, typer.Option(help="Name of the study, if not the one in the file.")] = None,
    as_json: bool = False,
) -> Printed:
    """Rebuild an exported study on this server by replaying its log.

    Example: rasp study import checkout.ndjson --name checkout-copy
    """
    with file.open(encoding="ascii", errors="replace") as lines:
        say(f"sending {file}; the server replays it before it answers", as_json)
        view = client.import_study(lines, name).view()
    return Printed(view, [f"Imported {view['name']}: {view['asks']:,} asks, {view['learned']:,} learned"])


@server_command(studies, "delete")
def delete(
    client: "Client",
    name: Name,
    yes: Annotated[bool, flag("--yes", "Do not ask for confirmation.")] = False,
    as_json: bool = False,
) -> Printed:
    """Delete a study and everything it learned.

    Example: rasp study delete checkout --yes
    """
    study = client.study(name)
    if not yes:
        if as_json or not sys.stdin.isatty():
            raise typer.Exit(complain(f"deleting {name} cannot be undone: add --yes; `rasp study export` keeps a copy"))
        typer.confirm(f"Delete {name} and the {study.view()['learned']:,} samples it learned?", abort=True)
    study.delete()
    return Printed({"deleted": name}, [f"Deleted {name}"])


@server_command(studies, "freeze")
def freeze(
    client: "Client",
    name: Name,
    default: Annotated[bool, flag("--default", "Every ask returns the default: back to what ran before.")] = False,
) -> Printed:
    """Stop exploring: every ask returns the recommendation; tells are still learned.

    Example: rasp study freeze checkout
    Or: rasp study freeze checkout --default
    """
    client.study(name, default={}).freeze(default=default)
    return Printed({"name": name, "frozen": True}, [f"{name} is frozen{' at its default' if default else ''}"])


@server_command(studies, "unfreeze")
def unfreeze(client: "Client", name: Name) -> Printed:
    """Explore again after `rasp study freeze`.

    Example: rasp study unfreeze checkout
    """
    client.study(name, default={}).unfreeze()
    return Printed({"name": name, "frozen": False}, [f"{name} explores"])


@server_command(app, "ask")
def ask(
    client: "Client",
    name: Name,
    context: ContextWords = None,
) -> Printed:
    """Print the parameters to run now and the id for `rasp tell`.

    Example: rasp ask checkout qps=420
    """
    suggestion = client.study(name, default={}).ask(context_of(context or []))
    lines = _columns(suggestion.id, [(plain(knob), shown(value)) for knob, value in suggestion.params.items()])
    return Printed({"id": suggestion.id, "params": suggestion.params, "stop": suggestion.stop}, lines)


@server_command(app, "tell")
def tell(
    client: "Client",
    name: Name,
    id: Annotated[str, typer.Argument(help="The id that `rasp ask` printed.", show_default=False)],
    metrics: Annotated[list[str] | None, typer.Argument(help="One for each metric, as in p99_ms=181.2.")] = None,
    failed: Annotated[
        str | None, typer.Option(help="Instead of metrics: the reason why the run crashed or was invalid.")
    ] = None,
    ran: Annotated[
        list[str] | None,
        typer.Option(help="A knob that ran with another value than suggested, as in pool=16; may be repeated."),
    ] = None,
    stopped: Annotated[
        bool, flag("--stopped", "The run was ended: it would have come to these metrics or worse.")
    ] = False,
) -> Printed:
    """Report the result of a suggestion; reporting it twice changes nothing.

    Example: rasp tell checkout s41 p99_ms=181.2
    Or: rasp tell checkout s41 --failed "out of memory"
    Or: rasp tell checkout s41 p99_ms=181.2 --ran pool=16
    """
    if (failed is None) == (not metrics):
        raise InvalidValue("give metrics, as in p99_ms=181.2, or --failed with a reason")
    if failed is not None and stopped:
        raise InvalidValue("a run that failed was not stopped: give --failed or --stopped")
    study = client.study(name, default={})
    params = settings(ran, study.view()["space"]) if ran else None
    if failed is None:
        told = study.tell(id, numbers("metric", metrics or []), params, stopped=stopped)
    else:
        told = study.tell_failed(id, failed, params)
    late = ", after its lease" if told.late else ""
    said = f"{told.id} {'was told before: nothing changed' if told.status == 'duplicate' else told.status}{late}"
    return Printed({"id": told.id, "status": told.status, "late": told.late}, [said])


@server_command(app, "what-if")
def what_if(
    client: "Client",
    name: Name,
    context: ContextWords = None,
    setting: Annotated[
        list[str] | None,
        typer.Option("--set", help="A knob, as in pool=16; may be repeated. Others are as in the default."),
    ] = None,
) -> Printed:
    """Print what settings are expected to give in a situation, and how sure that is; changes nothing.

    Example: rasp what-if checkout qps=420 --set pool=16
    """
    study = client.study(name, default={})
    params = settings(setting, study.view()["space"], "--set") if setting else None
    found = study.what_if(context_of(context or []), params)
    return Printed({**found.to_json(), "words": str(found)}, str(found).splitlines())


def read_definition(file: Path) -> dict[str, Any]:
    """The definition in a TOML file; InvalidValue says where it is wrong."""
    try:
        definition = tomllib.loads(file.read_text(encoding="utf-8"))
        json.dumps(definition, allow_nan=False)
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as reason:
        raise InvalidValue(f"{file} is not TOML: {plain(reason)}") from reason
    except (TypeError, ValueError) as reason:
        raise InvalidValue(f"{file} holds a value that JSON has not: {plain(reason)}") from reason
    missing = [field for field in ("name", "space", "metrics") if field not in definition]
    if missing:
        raise InvalidValue(f"{file} lacks {' and '.join(missing)}; docs/CLIENT.md has an example")
    return definition


def _next_ask(view: dict[str, Any]) -> str:
    context = view["context"]
    words = [f"{name}=..." for name in context] if isinstance(context, dict | list) else ["..."] * (context or 0)
    return plain(" ".join(["rasp ask", view["name"], *words]))


def _settings(view: dict[str, Any]) -> list[str]:
    words = [f"preset {plain(view['preset'])}", f"seed {view['seed']}"]
    words += [] if view["guard"] is None else [f"guard {view['guard']:g}"]
    words += [] if view.get("budget") is None else [f"budget {view['budget']:g}"]
    words += [] if view.get("holdout") is None else [f"holdout {view['holdout']:g}"]
    words += [] if view.get("max_change") is None else [f"max change {_change(view['max_change'])}"]
    words += [] if view.get("approve_s") is None else [f"{view['waiting']} wait for approval"]
    words += [f"switching cost {view['switching_cost']:g}"] if view["switching_cost"] else []
    return [*words, f"lease {view['lease_s']:g} s", _serves(view)]


def _change(limit: Any) -> str:
    if isinstance(limit, dict):
        return ", ".join(f"{plain(name)} {_change(one)}" for name, one in limit.items())
    return plain(limit) if isinstance(limit, str) else f"{limit:.3g} of its range"


def _serves(view: dict[str, Any]) -> str:
    """What asks get, and who said so."""
    if not view["frozen"]:
        return "exploring"
    switched = view["switched"] or {"by": None, "at": None}
    who = "" if switched["by"] is None else f" by {plain(switched['by'])} {ago(switched['at'])}"
    return f"frozen{' at its default' if view['serves'] == 'default' else ''}{who}"


def _columns(head: str, rows: list[tuple[str, ...]]) -> list[str]:
    """Rows under a head, each column as wide as its longest."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))] if rows else []
    cells = ([f"{word:{width}}" for word, width in zip(row, widths, strict=True)] for row in rows)
    return [head, *(f"  {'  '.join(row)}".rstrip() for row in cells)]
