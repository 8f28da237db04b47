"""API keys `rasp_<id>_<secret>`: only a hash of the secret is stored. A key has a scope, for one study or for all."""

import hashlib
import hmac
import re
import secrets
import time
from dataclasses import dataclass
from typing import Literal, get_args

from rasp_tuner.base.checks import one_of
from rasp_tuner.errors import InvalidValue
from rasp_tuner.service.storage.store import KeyRow, Store
from rasp_tuner.service.study.definition import NAME_PATTERN

Scope = Literal["read", "write", "admin"]
SCOPES: tuple[Scope, ...] = get_args(Scope)  # each includes those before it
RANKS: dict[str, int] = {scope: rank for rank, scope in enumerate(SCOPES)}
NO_KEY_SHA256 = hashlib.sha256(b"").hexdigest()  # compared if there is no such key: takes as long as with one


@dataclass(frozen=True, slots=True)
class Caller:
    """Who makes a request, and what they may do."""

    name: str  # id of the key; "local" if there are no keys
    scope: Scope
    study: str | None = None  # the only allowed study; None: all

    def is_allowed(self, scope: str, study: str | None) -> bool:
        """Whether the caller has `scope`, for one study or for all (None)."""
        return RANKS[self.scope] >= RANKS.get(scope, len(RANKS)) and self.study in (None, study)


LOCAL = Caller("local", "admin")  # whoever calls while there are no keys


class ApiKeys:
    """The keys as last read. They are replaced as a whole, so any thread may read them."""

    def __init__(self, store: Store, open_without: bool) -> None:
        self._store, self._open_without = store, open_without
        self._rows: dict[str, KeyRow] = {}
        self._counts: tuple[int, int] | None = None  # of `_rows`, or less: read before them
        self.reload()

    def reload(self) -> None:
        """Read the keys if they have changed: none is ever deleted, and none is valid again once revoked."""
        counts = self._store.count_keys()
        if counts != self._counts:
            self._rows = {row.id: row for row in self._store.list_keys()}
            self._counts = counts

    @property
    def is_open(self) -> bool:
        """Whether everything is allowed: on loopback, if no key was ever made."""
        return self._open_without and not self._rows

    def is_valid(self, caller: Caller) -> bool:
        """Whether a caller that was found before would be found now."""
        row = self._rows.get(caller.name)
        return self.is_open if row is None else row.revoked is None

    def shown(self, name: str) -> str:
        """A caller's name for people: the label of the key, if it has one."""
        row = self._rows.get(name)
        return row.label or name if row is not None else name

    def find_caller(self, given: str | None) -> Caller | None:
        """The owner of this key; None if it is not valid."""
        if self._open_without and not self._rows:
            return LOCAL
        parts = (given or "").split("_")
        row = self._rows.get(parts[1]) if len(parts) == 3 and parts[0] == "rasp" else None
        digest = _digest(parts[2]) if len(parts) == 3 else NO_KEY_SHA256
        same = hmac.compare_digest(digest, NO_KEY_SHA256 if row is None else row.sha256)
        if row is None or not same or row.revoked is not None or row.scope not in SCOPES:
            return None
        return Caller(row.id, row.scope, row.study)


def create_key(store: Store, scope: str, study: str | None = None, label: str = "") -> tuple[str, KeyRow]:
    """A new key, shown only now, and its row."""
    one_of("scope", scope, SCOPES)
    if study is not None and not re.fullmatch(NAME_PATTERN, study):
        raise InvalidValue(f"study must be a study's name, got {study!r}")
    if len(label) > 128 or not label.isprintable():
        raise InvalidValue(f"label must be at most 128 printable characters, got {label[:140]!r}")
    id, secret = secrets.token_hex(4), secrets.token_hex(24)
    row = KeyRow(id, _digest(secret), scope, study, label, time.time(), None)
    store.add_key(row)
    return f"rasp_{id}_{secret}", row


def _digest(secret: str) -> str:
    return hashlib.sha256(secret.encode("utf-8", "surrogateescape")).hexdigest()
