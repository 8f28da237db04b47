"""Steps to recover when a regime comes back: the table and the picture of docs/RETURNS.md.

    python -m rasp_lab.experiments.returns            # ours, beside the peers on file; a few minutes
    python -m rasp_lab.experiments.returns --peers    # peers, too; under an hour

It prints the table and writes docs/images/returns.png. Finished runs are kept in out/returns, those of an older engine
are repeated.
"""

import argparse
from pathlib import Path

from rasp_lab import REPOSITORY
from rasp_lab.bench.analysis.kept_runs import OF_ENGINE
from rasp_lab.bench.analysis.metrics import load
from rasp_lab.bench.analysis.returns import Recovery
from rasp_lab.bench.domains import RECURRING, short_name
from rasp_lab.bench.report import return_tables
from rasp_lab.bench.runner import run, suites
from rasp_lab.pages import csv_tables, origin

PEERS = ("cma-es", "warm-cma-es", "tpe", "gp-ucb-0.25")
SEEDS, FIRST_SEED, STEPS = 10, 1000, 300
KEPT = REPOSITORY / "docs" / "results" / "returns.csv"
PICTURE = REPOSITORY / "docs" / "images" / "returns.png"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peers", action="store_true", help="also run the peers")
    parser.add_argument("--jobs", type=int, default=2, help="processes")
    given = parser.parse_args()
    out = REPOSITORY / "out" / "returns" / origin.engine_hash()
    agents = ("static", *OF_ENGINE, *(PEERS if given.peers else ()))
    cells = suites.cells("", agents, SEEDS, STEPS, domains=RECURRING, first_seed=FIRST_SEED)
    found = return_tables.told(load(run.run_plan(cells, out, jobs=given.jobs)))
    if not given.peers:
        found += on_file(KEPT)
    head, rows = return_tables.table(found)
    print("| " + " | ".join(head) + " |\n|" + "---|" * len(head))
    for row in rows:
        print("| " + " | ".join(row).replace("\N{NO-BREAK SPACE}", " ") + " |")
    return_tables.figure(found).savefig(PICTURE, dpi=110)


def on_file(path: Path) -> list[Recovery]:
    """What the file has of peers: they met the same streams, and no engine moves them."""
    head, rows = csv_tables.read(path)
    named = {short_name(domain): domain for domain in RECURRING}
    cuts = next(row for row in rows if row[0] == "static")
    made = []
    for row in (row for row in rows if row[0] in PEERS):
        for name, text, cut in zip(head[1:-2], row[1:-2], cuts[1:-2], strict=True):
            said = [[float(x) for x in part.split("±")] for part in text.split("→")]
            (first, error), (back, back_error) = said
            numbers = first, error, back, back_error, float(cut.split()[0]), float("nan")
            made.append(Recovery(named[name], row[0], int(row[-1]), 0, *numbers))
    return made


if __name__ == "__main__":
    main()
