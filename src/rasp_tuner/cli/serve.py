"""`rasp serve` and `rasp keys`: run the service, and look after its keys, on its own machine."""

import json
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated

import typer

from rasp_tuner.cli.common import Json, app, busy, complain, echo, one_line_errors
from rasp_tuner.feature_flags import FLAG_LEASE_S

if TYPE_CHECKING:
    from rasp_tuner.service.storage.store import Store

Data = Annotated[Path, typer.Option(help="Folder of the service, with database and lock.")]
Database = Annotated[
    str | None, typer.Option(help="A postgresql://... database instead of the SQLite file in the folder.")
]


@app.command("serve")
def run_server(
    data: Annotated[Path | None, typer.Option(help="Folder of the service, with database and lock.")] = None,
    host: Annotated[
        str, typer.Option(help="Address to listen on; any other than loopback needs API keys.")
    ] = "127.0.0.1",
    port: Annotated[
        int, typer.Option(min=0, max=65_535, help="Port to listen on; 0 takes a free one, which is printed.")
    ] = 8321,
    database: Database = None,
    advertise: Annotated[
        str | None,
        typer.Option(help="Where other servers on the same PostgreSQL reach this one, as http://10.0.0.5:8321."),
    ] = None,
    lease: Annotated[
        float,
        typer.Option(min=0.5, max=600.0, help="Seconds of silence after which other servers take over the studies."),
    ] = 10.0,
    studies: Annotated[
        int, typer.Option(min=1, max=1_000_000, help="Most studies that a server has; more are refused.")
    ] = 10_000,
    studies_in_memory: Annotated[
        int,
        typer.Option(min=1, max=1_000_000, help="Studies kept in memory, about 1 MB each; others are read when asked."),
    ] = 512,
    flag_lease: Annotated[
        float,
        typer.Option(min=1.0, max=86_400.0, help="Seconds for which a targeting key of a flag keeps its settings."),
    ] = FLAG_LEASE_S,
    allow_host: Annotated[
        list[str] | None, typer.Option(help="Another host name of this server; repeat for several.")
    ] = None,
    allow_origin: Annotated[
        list[str] | None,
        typer.Option(help="A site whose pages may evaluate flags, as https://shop.example; repeat for several."),
    ] = None,
) -> None:
    """Serve studies over HTTP until stopped; open the printed address in a browser for the dashboard.

    Example: rasp serve --data ./rasp-data
    Example: rasp serve --database postgresql://rasp@db/rasp --host 10.0.0.5
    """
    if data is None and database is None:
        raise typer.BadParameter("give the folder of the service, or a database", param_hint="--data")
    with one_line_errors("rasp-tuner[serve]"), ExitStack() as stack:
        with busy("starting"):
            from rasp_tuner.service.limits import Limits
            from rasp_tuner.service.server import serve

        limits = Limits(studies=studies, studies_in_memory=studies_in_memory, flag_lease=flag_lease)
        folder = data or Path(stack.enter_context(TemporaryDirectory(prefix="rasp-")))
        what = folder if data else "the database"
        serve(
            folder,
            host,
            port,
            database,
            allow_host or (),
            limits,
            on_bound=lambda bound: echo(f"Serving {what} at http://{host}:{bound}", err=True),
            advertise=advertise,
            lease_s=lease,
            allow_origins=allow_origin or (),
        )


keys_app = typer.Typer(
    help="""Create, list and revoke API keys.

    Example: rasp keys create --data ./rasp-data --scope write
    """,
    no_args_is_help=True,
)
app.add_typer(keys_app, name="keys")


@keys_app.command("create")
def create_key(
    data: Data,
    scope: Annotated[str, typer.Option(help="What the key allows: read, write (ask and tell) or admin.")] = "write",
    study: Annotated[str | None, typer.Option(help="Limit the key to one study; by default it is for all.")] = None,
    label: Annotated[str, typer.Option(help="A note on who has the key.")] = "",
    database: Database = None,
    as_json: Json = False,
) -> None:
    """Create a key and print it once; only a hash of it is stored.

    Example: rasp keys create --data ./rasp-data --scope write --study checkout
    """
    with one_line_errors("rasp-tuner[serve]"), _store(data, database) as store:
        from rasp_tuner.service.auth import create_key

        key, row = create_key(store, scope, study, label)
        echo(json.dumps({"id": row.id, "key": key, "scope": scope, "study": study}) if as_json else key)


@keys_app.command("list")
def list_keys(data: Data, database: Database = None, as_json: Json = False) -> None:
    """List the keys without their secrets.

    Example: rasp keys list --data ./rasp-data
    """
    with one_line_errors("rasp-tuner[serve]"), _store(data, database) as store:
        rows = [
            {name: getattr(row, name) for name in ("id", "scope", "study", "label", "created", "revoked")}
            for row in store.list_keys()
        ]
        if as_json:
            echo(json.dumps({"keys": rows}))
            return
        for row in rows:
            state = "revoked" if row["revoked"] else "active"
            echo(f"{row['id']}  {row['scope']:5}  {row['study'] or 'all studies'}  {state}  {row['label']}")


@keys_app.command("revoke")
def revoke_key(
    id: Annotated[str, typer.Argument(help="The id that `rasp keys list` shows.")],
    data: Data,
    database: Database = None,
    as_json: Json = False,
) -> None:
    """Revoke a key; the server refuses it within a second.

    Example: rasp keys revoke 1a2b3c4d --data ./rasp-data
    """
    with one_line_errors("rasp-tuner[serve]"), _store(data, database) as store:
        if not store.revoke_key(id):
            raise typer.Exit(complain(f"no active key {id!r}; `rasp keys list` shows them"))
        echo(json.dumps({"id": id, "revoked": True}) if as_json else f"revoked {id}")


@keys_app.command("audit")
def show_audit(
    data: Data,
    database: Database = None,
    limit: Annotated[int, typer.Option(min=1, max=10_000, help="How many entries, newest first.")] = 50,
    as_json: Json = False,
) -> None:
    """Show the administrative actions: when, by which key, what.

    Example: rasp keys audit --data ./rasp-data
    """
    with one_line_errors("rasp-tuner[serve]"), _store(data, database) as store:
        rows = store.audit(limit)
        if as_json:
            echo(json.dumps({"audit": rows}))
            return
        for row in rows:
            at = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(row["at"]))
            echo(f"{at}  {row['actor']}  {row['action']}  {row['subject']}")


@contextmanager
def _store(data: Path, database: str | None) -> "Iterator[Store]":
    """The database of a service, which may be running at the same time."""
    from rasp_tuner.service.data_folder_lock import make_folder
    from rasp_tuner.service.storage.store import Store, plain_errors, sqlite_url

    make_folder(data)
    store = Store(database or sqlite_url(data))
    try:
        with plain_errors(store.url):
            yield store
    finally:
        store.close()
