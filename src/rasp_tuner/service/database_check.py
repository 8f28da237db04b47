"""What `rasp doctor` finds in a database: damaged pages, changed or missing events, bad snapshots, wrong clocks."""

import hashlib
import json
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import sqlalchemy as sa
from sqlalchemy.exc import DBAPIError

from rasp_tuner.errors import RaspError
from rasp_tuner.service.storage.event_rows import is_sound
from rasp_tuner.service.storage.schema_version import mend_of, version
from rasp_tuner.service.storage.tables import SCHEMA_VERSION, events, keys, snapshots, studies
from rasp_tuner.service.study import study_snapshot
from rasp_tuner.service.study.definition import StudyDefinition
from rasp_tuner.service.study.event_time import MAX_WAIT_S
from rasp_tuner.service.study.study_snapshot import made_with, maker

MAX_NAMED = 5  # studies or events that are named one by one
ROWS_PER_CHUNK = 2_000
ALIVE = "SELECT url FROM servers WHERE until > clock_timestamp() ORDER BY url"
RESTORE = "bring back a backup, or export the other studies and delete these"
DAMAGED = "stop the server, keep a copy of the folder, bring back a backup"
HOUR_S = 3_600.0


@dataclass(frozen=True, slots=True)
class HealthCheck:
    """The result of one check; `rasp doctor --json` prints the fields."""

    name: str
    good: bool
    said: str
    mend: str = ""


def check_database(engine: sa.Engine) -> Iterator[HealthCheck]:
    """The results; raises if the database cannot be read at all."""
    with engine.connect() as connection:
        found = version(connection)
        if found is None:
            yield HealthCheck("schema", False, "the database holds no tables of this service", "rasp serve makes them")
            return
        good = found == SCHEMA_VERSION
        said = f"version {found}, this program has {SCHEMA_VERSION}"
        yield HealthCheck("schema", good, said, "" if good else mend_of(found))
        if not good:
            return
        if engine.dialect.name == "sqlite":
            yield _integrity(connection)
        named = sa.select(studies.c.id, studies.c.name).where(studies.c.name.is_not(None))
        names = {id: str(name) for id, name in connection.execute(named)}  # rows of deleted ones are going
        unreadable = [name for id, name in names.items() if _definition(connection, id) is None]
        if unreadable:
            said = f"{_listed(unreadable)}: the definition is damaged, the study is not served"
            yield HealthCheck("studies", False, said, RESTORE)
        yield _events(connection, names)
        yield from _clock(connection, names)
        yield _snapshots(connection, {id: name for id, name in names.items() if name not in unreadable})
        if engine.dialect.name == "postgresql":
            alive = connection.execute(sa.text(ALIVE)).scalars().all()
            yield HealthCheck("servers", True, ", ".join(alive) or "none runs on this database")
        yield _content(connection)


def _integrity(connection: sa.Connection) -> HealthCheck:
    try:
        said = [str(line) for line in connection.exec_driver_sql("PRAGMA quick_check").scalars()]
    except DBAPIError as error:
        said = [str(error.orig)]
    if said == ["ok"]:
        return HealthCheck("integrity", True, "pages are whole")
    lines = [line for line in "\n".join(said).splitlines() if not line.startswith("***")]
    more = f", and {len(lines) - 1} faults more" if len(lines) > 1 else ""
    return HealthCheck("integrity", False, f"the file has damaged pages ({lines[0]}{more})", DAMAGED)


def _definition(connection: sa.Connection, study: int) -> StudyDefinition | None:
    """What a study is; None if that cannot be read."""
    query = sa.select(studies.c.definition).where(studies.c.id == study)
    try:
        return StudyDefinition.from_wire(json.loads(connection.execute(query).scalar_one()))
    except (ValueError, KeyError, TypeError, RaspError, DBAPIError):
        return None


def _events(connection: sa.Connection, names: Mapping[int, str]) -> HealthCheck:
    """Whether each event has its checksum and none is missing."""
    bad = {name: why for id, name in names.items() if (why := "; ".join(_faults(connection, id)))}
    if not bad:
        return HealthCheck("events", True, "each has its checksum, none is missing")
    said = _listed([f"{name}: {why}" for name, why in bad.items()], "; ")
    return HealthCheck("events", False, f"{said} (what is damaged is not served)", RESTORE)


def _listed(words: list[str], between: str = ", ") -> str:
    """The first of them, and how many more there are."""
    more = f"{between}and {len(words) - MAX_NAMED} studies more" if len(words) > MAX_NAMED else ""
    return between.join(words[:MAX_NAMED]) + more


