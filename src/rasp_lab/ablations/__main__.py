"""What each part of preset `default` is worth: regret relative to the static default, with one thing changed at a time.

Run: python -m rasp_lab.ablations --page docs/ABLATIONS.md   writes the page and its tables: all below
     python -m rasp_lab.ablations --page docs/ABLATIONS.md --tables-only    the page again, from its tables
     python -m rasp_lab.ablations                            ablations, a table for each condition
     python -m rasp_lab.ablations --condition outliers       the same, of conditions with that word in their title
     python -m rasp_lab.ablations --table FILE.npz --metrics time_ms:min    also on your own measured table
     python -m rasp_lab.ablations --robust       the engine as it is: outliers, noise, a second metric, other units
     python -m rasp_lab.ablations --switching    switching costs on the domains whose regimes come back
     python -m rasp_lab.ablations --guard        never much worse than the default?
     python -m rasp_lab.ablations --streams      the tabular streams, whose knobs are mixed and whose default is good
     python -m rasp_lab.ablations --leaders      which expert ends up leading, and from which step on

Finished runs are kept under out/ablations, for each state of the code: a stopped command goes on where it was.
"""

import argparse
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

from rasp_lab import REPOSITORY
from rasp_lab.ablations import page, tables
from rasp_lab.ablations.conditions import ALL, CONDITIONS, WRAPS, chosen, user_condition
from rasp_lab.ablations.runs import Runs

SECTIONS = {
    "robust": (tables.robust, "harder versions of the domains instead of ablations"),
    "switching": (tables.switching, "switching costs instead of ablations"),
    "guard": (tables.guard, "the guard instead of ablations"),
    "streams": (tables.streams, "the three tabular streams instead of ablations"),
    "leaders": (tables.leaders, "the leading experts instead of ablations"),
}


def main(arguments: Sequence[str] | None = None) -> None:
    given = _parser().parse_args(arguments)
    seeds = range(given.first_seed, given.first_seed + given.seeds)
    plan = tables.Plan(tuple(given.domains), seeds, given.horizon, Runs(given.cache, given.jobs))
    conditions = chosen(given.condition, CONDITIONS)
    if given.table:
        from rasp_lab.cli.table import read_options

        conditions.append(user_condition(read_options(given.table, {"metrics": given.metrics})))
    if given.page:
        if not given.tables_only:
            words = sys.argv[1:] if arguments is None else arguments
            command = f"python -m rasp_lab.ablations {shlex.join(words)}"
            page.measure(plan, conditions, command, given.page.parent / page.FOLDER, given.only)
        page.write(given.page, measured=not given.tables_only)
        return
    print(f"Cumulative regret relative to the static default: T = {plan.horizon}, {page.seeds_in_words(plan)}.\n")
    for name, (section, _) in SECTIONS.items():
        if getattr(given, name):
            print(tables.markdown(section(plan, given.wrap) if given.wrap and name == "leaders" else section(plan)))
            return
    tables.warm_up(plan, conditions, given.only)
    for condition in conditions:
        print(f"{condition.title}\n\n{tables.markdown(tables.ablations(plan, condition, given.only))}\n")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--page", type=Path, metavar="FILE", help="write everything into this Markdown file")
    parser.add_argument("--tables-only", action="store_true", help="run nothing: write the page from its tables")
    parser.add_argument("--seeds", type=int, default=5, help="how many")
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--domains", nargs="+", choices=ALL, default=ALL, metavar="DOMAIN")
    parser.add_argument("--horizon", type=int, default=100, help="steps of each run")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--only", default="", metavar="WORDS", help="ablations whose name has this in it")
    parser.add_argument("--condition", default="", metavar="WORDS", help="conditions whose title has this in it")
    parser.add_argument("--wrap", choices=WRAPS, help="how the domains of --leaders are made harder")
    parser.add_argument("--table", type=Path, metavar="FILE", help="a measured table of your own, npz")
    parser.add_argument("--metrics", metavar="NAME:min", help="what to make small or large in it")
    parser.add_argument("--cache", type=Path, default=REPOSITORY / "out" / "ablations", help="where runs are kept")
    section = parser.add_mutually_exclusive_group()
    for name, (_, help) in SECTIONS.items():
        section.add_argument(f"--{name}", action="store_true", help=help)
    return parser


if __name__ == "__main__":
    main()
