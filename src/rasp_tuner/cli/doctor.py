"""`rasp doctor`: what is wrong with a service, with files, and with what `rasp tune` has left behind."""

import json
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rasp_tuner.cli.common import Json, app, busy, echo, one_line_errors
from rasp_tuner.cli.serve import Data, Database
from rasp_tuner.errors import RaspError
from rasp_tuner.files import snapshot

if TYPE_CHECKING:
    from rasp_tuner.service.database_check import HealthCheck

INDENT = " " * 5


@app.command("doctor")
def run_doctor(
    files: Annotated[
        list[Path] | None,
        typer.Argument(help="Check these instead: saved tuners and fleets, policies, exported studies."),
    ] = None,
    data: Data = Path("rasp-data"),  # DATA of service/doctor.py, which takes time to load
    database: Database = None,
    as_json: Json = False,
) -> None:
    """Say what is wrong, what that means and what to do. The exit status is 1 if something must be fixed.

    Example: rasp doctor --data ./rasp-data
    Example: rasp doctor tuner.rasp policy.json
    """
    with one_line_errors("rasp-tuner[serve]"):
        with busy("loading"):
            checks = map(check_file, files) if files else _check_machine(data, database)
        findings = []
        for finding in checks:
            findings.append(finding)
            if not as_json:  # line by line: a large database takes time to check
                echo(f"{'ok ' if finding.good else 'BAD'}  {finding.name:9}  {finding.said}")
                if finding.mend:
                    echo(f"{INDENT}{'' if finding.good else '-> ':>11}{finding.mend}")
        wrong = sum(not finding.good for finding in findings)
        if as_json:
            echo(json.dumps({"findings": [asdict(finding) for finding in findings]}))
        else:
            echo(f"{wrong} of {len(findings)} checks failed" if wrong else "All is well.")
        if wrong:
            raise typer.Exit(1)


def _check_machine(data: Path, database: str | None) -> "Iterator[HealthCheck]":
    from rasp_tuner.service.doctor import examine

    yield from examine(data, database)
    yield _left_behind()


def _left_behind() -> "HealthCheck":
    """Whether processes still run that belong to runs of `rasp tune` which have ended."""
    from rasp_tuner.service.database_check import HealthCheck
    from rasp_tuner.tune.process import orphans

    found = orphans()
    if not found:
        return HealthCheck("processes", True, "`rasp tune` has left none behind")
    said = ", ".join(f"{number} (study {study!r})" for number, study in found.items())
    mend = f"they disturb measurements: kill {' '.join(map(str, found))}"
    return HealthCheck("processes", False, f"runs of `rasp tune` have ended and left behind: {said}", mend)


def check_file(path: Path) -> "HealthCheck":
    """Whether a file is whole, and all that it says is possible."""
    from rasp_tuner.fleet import Fleet
    from rasp_tuner.policy import evaluate
    from rasp_tuner.service.database_check import HealthCheck
    from rasp_tuner.service.http.transfer import FORMAT, read_import
    from rasp_tuner.service.limits import Limits
    from rasp_tuner.tuner import Tuner

    try:
        content = path.read_bytes()
        if content.startswith(tuple(kind.magic for kind in Fleet.kinds)):
            said = f"a fleet of {len(Fleet.load(path)):,} tuners"
        elif content.startswith(snapshot.MAGIC):
            said = f"a tuner that has learned {Tuner.from_bytes(content).learned:,} samples"
        elif FORMAT.encode() in content.partition(b"\n")[0]:
            said = f"an exported study with {len(read_import(content, None, Limits()).events):,} events"
        elif content.lstrip().startswith(b"{"):
            evaluate.load(path)
            said = "a policy"
        else:
            begins = content[:16]
            return HealthCheck("file", False, f"{path} is no file of RASP-Tuner: it begins with {begins!r}")
    except (RaspError, ValueError, OSError) as error:
        words = str(error).removeprefix(f"{path}: ")
        return HealthCheck("file", False, f"{path}: {words}", "do not use it: bring back a backup, or make it again")
    return HealthCheck("file", True, f"{path}: {said}")
