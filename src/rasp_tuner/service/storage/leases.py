"""Leases: which server owns which study, where several servers use one PostgreSQL.

A server is alive until the time in its row of `servers`, which it renews. A study belongs to the server in its own row,
and `epoch` counts its owners. Whoever needs a study whose owner is not alive takes it, by one UPDATE that counts the
epoch.

Every commit locks the rows of the studies it writes, and checks owner and epoch (`lost`). So a server that lost a study
cannot write to it, whatever it believes; clocks only decide when a study may be taken. All times are the database's. A
server knows that its lease holds from its own monotonic clock, read before the renewal was sent.
"""

import contextlib
import secrets
import time
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

import sqlalchemy as sa

from rasp_tuner.errors import InvalidValue
from rasp_tuner.service.storage.postgres import postgres_engine
from rasp_tuner.service.storage.store import SERVER_LEASE_S, Store, StoredStudy, study_row

LOCK_WAIT_MS = 1_000  # for the row of a study: its owner may have stopped in the middle of a commit
MAX_URL_CHARS = 255  # as many as its column has

_RENEW = """
    INSERT INTO servers (id, url, until) VALUES (:me, :url, clock_timestamp() + make_interval(secs => :ttl))
    ON CONFLICT (id) DO UPDATE SET until = excluded.until"""
_CLEAR = "DELETE FROM servers WHERE until < clock_timestamp() - make_interval(secs => 100 * :ttl)"
_ALIVE = (
    "SELECT id, url, extract(epoch FROM until - clock_timestamp()) AS rest FROM servers WHERE until > clock_timestamp()"
)
_FIND = """
    SELECT s.*, v.url, extract(epoch FROM v.until - clock_timestamp()) AS rest FROM studies s
    LEFT JOIN servers v ON v.id = s.owner AND v.until > clock_timestamp() WHERE s.name = :name"""
_TAKE = """
    UPDATE studies SET owner = :me, epoch = epoch + 1 WHERE id = :id AND epoch = :epoch AND NOT EXISTS (
    SELECT 1 FROM servers v WHERE v.id = owner AND v.until > clock_timestamp()) RETURNING *"""
_TAKE_ORPHANS = """
    UPDATE studies SET owner = :me, epoch = epoch + 1 WHERE id IN (
    SELECT s.id FROM studies s LEFT JOIN servers v ON v.id = s.owner AND v.until > clock_timestamp()
    WHERE v.id IS NULL AND (s.name IS NULL) = :deleted ORDER BY s.id DESC LIMIT :count FOR UPDATE OF s SKIP LOCKED)"""
_COUNT = """
    SELECT owner, count(name) AS studies, count(*) - count(name) AS deleted FROM studies GROUP BY owner"""
_NAMES = "SELECT name FROM studies WHERE name IS NOT NULL"
_MINE = "SELECT id, epoch FROM studies WHERE owner = :me AND name IS NOT NULL"
_DELETED = "SELECT id FROM studies WHERE name IS NULL AND owner = :me"
_FENCE = "SELECT id, epoch FROM studies WHERE owner = %s AND id = ANY(%s) FOR SHARE"
_HAND_OVER = "UPDATE studies SET owner = :target, epoch = epoch + 1 WHERE id = :id AND owner = :me AND epoch = :epoch"
_GIVE_BACK = "UPDATE studies SET owner = NULL WHERE owner = :me"
_LEAVE = "DELETE FROM servers WHERE id = :me"


@dataclass(frozen=True, slots=True)
class Peer:
    """Another server."""

    id: str
    url: str


@dataclass(frozen=True, slots=True)
class Survey:
    """Who owns what at this moment."""

    mine: dict[int, int]  # study -> epoch
    owned: dict[str, int]  # server that is alive -> number of its studies
    orphans: int  # studies whose owner is not alive
    unpurged: bool  # there are deleted studies that are ours, or nobody's


class BeingTaken(Exception):
    """Another server took the study at this moment: ask again."""


