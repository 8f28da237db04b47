"""Which pages have figures of an older engine, and the line that says so in their head.

Run: python -m rasp_lab.pages                       list every page: version, commit, date and engine of its figures
     python -m rasp_lab.pages --write               put the heads of all pages right; after a change of the engine
     python -m rasp_lab.pages --record RESULTS.md   figures were measured with the engine as it is; writes the head, too
     python -m rasp_lab.pages --record RESULTS.md --commit 7d67dcb --of "random worlds"
     python -m rasp_lab.pages --record PAPER.md --commit c1ccc5a3 --of "all else" --apart     no engine moves them
     python -m rasp_lab.pages --measure LIMITS.md   run the commands of its tables, keep what they print, and record it

`make results` and `make real` record what they measure themselves. After --measure, read the page: its prose is yours.
"""

import argparse
import sys
from collections.abc import Sequence
from dataclasses import replace

from rasp_lab import REPOSITORY
from rasp_lab.pages import origin
from rasp_lab.pages.measure import COMMANDS, measure

DOCS = REPOSITORY / "docs"


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit status 1 if a page lacks the head that it should have."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="put the heads of all pages right")
    parser.add_argument("--record", metavar="PAGE", help="the page whose figures were measured")
    parser.add_argument("--measure", metavar="PAGE", choices=COMMANDS, help=f"one of {', '.join(COMMANDS)}")
    parser.add_argument("--commit", default="HEAD", help="with which commit; the working tree if absent")
    parser.add_argument("--of", default="", metavar="WHAT", help="which of its figures, where they differ in age")
    parser.add_argument("--apart", action="store_true", help="figures that no engine moves, as of the paper's agents")
    given = parser.parse_args(arguments)
    if given.measure:
        changed = measure(given.measure)
        print(f"changed: {', '.join(changed) or 'nothing'}")
        given.record = given.measure
    if given.record:
        if not (DOCS / given.record).is_file():
            parser.error(f"{DOCS / given.record} must be a page, such as RESULTS.md")
        found = origin.origin_of(given.commit, given.of)
        origin.record(given.record, replace(found, engine=origin.WITHOUT_ENGINE) if given.apart else found)
    wrong = wrong_heads()
    if given.write or given.record:
        for page in wrong:
            (DOCS / page).write_text(right(page))
            print(f"wrote the head of {page}")
        return 0
    print(listing())
    for page in wrong:
        print(f"{page} lacks the line of its figures: python -m rasp_lab.pages --write", file=sys.stderr)
    return 1 if wrong else 0


def right(page: str) -> str:
    """The page with the head that it should have."""
    return origin.with_head((DOCS / page).read_text(), origin.head(page))


def wrong_heads() -> list[str]:
    """Pages whose head does not say which engine their figures are of, or that it is an older one."""
    return [page for page in origin.load() if (DOCS / page).read_text() != right(page)]


def listing() -> str:
    """One line for each page and kind of figures, those of an older engine first."""
    today = origin.engine_hash()
    lines = [f"engine of today: {today}"]
    found = [(page, o) for page, origins in origin.load().items() for o in origins]
    for page, o in sorted(found, key=lambda item: (not item[1].is_older(today), item[1].day)):
        state = "older" if o.is_older(today) else "today's" if o.engine == today else o.engine
        lines.append(f"{state:8}{page:16}{o.day}  {o.commit:9}{o.version:12}{o.engine:14}{o.what}".rstrip())
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
