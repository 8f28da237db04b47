"""API keys `rasp_<id>_<secret>`: only a hash of the secret is kept; each has a scope, for one study or for all."""

import hashlib
import hmac
import re
import secrets
import time
from dataclasses import dataclass
from typing import Literal, get_args

from rasp_tuner.errors import InvalidValue
from rasp_tuner.service.storage.store import KeyRow, Store
from rasp_tuner.service.study.definition import NAME

Scope = Literal["read", "write", "admin"]
SCOPES: tuple[Scope, ...] = get_args(Scope)  # each holds those before it
NOBODY = hashlib.sha256(b"").hexdigest()  # compared with when there is no such key, so that both take as long


@dataclass(frozen=True, slots=True)
class Caller:
    """Who asks, and what they may do."""

    name: str  # id of the key; "local" where there are no keys
    scope: Scope
    study: str | None = None  # the only one, or all

    def may(self, scope: str, study: str | None) -> bool:
        """Whether the caller may do what needs `scope`, on one study or on all of them."""
        return SCOPES.index(self.scope) >= _rank(scope) and self.study in (None, study)


class Keys:
    """The keys, as last read; replaced as a whole, so any thread may look."""

    def __init__(self, store: Store, open_without: bool) -> None:
        self._store, self._open_without = store, open_without
        self._rows: dict[str, KeyRow] = {}
        self.reload()

    def reload(self) -> None:
        self._rows = {row.id: row for row in self._store.list_keys()}

    @property
    def open(self) -> bool:
        """Whether everything is allowed: on loopback, while no key was ever made."""
        return self._open_without and not self._rows

    def caller(self, given: str | None) -> Caller | None:
        """Who presents this key; None for nobody."""
        if self.open:
            return Caller("local", "admin")
        parts = (given or "").split("_")
        row = self._rows.get(parts[1]) if len(parts) == 3 and parts[0] == "rasp" else None
        digest = _digest(parts[2]) if len(parts) == 3 else NOBODY
        same = hmac.compare_digest(digest, NOBODY if row is None else row.sha256)
        if row is None or not same or row.revoked is not None or row.scope not in SCOPES:
            return None
        return Caller(row.id, row.scope, row.study)


def create_key(store: Store, scope: str, study: str | None = None, label: str = "") -> tuple[str, KeyRow]:
    """A new key, shown once, and its row."""
    if scope not in SCOPES:
        raise InvalidValue(f"scope must be one of {list(SCOPES)}, got {scope!r}")
    if study is not None and not re.fullmatch(NAME, study):
        raise InvalidValue(f"study must be a study's name, got {study!r}")
    if len(label) > 128 or not label.isprintable():
        raise InvalidValue(f"label must be at most 128 printable characters, got {label[:140]!r}")
    id, secret = secrets.token_hex(4), secrets.token_hex(24)
    row = KeyRow(id, _digest(secret), scope, study, label, time.time(), None)
    store.add_key(row)
    return f"rasp_{id}_{secret}", row


def _digest(secret: str) -> str:
    return hashlib.sha256(secret.encode("utf-8", "surrogateescape")).hexdigest()


def _rank(scope: str) -> int:
    return SCOPES.index(scope) if scope in SCOPES else len(SCOPES)
