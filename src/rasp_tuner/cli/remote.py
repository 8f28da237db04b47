"""Shared by the commands that talk to a server: its address, errors in one line with the remedy, safe text."""

import functools
import inspect
import json
import re
import socket
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple
from urllib.parse import urlsplit

import typer
from rich.console import Console
from rich.table import Table

from rasp_tuner.base.checks import printable
from rasp_tuner.cli.common import Json as Json
from rasp_tuner.cli.common import complain, echo, one_line_errors
from rasp_tuner.errors import InvalidValue

if TYPE_CHECKING:
    from rasp_tuner.client import Client

Url = Annotated[str, typer.Option(envvar="RASP_URL", help="Address of the server.")]
Key = Annotated[
    str | None,
    typer.Option(envvar="RASP_KEY", help="API key, rasp_...; RASP_KEY is safer, because `ps` does not show it."),
]
Name = Annotated[str, typer.Argument(help="Name of the study.", show_default=False)]

URL = "http://127.0.0.1:8321"
TIMEOUT_S = 10.0  # a server that is being restarted is waited for


@contextmanager
def talking(url: str, key: str | None) -> "Iterator[Client]":
    """A client; errors of the server or the network become one line with the remedy."""
    with one_line_errors("rasp-tuner[client]"):
        from rasp_tuner.client import AccessDenied, Client, ServerUnavailable, UnknownStudy

        if sys.stderr.isatty() and not _answers(url):
            echo(f"No server answers at {url} yet; waiting up to {TIMEOUT_S:g} s ...", err=True)
        try:
            with Client(url, key, timeout=TIMEOUT_S, ask_deadline=None) as client:
                yield client
        except ServerUnavailable as error:
            mend = (
                ""
                if "cannot now" in str(error)
                else "; `rasp serve --data DIR` starts one, --url or RASP_URL names one"
            )
            raise typer.Exit(complain(plain(f"{error}{mend}"))) from error
        except AccessDenied as error:
            mend = "--key or RASP_KEY takes a key that `rasp keys create` made, of scope read, write or admin"
            raise typer.Exit(complain(plain(f"{error}; {mend}"))) from error
        except UnknownStudy as error:
            said = str(error).partition(";")[0]
            raise typer.Exit(complain(plain(f"{said}; `rasp study list` shows them"))) from error


class Printed(NamedTuple):
    """What a command prints: the first with --json, else the lines, or a table."""

    json: Any
    lines: Sequence[str] | Table = ()


def server_command(where: typer.Typer, name: str) -> Callable[[Callable[..., Printed]], Callable[..., None]]:
    """A command that talks to a server: its function gets a client, and `as_json` if it asks for it.

    The command has --url, --key and --json besides the function's own options.
    """

    def add(run: Callable[..., Printed]) -> Callable[..., None]:
        own = inspect.signature(run)
        shared = {"url": (Url, URL), "key": (Key, None), "as_json": (Json, False)}
        options = [one for one in own.parameters.values() if one.name not in ("client", "as_json")]
        options += [
            inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD, default=usual, annotation=kind)
            for name, (kind, usual) in shared.items()
        ]

        @functools.wraps(run)
        def command(*, url: str, key: str | None, as_json: bool, **given: Any) -> None:
            given |= {"as_json": as_json} if "as_json" in own.parameters else {}
            with talking(url, key) as client:
                printed = run(client, **given)
            if as_json:
                echo(json.dumps(printed.json))
            elif isinstance(printed.lines, Table):
                Console(width=None if sys.stdout.isatty() else 120).print(printed.lines)
            else:
                for line in printed.lines:
                    echo(line)

        command.__annotations__ = {one.name: one.annotation for one in options}
        vars(command)["__signature__"] = own.replace(parameters=options, return_annotation=None)
        return where.command(name)(command)

    return add


def _answers(url: str) -> bool:
    """Whether something listens there."""
    parts = urlsplit(url)
    try:
        address = (parts.hostname or "", parts.port or (443 if parts.scheme == "https" else 80))
        with socket.create_connection(address, timeout=1.0):
            return True
    except (OSError, ValueError):
        return False


def plain(text: object) -> str:
    """One line that is safe to print: names and reasons come from others and may contain escape sequences."""
    return printable(str(text))


def shown(value: object) -> str:
    """A value of a knob or metric, short."""
    return f"{value:.5g}" if isinstance(value, float) else plain(value)


def pairs(values: Any) -> str:
    """pool=8 codec=lz4, of a mapping or a list."""
    if isinstance(values, dict):
        return " ".join(f"{plain(name)}={shown(value)}" for name, value in values.items())
    return " ".join(shown(value) for value in values or ())


def ago(at: float | None) -> str:
    """How long since a moment, in one unit."""
    if at is None:
        return "never"
    seconds = max(time.time() - at, 0.0)
    for size, unit in ((86_400, "d"), (3_600, "h"), (60, "min")):
        if seconds >= size:
            return f"{int(seconds // size)} {unit} ago"
    return f"{int(seconds)} s ago"


def numbers(field: str, words: list[str]) -> dict[str, float]:
    """`["p99_ms=181.2"]` as a mapping."""
    return {name: _number(f"{field} {name!r}", digits) for name, digits in _named(field, "number", words).items()}


def settings(words: list[str], space: Mapping[str, Mapping[str, Any]], option: str = "--ran") -> dict[str, Any]:
    """`["pool=16", "codec=lz4"]` as values of the knobs of a space in JSON; errors name the option."""
    return {name: _value(option, name, text, space) for name, text in _named(option, "value", words).items()}


def context_of(words: list[str]) -> dict[str, Any] | list[Any] | None:
    """`["qps=420", "region=eu"]` by name, `["0.1", "0.2"]` in order, nothing for a study without context."""
    if not words:
        return None
    if any("=" in word for word in words):
        return {name: context_value(text) for name, text in _named("context", "value", words).items()}
    return [context_value(word) for word in words]


def context_value(text: str) -> str | float | None:
    """A number if it looks like one, missing if it is empty, else a text: 007 is one."""
    if re.fullmatch(r"[+-]?(0|[1-9]\d*)?(\.\d*)?(e[+-]?\d+)?", text, re.IGNORECASE) and any(map(str.isdigit, text)):
        return float(text)
    return text or None


def _named(field: str, kind: str, words: list[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for word in words:
        name, equals, text = word.partition("=")
        if not equals or not name:
            raise InvalidValue(f"{field} must be given as name={kind}, got {word!r}")
        if name in found:
            raise InvalidValue(f"{field} {name!r} is given twice")
        found[name] = text
    return found


def _value(option: str, name: str, text: str, space: Mapping[str, Mapping[str, Any]]) -> Any:
    if name not in space:
        raise InvalidValue(f"{option} {name!r} is no knob of this study; it has {', '.join(map(plain, space))}")
    from rasp_tuner.space import knob_from_json

    for choice in space[name].get("choices", ()):
        if not isinstance(choice, str) and text == shown(choice):
            return choice
    try:
        return knob_from_json(f"space[{name!r}]", space[name]).from_text(text)
    except InvalidValue as reason:
        raise InvalidValue(plain(f"{option} {name!r}{str(reason).removeprefix('value')}")) from None


def _number(field: str, digits: str) -> float:
    try:
        return float(digits)
    except ValueError as reason:
        raise InvalidValue(f"{field} must be a number, got {digits!r}") from reason
