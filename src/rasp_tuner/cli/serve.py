"""`rasp serve`, `rasp keys`, `rasp doctor`: the service, on the machine it runs on."""

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rasp_tuner.cli.common import app, complain, one_line_errors

if TYPE_CHECKING:
    from rasp_tuner.service.storage.store import Store

Data = Annotated[Path, typer.Option(help="Folder of the service: database, lock, backups.")]
Database = Annotated[str | None, typer.Option(help="postgresql://... in place of the SQLite file in the folder.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON and nothing else.")]


@app.command("serve")
def run_server(
    data: Data,
    host: Annotated[str, typer.Option(help="Address to listen on; others than loopback need keys.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=1, max=65_535)] = 8321,
    database: Database = None,
    allow_host: Annotated[
        list[str] | None, typer.Option(help="Another name this server is reached by; repeat for more.")
    ] = None,
) -> None:
    """Serve studies over HTTP until stopped; the page is at the printed address.

    Example: rasp serve --data ./rasp-data
    """
    with one_line_errors("serve"):
        from rasp_tuner.service.server import serve

        typer.echo(f"Serving {data} at http://{host}:{port}", err=True)
        serve(data, host, port, database, allow_host or ())


keys_app = typer.Typer(help="API keys: who may do what.", no_args_is_help=True)
app.add_typer(keys_app, name="keys")


@keys_app.command("create")
def create_key(
    data: Data,
    scope: Annotated[str, typer.Option(help="read, write (ask and tell) or admin.")] = "write",
    study: Annotated[str | None, typer.Option(help="The only study it is for; all if absent.")] = None,
    label: Annotated[str, typer.Option(help="A word on who has it.")] = "",
    database: Database = None,
    as_json: Json = False,
) -> None:
    """Make a key and print it once; only a hash of it is kept.

    Example: rasp keys create --data ./rasp-data --scope write --study checkout
    """
    with one_line_errors("serve"), _store(data, database) as store:
        from rasp_tuner.service.auth import create_key

        key, row = create_key(store, scope, study, label)
        typer.echo(json.dumps({"id": row.id, "key": key, "scope": scope, "study": study}) if as_json else key)


@keys_app.command("list")
def list_keys(data: Data, database: Database = None, as_json: Json = False) -> None:
    """List keys, without their secrets.

    Example: rasp keys list --data ./rasp-data
    """
    with one_line_errors("serve"), _store(data, database) as store:
        rows = [
            {name: getattr(row, name) for name in ("id", "scope", "study", "label", "created", "revoked")}
            for row in store.list_keys()
        ]
        if as_json:
            typer.echo(json.dumps({"keys": rows}))
            return
        for row in rows:
            state = "revoked" if row["revoked"] else "active"
            typer.echo(f"{row['id']}  {row['scope']:5}  {row['study'] or 'all studies'}  {state}  {row['label']}")


@keys_app.command("revoke")
def revoke_key(
    id: Annotated[str, typer.Argument(help="As `rasp keys list` shows it.")],
    data: Data,
    database: Database = None,
    as_json: Json = False,
) -> None:
    """Have a key count no more, from a second later.

    Example: rasp keys revoke 1a2b3c4d --data ./rasp-data
    """
    with one_line_errors("serve"), _store(data, database) as store:
        if not store.revoke_key(id):
            raise typer.Exit(complain(f"no active key {id!r}; `rasp keys list` shows them"))
        typer.echo(json.dumps({"id": id, "revoked": True}) if as_json else f"revoked {id}")


@keys_app.command("audit")
def show_audit(
    data: Data,
    database: Database = None,
    limit: Annotated[int, typer.Option(min=1, max=10_000, help="The newest so many.")] = 50,
    as_json: Json = False,
) -> None:
    """Show what was administered: by which key, when, what.

    Example: rasp keys audit --data ./rasp-data
    """
    with one_line_errors("serve"), _store(data, database) as store:
        rows = store.audit(limit)
        if as_json:
            typer.echo(json.dumps({"audit": rows}))
            return
        for row in rows:
            at = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(row["at"]))
            typer.echo(f"{at}  {row['actor']}  {row['action']}  {row['subject']}")


@app.command("doctor")
def run_doctor(data: Data = Path("rasp-data"), database: Database = None, as_json: Json = False) -> None:
    """Check disk, database, version and extras; exit with 1 if something must be mended.

    Example: rasp doctor --data ./rasp-data
    """
    with one_line_errors("serve"):
        from rasp_tuner.service.doctor import examine

        findings = list(examine(data, database))
        if as_json:
            typer.echo(json.dumps({"findings": [asdict(finding) for finding in findings]}))
        else:
            for finding in findings:
                mend = f": {finding.mend}" if finding.mend else ""
                typer.echo(f"{'ok ' if finding.good else 'BAD'}  {finding.name:9}  {finding.said}{mend}")
        if not all(finding.good for finding in findings):
            raise typer.Exit(1)


@contextmanager
def _store(data: Path, database: str | None) -> "Iterator[Store]":
    """The database of a service, which may be running."""
    from rasp_tuner.service.storage.store import Store, sqlite_url

    data.mkdir(parents=True, exist_ok=True)
    store = Store(database or sqlite_url(data))
    try:
        yield store
    finally:
        store.close()
