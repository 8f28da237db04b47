"""`rasp export`: what a saved tuner recommends, as a policy that needs no tuner."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from rasp_tuner.cli.common import Json, app, echo, one_line_errors
from rasp_tuner.cli.show import named_texts
from rasp_tuner.policy import c_table
from rasp_tuner.policy.flagd import flagd_flags
from rasp_tuner.tuner import Tuner


@app.command("export")
def export_policy(
    file: Annotated[Path, typer.Argument(help="A file of Tuner.save, such as tuner.rasp of `rasp tune`.")],
    policy: Annotated[Path, typer.Argument(help="File to write, such as policy.json.")],
    leaves: Annotated[int, typer.Option(help="Different settings at the most.")] = 16,
    c: Annotated[Path | None, typer.Option(help="Header to write, with the policy as a table for policy.c.")] = None,
    flagd: Annotated[Path | None, typer.Option(help="File to write, with the policy as flags for flagd.")] = None,
    name: Annotated[str, typer.Option(help="Name of the flag for flagd.")] = "rasp",
    texts: Annotated[
        list[str] | None,
        typer.Option(help="Texts of a context, which a tuner keeps as hashes, as in region=eu,us; repeat for several."),
    ] = None,
    explore: Annotated[
        bool, typer.Option("--explore", help="Several settings in a leaf, of which a key gets one (docs/EDGE.md).")
    ] = False,
    as_json: Json = False,
) -> None:
    """Write what a saved tuner recommends as a small tree from contexts to parameters; nothing in the tuner changes.

    Example: rasp export run.rasp policy.json
    """
    with one_line_errors("rasp-tuner[cli]"):
        report = Tuner.load(file).export(policy, leaves, texts=dict(map(named_texts, texts or ())), explore=explore)
        if c is not None:
            c.write_text(c_table(report.policy))
        if flagd is not None:
            flagd.write_text(json.dumps(flagd_flags(report.policy, name), indent=1) + "\n")
        if as_json:
            plain = asdict(report)
            del plain["policy"]
            echo(json.dumps(plain, indent=1))
            return
        echo(str(report))
        echo(f"Policy: {policy}")
        if c is not None:
            echo(f"Table: {c}")
        if flagd is not None:
            echo(f"Flags: {flagd}")
