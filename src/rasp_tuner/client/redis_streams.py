"""Redis Streams between edges and a server: `RedisEdge` is the study that an Edge talks to, `RedisTells` what
`rasp stream` reads.

rasp:STUDY:tells      a message for each batch of sums, in its field `tell`; gone once the server has it on disk
rasp:STUDY:policies   the latest policy, in the field `policy`, with its `version`
rasp:STUDY:refused    the latest messages that nobody could learn, each with the `reason`
"""

import json
import socket
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

import redis

from rasp_tuner.client.errors import AccessDenied, ServerUnavailable
from rasp_tuner.client.stream import Message
from rasp_tuner.errors import InvalidValue

GROUP = "rasp"
PREFIX = "rasp:"
MOST_WAITING = 100_000  # messages that nobody has read, beyond which edges keep theirs
MOST_REFUSED = 1000  # messages that are kept, with the reason
FORGOTTEN_S = 60.0  # after which somebody else takes what a reader received and did not acknowledge
TIMEOUT_S = 5.0  # of a call


class _Keys:
    """The names that a study has in Redis."""

    def __init__(self, study: str, prefix: str) -> None:
        if not study:
            raise InvalidValue("study must be the name of a study")
        self.tells, self.policies, self.refused = (f"{prefix}{study}:{one}" for one in ("tells", "policies", "refused"))


class RedisEdge:
    """A study behind Redis, for `Edge(RedisEdge("redis://127.0.0.1:6379", "web"))`; the server is not needed."""

    def __init__(self, url: str, study: str, prefix: str = PREFIX) -> None:
        self._keys, self._url, self._redis = _Keys(study, prefix), url, _connection(url)

    def policy(self, outcomes: int | None = None, version: str | None = None) -> dict[str, Any] | None:
        """The latest policy; None if it is still the one of this version. How often there is one the bridge says."""
        del outcomes
        with _plain_errors(self._url, self._keys.policies):
            found = self._redis.xrevrange(self._keys.policies, count=1)
        if not found:
            raise ServerUnavailable(f"there is no policy in {self._keys.policies} yet: start `rasp stream`")
        fields = found[0][1]
        if version is not None and fields.get(b"version") == version.encode():
            return None
        try:
            policy: dict[str, Any] = json.loads(fields[b"policy"])
        except (KeyError, ValueError, RecursionError):
            raise InvalidValue(f"what is in {self._keys.policies} is no policy") from None
        return policy

    def tell_sums(self, source: str, sequence: int, sums: Sequence[Mapping[str, Any]]) -> str:
        """Put sums into the stream; whether they were new is known to the server alone."""
        body = json.dumps({"source": source, "sequence": sequence, "sums": list(sums)})
        with _plain_errors(self._url, self._keys.tells):
            if self._redis.xlen(self._keys.tells) >= MOST_WAITING:
                raise ServerUnavailable(f"{self._keys.tells} is full: does `rasp stream` run?")
            self._redis.xadd(self._keys.tells, {"tell": body})
        return "sent"

    def close(self) -> None:
        """Close the connection; the next call opens another one."""
        self._redis.close()