def _faults(connection: sa.Connection, study: int) -> Iterator[str]:
    """What is wrong with the log of a study."""
    last, wrong, missing, lost = 0, list[int](), 0, 0
    newest = sa.select(sa.func.max(snapshots.c.seq)).where(snapshots.c.study == study)
    try:
        saved = connection.execute(newest).scalar() or 0  # first: a server may add events and snapshots meanwhile
        for row in _rows(connection, study):
            missing += row.seq - last - 1
            last = row.seq
            if not is_sound(row):
                wrong.append(row.seq)
        lost = saved - last
    except DBAPIError as error:
        yield f"damaged after event {last} ({str(error.orig).splitlines()[0]})"
    if wrong:
        named = ", ".join(map(str, wrong[:MAX_NAMED])) + (", ..." if len(wrong) > MAX_NAMED else "")
        yield f"{len(wrong)} {_events_are(len(wrong))} damaged or changed ({named})"
    if missing:
        yield f"{missing} {_events_are(missing)} missing"
    if lost > 0:
        yield f"the last {lost} {_events_are(lost)} missing"


def _events_are(count: int) -> str:
    return "event is" if count == 1 else "events are"


def _rows(connection: sa.Connection, study: int) -> Iterator[sa.Row[tuple[object, ...]]]:
    after = -1
    while True:
        query = sa.select(events).where(events.c.study == study, events.c.seq > after).order_by(events.c.seq)
        rows = connection.execute(query.limit(ROWS_PER_CHUNK)).all()
        yield from rows
        if len(rows) < ROWS_PER_CHUNK:
            return
        after = rows[-1].seq


def _clock(connection: sa.Connection, names: Mapping[int, str]) -> Iterator[HealthCheck]:
    """Whether events come from the future; nothing if none does."""
    ahead = {}
    for id, name in names.items():
        newest = sa.select(events.c.at).where(events.c.study == id).order_by(events.c.seq.desc()).limit(1)
        try:
            by = float(connection.execute(newest).scalar() or 0.0) - time.time()
        except (DBAPIError, ValueError):
            continue  # the other checks name what is damaged
        if by > MAX_WAIT_S:
            ahead[name] = by
    if ahead:
        hours = max(ahead.values()) / HOUR_S
        said = f"the newest event of {_listed(list(ahead))} is up to {hours:.1f} hours ahead of this machine's clock"
        mend = "set the clock, if it is behind; if it was ahead before, ages and leases of these events are wrong"
        yield HealthCheck("clock", False, said, mend)


def _snapshots(connection: sa.Connection, names: Mapping[int, str]) -> HealthCheck:
    """Who made the newest snapshots, and which studies have some that cannot be restored."""
    makers, bad = Counter[str](), list[str]()
    for id, name in names.items():
        try:
            data = _restorable(connection, id)
            makers.update([] if data is None else [_words(maker(data))])
        except (ValueError, KeyError, TypeError, RaspError, DBAPIError):
            bad.append(name)
    if bad:
        said = f"{_listed(bad)}: a snapshot is damaged; no event is lost by that, but a start takes longer"
        mend = "none needed: an older one or the log is used, and the next replaces it; look for what damages files"
        return HealthCheck("snapshots", False, said, mend)
    if not makers:
        return HealthCheck("snapshots", True, "none yet")
    said = ", ".join(f"{number} by {words}" for words, number in makers.most_common(3))
    own = _words(made_with())
    mend = f"this is {own}: replayed asks may differ; rasp_diverged_total counts them"
    return HealthCheck("snapshots", True, said, "" if set(makers) == {own} else mend)


def _restorable(connection: sa.Connection, study: int) -> bytes | None:
    """The newest snapshot of a study; raises what `study_snapshot.restore` raises if a server could not use it.

    None if there is none. Of older ones only the checksum is compared.
    """
    query = sa.select(snapshots).where(snapshots.c.study == study).order_by(snapshots.c.seq.desc())
    rows = connection.execute(query).all()
    for row in rows:
        if hashlib.sha256(row.data).hexdigest() != row.sha256:
            raise ValueError("wrong checksum")
    definition = _definition(connection, study)
    if not rows or definition is None:
        return None
    data: bytes = rows[0].data
    study_snapshot.restore(data, study, definition, 0.0)
    return data


def _words(made: Mapping[str, str]) -> str:
    if not made:
        return "an older version"
    return f"rasp-tuner {made['version']} ({made['kernel']}, NumPy {made['numpy']}, {made['machine']})"


def _content(connection: sa.Connection) -> HealthCheck:
    try:
        count = {
            table.name: connection.execute(sa.select(sa.func.count()).select_from(table)).scalar()
            for table in (studies, events, keys)
        }
    except DBAPIError as error:
        return HealthCheck("content", False, str(error.orig).splitlines()[0], RESTORE)
    return HealthCheck("content", True, ", ".join(f"{number} {name}" for name, number in count.items()))
