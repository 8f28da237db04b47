"""`rasp study forget`: erase records of a study for good."""

import re
import sys
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rasp_tuner.cli.common import complain, flag, say
from rasp_tuner.cli.remote import Name, Printed, context_value, server_command
from rasp_tuner.cli.study import studies
from rasp_tuner.errors import InvalidValue

if TYPE_CHECKING:
    from rasp_tuner.client import Client

RANGE = r"(?P<low>[^=]*?)\.\.(?P<high>.*)"

Moment = Annotated[str | None, typer.Option(help="Unix seconds, or a time such as 2026-03-01T12:00+01:00.")]


@server_command(studies, "forget")
def forget(
    client: "Client",
    name: Name,
    where: Annotated[
        list[str] | None,
        typer.Option(help="By context: qps=420, qps=400..500, qps=400.. or region=eu; if repeated, all must hold."),
    ] = None,
    after: Moment = None,
    before: Moment = None,
    id: Annotated[list[str] | None, typer.Option(help="By suggestion: the id that `rasp ask` printed.")] = None,
    observation: Annotated[list[str] | None, typer.Option(help="By observation: its key.")] = None,
    yes: Annotated[bool, flag("--yes", "Do not ask for confirmation.")] = False,
    as_json: bool = False,
) -> Printed:
    """Erase records for good: the tuner learns again from the rest, and the bytes are removed from the files.

    Example: rasp study forget checkout --where qps=400..500 --before 2026-03-01 --yes
    """
    which: dict[str, Any] = {
        "context": dict(_limits(word) for word in where or []),
        "after": None if after is None else _moment("--after", after),
        "before": None if before is None else _moment("--before", before),
        "ids": id or [],
        "keys": observation or [],
    }
    which = {field: value for field, value in which.items() if value not in (None, [], {})}
    if not which:
        raise InvalidValue("say which records: --where, --after, --before, --id or --observation")
    study = client.study(name)
    if not yes:
        if as_json or not sys.stdin.isatty():
            raise typer.Exit(complain("erasing cannot be undone: add --yes"))
        typer.confirm(f"Erase matching records of {name} for good?", abort=True)
    say(f"erasing records of {name} and learning again from the rest", as_json)
    done = study.forget(**which)
    files = "files are clean" if done["scrubbed"] else "files will be clean shortly"
    return Printed(done, [f"Erased {done['erased']:,} records of {name}; {files}"])


def _limits(word: str) -> tuple[str, str | float | list[float | None] | None]:
    name, equals, value = word.partition("=")
    if not name or not equals or not value:
        raise InvalidValue(f"--where must be given as name=value or name=low..high, got {word!r}")
    found = re.fullmatch(RANGE, value)
    if found is None:
        return name, context_value(value)
    return name, [_number(word, end) if end else None for end in (found["low"], found["high"])]


def _number(word: str, digits: str) -> float:
    try:
        return float(digits)
    except ValueError as reason:
        raise InvalidValue(f"--where must hold numbers, got {word!r}") from reason


def _moment(option: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        pass
    try:
        return datetime.fromisoformat(text).astimezone().timestamp()
    except ValueError as reason:
        raise InvalidValue(f"{option} must be unix seconds or an ISO 8601 time, got {text!r}") from reason