class Leases:
    """The lease of this server, and questions to the table; any thread may call it."""

    def __init__(self, store: Store, url: str, ttl_s: float = SERVER_LEASE_S) -> None:
        self.id, self.url, self.ttl_s = secrets.token_hex(8), checked_url(url), ttl_s
        settings = f"-c lock_timeout={LOCK_WAIT_MS}"
        self._engine = postgres_engine(store.url, ttl_s, connections=2, more=6, settings=settings)
        self._until = float("-inf")  # our lease, on the monotonic clock
        self._peers: dict[str, tuple[Peer, float]] = {}  # with their leases, as far as we know
        self.taken: dict[str, StoredStudy] = {}  # by `find`, until the writer has seen it
        self.leaving = False  # take nothing more
        self.lost_count = 0  # studies that were found to be another server's

    @property
    def holds(self) -> bool:
        """Whether no other server can have taken our studies."""
        return time.monotonic() < self._until

    def renew(self) -> None:
        """Renew the lease, and learn which servers are alive."""
        now = time.monotonic()
        with self._engine.begin() as connection:
            connection.execute(sa.text(_RENEW), {"me": self.id, "url": self.url, "ttl": self.ttl_s})
            alive = connection.execute(sa.text(_ALIVE)).all()
            connection.execute(sa.text(_CLEAR), {"ttl": self.ttl_s})
        self._until = now + self.ttl_s
        self._peers = {
            row.id: (Peer(row.id, row.url), time.monotonic() + float(row.rest)) for row in alive if row.id != self.id
        }

    def peers(self) -> list[Peer]:
        """Other servers that were alive when we last looked."""
        return [peer for peer, _ in list(self._peers.values())]

    def is_alive(self, peer: Peer) -> bool:
        """Whether a server was alive when we last looked; without a look for a whole lease it counts as gone."""
        known = self._peers.get(peer.id)
        return known is not None and time.monotonic() < known[1] + self.ttl_s

    def find(self, name: str) -> Peer | StoredStudy | None:
        """Who owns a study: another server, or this one, which takes it if nobody does; None: there is none."""
        with self._engine.begin() as connection:
            found = connection.execute(sa.text(_FIND), {"name": name}).one_or_none()
            if found is None:
                return None
            if found.url is not None and found.owner != self.id:
                peer = Peer(found.owner, found.url)
                self._peers[peer.id] = peer, time.monotonic() + float(found.rest)
                return peer
            if found.owner == self.id:
                row = study_row(found)
            else:
                heir = next(iter(self.peers()), None) if self.leaving else None
                given = {"me": heir.id if heir else self.id, "id": found.id, "epoch": found.epoch}
                taken = connection.execute(sa.text(_TAKE), given).one_or_none()
                if taken is None:
                    raise BeingTaken
                if heir is not None:
                    return heir
                row = study_row(taken)
        self.taken[name] = row
        return row

    def take_orphans(self, count: int, *, deleted: bool = False) -> int:
        """Take studies whose owner is not alive, at most so many; returns how many."""
        given = {"me": self.id, "deleted": deleted, "count": count}
        with self._engine.begin() as connection:
            return connection.execute(sa.text(_TAKE_ORPHANS), given).rowcount

    def survey(self) -> Survey:
        """Who owns what."""
        owned = dict.fromkeys([self.id, *(peer.id for peer in self.peers())], 0)
        orphans, unpurged = 0, False
        with self._engine.begin() as connection:
            for row in connection.execute(sa.text(_COUNT)):
                if row.owner in owned:
                    owned[row.owner] = row.studies
                else:
                    orphans += row.studies
                unpurged |= row.deleted > 0 and (row.owner == self.id or row.owner not in owned)
            mine = {row.id: row.epoch for row in connection.execute(sa.text(_MINE), {"me": self.id})}
        return Survey(mine, owned, orphans, unpurged)

    def names(self) -> list[str]:
        """The names of all studies, of all servers."""
        with self._engine.begin() as connection:
            return list(connection.execute(sa.text(_NAMES)).scalars())

    def deleted_studies(self) -> list[int]:
        """Deleted studies that this server is to purge; it takes those that are nobody's."""
        self.take_orphans(1_000_000, deleted=True)
        with self._engine.begin() as connection:
            return list(connection.execute(sa.text(_DELETED), {"me": self.id}).scalars())

    def lost(self, connection: sa.Connection, epochs: Mapping[int, int]) -> set[int]:
        """Which of these studies are not ours; the others stay ours until the transaction ends."""
        if not epochs:
            return set()
        found = connection.exec_driver_sql(_FENCE, (self.id, list(epochs)))
        ours = {(row.id, row.epoch) for row in found}
        lost = {id for id, epoch in epochs.items() if (id, epoch) not in ours}
        self.lost_count += len(lost)
        return lost

    def hand_over(self, connection: sa.Connection, study: int, epoch: int, target: str | None) -> None:
        """Give a study to another server, or to whoever needs it first (None)."""
        given = {"me": self.id, "target": target, "id": study, "epoch": epoch}
        connection.execute(sa.text(_HAND_OVER), given)

    def close(self) -> None:
        """Give back everything; a database that cannot be reached finds out when the lease is over."""
        self._until = float("-inf")
        with contextlib.suppress(sa.exc.SQLAlchemyError), self._engine.begin() as connection:
            connection.execute(sa.text(_GIVE_BACK), {"me": self.id})
            connection.execute(sa.text(_LEAVE), {"me": self.id})
        self._engine.dispose()


def checked_url(url: str) -> str:
    """An address of a server, without a trailing slash: scheme, host and port, nothing else."""
    parts = urlsplit(url.rstrip("/"))
    plain = parts.path == parts.query == parts.fragment == "" and parts.username is None
    if parts.scheme not in ("http", "https") or not parts.hostname or not plain or len(url) > MAX_URL_CHARS:
        raise InvalidValue(f"--advertise must be like http://10.0.0.5:8321, got {url[:80]!r}")
    return url.rstrip("/")
