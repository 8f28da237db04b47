"""`rasp stream`: tells from Redis Streams to a study, and its policies back (docs/EDGE.md)."""

import logging
from contextlib import closing
from typing import Annotated

import typer

from rasp_tuner.base.terminal_log import log_to_terminal
from rasp_tuner.cli.common import EndingSignals, app, echo, flag, one_line_errors
from rasp_tuner.cli.remote import URL, Key, Name, Url, plain, talking


@app.command("stream")
def stream(
    name: Name,
    redis: Annotated[
        str, typer.Option(envvar="RASP_REDIS", help="Address of Redis; RASP_REDIS is safer for one with a password.")
    ] = "redis://127.0.0.1:6379",
    prefix: Annotated[str, typer.Option(help="What the names of the study's keys in Redis begin with.")] = "rasp:",
    every: Annotated[float, typer.Option(min=0.1, max=3600.0, help="Seconds between two policies.")] = 1.0,
    reader: Annotated[
        str | None,
        typer.Option(help="Name of this reader, one for each that runs; by default the host's.", show_default=False),
    ] = None,
    once: Annotated[bool, flag("--once", "Learn what is there, write a policy, and end.")] = False,
    url: Url = URL,
    key: Key = None,
) -> None:
    """Learn sums of outcomes that edges put into Redis Streams, and write policies there. Ctrl-C ends it.

    A message is acknowledged once the server has it on disk, and counts once. Damaged ones are put aside, with the
    reason, in PREFIX + STUDY + ":refused"; the others go on.

    Example: rasp stream web --redis redis://127.0.0.1:6379
    """
    log_to_terminal(logging.INFO, "%(asctime)s %(levelname)-7s %(message)s", "%H:%M:%S")
    with one_line_errors("rasp-tuner[client]"):
        from rasp_tuner.client.redis_streams import RedisTells
        from rasp_tuner.client.stream import Bridge

        tells = RedisTells(redis, name, prefix, reader)
    with closing(tells), talking(url, key) as client:
        bridge = Bridge(client.study(name, default={}), tells, every)
        if once:
            while bridge.step():
                pass
            bridge.publish()
        else:
            echo(f"Learning what comes in {plain(tells.stream)}; Ctrl-C ends it", err=True)
            signals = EndingSignals()
            bridge.run(lambda: bool(signals.seen))
        said = f"{bridge.learned} outcomes learned, {bridge.policies} policies written"
        echo(f"{said}; {bridge.duplicates} messages came twice, {bridge.refused} are put aside")
