"""What `rasp doctor` finds in a database: damaged pages, changed events, events that are missing, bad snapshots."""

import hashlib
import json
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
from rasp_tuner.service.study.study_snapshot import made_with, maker

MAX_SNAPSHOTS_READ = 20
MAX_NAMED = 5  # studies or events that are named one by one
ROWS_PER_CHUNK = 2_000
ALIVE = "SELECT url FROM servers WHERE until > clock_timestamp() ORDER BY url"
RESTORE = "bring back a backup, or export the other studies and delete these"


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
        yield _events(connection, names)
        yield from _snapshots(connection, names)
        if engine.dialect.name == "postgresql":
            alive = connection.execute(sa.text(ALIVE)).scalars().all()
            yield HealthCheck("servers", True, ", ".join(alive) or "none runs on this database")
        yield _content(connection)


def _integrity(connection: sa.Connection) -> HealthCheck:
    try:
        said = [str(line) for line in connection.exec_driver_sql(f"PRAGMA quick_check({MAX_NAMED})").scalars()]
    except DBAPIError as error:
        said = [str(error.orig)]
    good = said == ["ok"]
    return HealthCheck("integrity", good, "; ".join(said), "" if good else "pages are damaged: bring back a backup")


def _events(connection: sa.Connection, names: Mapping[int, str]) -> HealthCheck:
    """Whether each event has its checksum and none is missing."""
    bad = {name: why for id, name in names.items() if (why := "; ".join(_faults(connection, id)))}
    if not bad:
        return HealthCheck("events", True, "each has its checksum, none is missing")
    said = "; ".join(f"{name}: {why}" for name, why in list(bad.items())[:MAX_NAMED])
    more = f"; and {len(bad) - MAX_NAMED} studies more" if len(bad) > MAX_NAMED else ""
    return HealthCheck("events", False, said + more, RESTORE)


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


def _snapshots(connection: sa.Connection, names: Mapping[int, str]) -> Iterator[HealthCheck]:
    """Who made the newest snapshots of some studies, and those that cannot be restored."""
    newest = sa.select(snapshots.c.study, sa.func.max(snapshots.c.seq)).group_by(snapshots.c.study)
    makers, bad = Counter[str](), list[str]()
    try:
        for study, seq in connection.execute(newest.limit(MAX_SNAPSHOTS_READ)).all():
            try:
                data = _restorable(connection, study, seq)
                makers.update([] if data is None else [_words(maker(data))])
            except (ValueError, KeyError, TypeError, RaspError):
                bad.append(names.get(study, f"study number {study}"))
    except DBAPIError as error:
        yield HealthCheck("snapshots", False, str(error.orig).splitlines()[0], RESTORE)
        return
    if bad:
        said = f"the newest snapshot is damaged of {', '.join(bad[:MAX_NAMED])}"
        yield HealthCheck("snapshots", False, said, "an older one, or the log, is used: a start takes longer")
    elif makers:
        said = ", ".join(f"{number} by {words}" for words, number in makers.most_common(3))
        own = _words(made_with())
        mend = f"this is {own}: replayed asks may differ; rasp_diverged_total counts them"
        yield HealthCheck("snapshots", True, said, "" if set(makers) == {own} else mend)


def _restorable(connection: sa.Connection, study: int, seq: int) -> bytes | None:
    """The bytes of a snapshot; raises what `study_snapshot.restore` raises if a server could not use it.

    None if a server has replaced it meanwhile.
    """
    found = sa.select(snapshots).where(snapshots.c.study == study, snapshots.c.seq == seq)
    row = connection.execute(found).one_or_none()
    stored = connection.execute(sa.select(studies.c.definition).where(studies.c.id == study)).scalar()
    if row is None or stored is None:
        return None
    if hashlib.sha256(row.data).hexdigest() != row.sha256:
        raise ValueError("wrong checksum")
    study_snapshot.restore(row.data, study, StudyDefinition.from_wire(json.loads(stored)), 0.0)
    data: bytes = row.data
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
