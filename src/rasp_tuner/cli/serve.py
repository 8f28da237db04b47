"""`rasp serve`, `rasp keys`, `rasp doctor`: the service, on the machine it runs on."""

from pathlib import Path
from typing import Annotated

import typer

from rasp_tuner.cli.common import app, one_line_errors

Data = Annotated[Path, typer.Option(help="Folder of the service: database, lock, backups.")]
Database = Annotated[str | None, typer.Option(help="postgresql://... in place of the SQLite file in the folder.")]


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
        from rasp_tuner.serve.run import serve

        typer.echo(f"Serving {data} at http://{host}:{port}", err=True)
        serve(data, host, port, database, allow_host or ())
