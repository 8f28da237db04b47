"""`rasp mcp`: studies of a running server as tools for agents."""

import os
import signal
from typing import Annotated

import typer

from rasp_tuner.cli.common import app, echo, flag, one_line_errors
from rasp_tuner.cli.remote import URL, Url


@app.command("mcp")
def run_mcp(
    url: Url = URL,
    read_only: Annotated[bool, flag("--read-only", "Offer no tool that changes something.")] = False,
    timeout: Annotated[
        float, typer.Option(min=0.1, max=600.0, help="Seconds to wait for the server, which may be restarting.")
    ] = 10.0,
) -> None:
    """Serve the Model Context Protocol on standard input and output, for an agent that starts this command.

    Its rights are those of the API key in the environment variable RASP_KEY.

    Example: rasp mcp --url http://127.0.0.1:8321 --read-only
    """
    key = os.environ.get("RASP_KEY") or None
    with one_line_errors("rasp-tuner[mcp]"):
        import anyio

        from rasp_tuner.integrations.mcp_server import serve

        rights = "without a key" if key is None else "with the key in RASP_KEY"
        echo(f"Serving MCP for studies at {url} {rights}; end it with Ctrl-C, or the end of its input", err=True)
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # else Ctrl-C waits for the thread that waits for input
        anyio.run(lambda: serve(url, key, read_only=read_only, timeout=timeout))
