"""Tables of which only what depends on the engine was measured again; all other rows stay as they were."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from rasp_lab.bench.domains import SYNTHETIC
from rasp_lab.pages import csv_tables
from rasp_lab.paper.plan import BRIDGE, OF_ENGINE, PEERS
from rasp_tuner.errors import InvalidValue
from rasp_tuner.page.html_page import Table

_COMPONENTS = {component for agent, (component, _) in BRIDGE.items() if agent in OF_ENGINE}
OF_ROWS: Mapping[str, tuple[int, Callable[[Sequence[str]], bool]]] = {  # table -> columns that name a row, is it ours
    "readings": (1, lambda row: row[0].strip("`") in OF_ENGINE),
    "bridge": (1, lambda row: row[0] in _COMPONENTS),
    "ratios": (1, lambda row: row[0] in OF_ENGINE),
    "streams": (2, lambda row: row[1].removeprefix("here, ") in OF_ENGINE),
    "claims": (3, lambda row: row[2] in OF_ENGINE),
}  # others have no row of the engine


def with_earlier(found: Mapping[str, Table], folder: Path) -> tuple[dict[str, Table], list[str]]:
    """The tables of a folder, with the rows of the engine as found now; and which tables are of today's engine.

    A table stays as it was if not all of its rows of the engine were found now.
    """
    merged, renewed = {}, []
    for file in sorted(folder.glob("*.csv")):
        head, rows = csv_tables.read(file)
        names, is_engines = OF_ROWS.get(file.stem, (1, lambda _: False))
        now_head, now = found.get(file.stem, (head, []))
        if now_head != head and now:
            raise InvalidValue(f"{file} must have the columns {', '.join(now_head)}; run `make paper` for all rows")
        whole = [row for row in now if file.stem != "streams" or "-" not in row]  # with all peers beside it
        fresh = {tuple(row[:names]): row for row in whole if is_engines(row)}
        wanted = {tuple(row[:names]) for row in rows if is_engines(row)}
        merged[file.stem] = head, rows
        if wanted and wanted <= set(fresh):
            renewed.append(file.stem)
            rows = [fresh.pop(tuple(row[:names])) if is_engines(row) else row for row in rows]
            merged[file.stem] = head, [*rows, *fresh.values()]
    if "readings" in renewed:
        merged["readings"] = ahead_by_ratios(merged["readings"], merged["ratios"])
    return merged, renewed


def ahead_by_ratios(readings: Table, ratios: Table) -> Table:
    """The readings; where a peer did not run again, its regret relative to static decides who is ahead."""
    of_agent = {row[0]: row for row in ratios[1]}
    columns = {"ahead of both peers": PEERS[:2], "and at their best": PEERS}
    rows = [list(row) for row in readings[1]]
    for row in rows:
        own = of_agent.get(row[0].strip("`"))
        for name, peers in columns.items():
            at = readings[0].index(name)
            if own and row[at] == "-" and all(peer in of_agent for peer in peers):
                best = [min(float(of_agent[peer][i]) for peer in peers) for i in range(1, 1 + len(SYNTHETIC))]
                row[at] = str(sum(float(own[i]) < least for i, least in enumerate(best, 1)))
    return readings[0], rows
