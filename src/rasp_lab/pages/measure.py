"""The tables beside pages that a command prints: run it again, and keep what it prints as a CSV file."""

import subprocess
import sys
from collections.abc import Mapping

from rasp_lab import REPOSITORY
from rasp_lab.pages import csv_tables
from rasp_tuner.errors import InvalidValue
from rasp_tuner.page.html_page import Table

FOLDER = REPOSITORY / "docs" / "results"
_RUN = "rasp_lab.experiments."
COMMANDS: Mapping[str, Mapping[str, str]] = {  # page -> table -> module and its options
    "RETURNS.md": {"returns": f"{_RUN}returns"},
    "LIMITS.md": {"limits-of-metrics": f"{_RUN}limits"},
    "OPTUNA.md": {"optuna-regret": f"{_RUN}optuna_regret"},
    "PRIVACY.md": {"privacy": f"{_RUN}privacy", "warm-start": f"{_RUN}warm_start"},
    "BENCHMARKS.md": {"harder": f"{_RUN}harder", "emulated-fidelity": "rasp_lab.beds.emulated_fidelity"},
    "CONTEXT.md": {
        "category-contexts": f"{_RUN}category_contexts --streams 4",
        "screening-domains": f"{_RUN}screening --streams 40",
        "screening-noise": f"{_RUN}screening --streams 40 --noise",
    },
    "SAVINGS.md": {
        "savings-coverage": f"{_RUN}savings_coverage --runs 150 --steps 400 --holdout 0.1",
        "paired-tells": f"{_RUN}paired_tells",
    },
}


def measure(page: str) -> list[str]:
    """Run the commands of a page and write its tables; the names of those that changed."""
    if page not in COMMANDS:
        raise InvalidValue(f"no command makes the tables of {page}; there are {', '.join(COMMANDS)}")
    changed = []
    for name, command in COMMANDS[page].items():
        file, found = FOLDER / f"{name}.csv", printed(command)
        if not file.is_file() or csv_tables.read(file) != found:
            csv_tables.write(file, found)
            changed.append(name)
    return changed


def printed(command: str) -> Table:
    """The one table that a module prints; what it says besides goes to the terminal."""
    print(f"python -m {command}", file=sys.stderr, flush=True)
    done = subprocess.run(
        [sys.executable, "-m", *command.split()], check=True, stdout=subprocess.PIPE, text=True, cwd=REPOSITORY
    )
    return table_in(done.stdout)


def table_in(text: str) -> Table:
    """The table in Markdown text.

    >>> table_in("Three seeds\\n| a | b |\\n|---|---|\\n| 1 | two |\\n")
    (['a', 'b'], [['1', 'two']])
    """
    lines = [line.strip() for line in text.splitlines() if line.startswith("|")]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    if len(rows) < 3 or {len(row) for row in rows} != {len(rows[0])}:
        raise InvalidValue(f"a command must print one table, got {len(rows)} lines of one")
    head, _, *body = rows
    return head, body