class RedisTells:
    """The tells of a study in Redis, as a reader of the group `rasp` gets them: a TellLog (stream.py)."""

    def __init__(self, url: str, study: str, prefix: str = PREFIX, reader: str | None = None) -> None:
        self._keys, self._url, self._redis = _Keys(study, prefix), url, _connection(url)
        self._reader = reader or socket.gethostname()
        self._own_first, self._looked = True, -FORGOTTEN_S
        self._make_group()

    @property
    def stream(self) -> str:
        """The name of the stream of tells."""
        return self._keys.tells

    def receive(self, most: int, wait_s: float) -> list[Message]:
        """What this reader received and did not acknowledge; then what others did not for a minute; then new ones."""
        with self._reading():
            if self._own_first:  # after a start, or an error: what was received last time
                found = self._read("0", most, None)
                self._own_first = bool(found)
                if found:
                    return found
            if time.monotonic() - self._looked >= FORGOTTEN_S:
                idle = int(1000 * FORGOTTEN_S)
                claimed = self._redis.xautoclaim(self._keys.tells, GROUP, self._reader, idle, count=most)[1]
                if claimed:
                    return _messages(claimed)
                self._looked = time.monotonic()
            return self._read(">", most, max(int(1000 * wait_s), 1))

    def acknowledge(self, message: Message) -> None:
        with self._reading(), self._redis.pipeline() as together:
            together.xack(self._keys.tells, GROUP, message.id)
            together.xdel(self._keys.tells, message.id)
            together.execute()

    def refuse(self, message: Message, reason: str) -> None:
        kept = {"id": message.id, "reason": reason, "tell": b"" if message.body is None else message.body}
        with _plain_errors(self._url, self._keys.refused):
            self._redis.xadd(self._keys.refused, kept, maxlen=MOST_REFUSED, approximate=False)
        self.acknowledge(message)

    def publish(self, policy: Mapping[str, Any]) -> None:
        fields = {"version": policy["explore"]["version"], "policy": json.dumps(policy)}
        with _plain_errors(self._url, self._keys.policies):
            self._redis.xadd(self._keys.policies, fields, maxlen=1, approximate=False)

    def close(self) -> None:
        """Close the connection; the next call opens another one."""
        self._redis.close()

    def _read(self, after: str, most: int, wait_ms: int | None) -> list[Message]:
        found = self._redis.xreadgroup(GROUP, self._reader, {self._keys.tells: after}, count=most, block=wait_ms)
        return [message for _, entries in found for message in _messages(entries)]

    @contextmanager
    def _reading(self) -> Iterator[None]:
        """A group that is gone, as after a start of Redis without its data, is made again."""
        try:
            with _plain_errors(self._url, self._keys.tells):
                yield
        except _NoGroup:
            self._make_group()
            raise ServerUnavailable(f"{self._keys.tells} was lost, and is begun anew") from None
        except ServerUnavailable:
            self._own_first = True
            raise

    def _make_group(self) -> None:
        with _plain_errors(self._url, self._keys.tells):
            try:
                self._redis.xgroup_create(self._keys.tells, GROUP, id="0", mkstream=True)
            except redis.ResponseError as reason:
                if not str(reason).startswith("BUSYGROUP"):
                    raise


class _NoGroup(Exception):
    """The stream, or its group of readers, is gone."""


def _messages(entries: Any) -> list[Message]:
    """Entries of a stream; one that somebody deleted meanwhile has no fields."""
    return [Message(id.decode(), fields.get(b"tell")) for id, fields in entries]


def _connection(url: str) -> Any:
    try:
        return redis.Redis.from_url(url, socket_timeout=TIMEOUT_S, socket_connect_timeout=TIMEOUT_S)
    except ValueError as reason:
        raise InvalidValue(f"{_shown(url)!r} is no address of Redis, as redis://127.0.0.1:6379: {reason}") from None


def _shown(url: str) -> str:
    """An address without its password."""
    parts = urlsplit(url)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()


@contextmanager
def _plain_errors(url: str, key: str) -> Iterator[None]:
    """Errors of Redis in words of ours."""
    try:
        yield
    except (redis.AuthenticationError, redis.exceptions.NoPermissionError) as reason:
        raise AccessDenied(f"Redis at {_shown(url)} refuses: {reason}") from None
    except redis.ResponseError as reason:
        said = str(reason)
        if said.startswith("WRONGTYPE"):
            raise InvalidValue(f"{key} in Redis at {_shown(url)} is not a stream: choose another --prefix") from None
        if said.startswith(("NOGROUP", "UNBLOCKED")):
            raise _NoGroup from None
        raise ServerUnavailable(f"Redis at {_shown(url)} cannot now: {said}") from None
    except redis.RedisError as reason:
        raise ServerUnavailable(f"no Redis answers at {_shown(url)}: {reason}") from None
