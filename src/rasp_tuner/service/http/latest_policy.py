"""LatestPolicies: policies that explore, made anew as studies learn, and which picks of them were handed out."""

import asyncio
import json
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

from rasp_tuner.policy.evaluate import Pick
from rasp_tuner.service.json_codec import dumps
from rasp_tuner.service.service import Service
from rasp_tuner.service.service_errors import Conflict
from rasp_tuner.service.study.live_study import LiveStudy
from rasp_tuner.service.study.suggestion_record import put_bounded
from rasp_tuner.tuner import Tuner

POLICY_EVERY_S = 1.0  # a policy is made anew at the most so often, however many ask for it ...
POLICY_REST = 10.0  # ... or after so many times the time that making it took, if that is less
MOST_POLICIES = 256  # kept
MOST_PICKS = 20_000  # handed out, of all studies, whose outcome can be told
STEPS_FOR_POLICY = 512  # of the latest, whose contexts a policy is made of
MANY = 10**11  # outcomes
DEFAULT_LEAVES = 16


class MadePolicy(NamedTuple):
    etag: str
    body: bytes


class Version(NamedTuple):
    """Of a study: what a policy is made of."""

    study: int
    seq: int  # of its latest event
    learned: int


@dataclass
class _Kept:
    """The latest policy of a study."""

    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    rests_until: float = 0.0
    of: Version | None = None
    policy: MadePolicy = field(default_factory=lambda: MadePolicy("", b""))
    parsed: dict[str, Any] | None = None


class LatestPolicies:
    """Of one service; all on the event loop."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._kept: dict[tuple[str, int | None, int], _Kept] = {}
        self._picks: dict[tuple[int, str], Pick] = {}

    async def latest(self, study: str, outcomes: int | None, leaves: int = DEFAULT_LEAVES) -> MadePolicy:
        """The policy, made in a thread of its own, so that nobody else waits for it.

        `outcomes` are expected until the next one; None: as many as came since the last one.
        """
        return (await self._latest(study, outcomes, leaves)).policy

    async def parsed(self, study: str) -> tuple[int, dict[str, Any]]:
        """The study's number, and its latest policy as an evaluator takes it."""
        kept = await self._latest(study, None, DEFAULT_LEAVES)
        if kept.parsed is None:
            kept.parsed = json.loads(kept.policy.body)
        return 0 if kept.of is None else kept.of.study, kept.parsed

    def remember(self, study: int, variant: str, pick: Pick) -> None:
        """Keep what was handed out; of too many the oldest are forgotten."""
        self._picks.pop((study, variant), None)
        put_bounded(self._picks, (study, variant), pick, MOST_PICKS)

    def handed_out(self, study: int, variant: str) -> Pick | None:
        return self._picks.get((study, variant))

    async def _latest(self, study: str, outcomes: int | None, leaves: int) -> _Kept:
        key = (study, outcomes, leaves)
        kept = self._kept.pop(key, _Kept())
        put_bounded(self._kept, key, kept, MOST_POLICIES)  # the latest is the last
        async with kept.lock:
            now = await self._service.read(study, lambda live, _: _version(live))
            before = kept.of if kept.of is not None and kept.of.study == now.study else None
            if before != now and (before is None or time.monotonic() >= kept.rests_until):
                now, capture = await self._service.read(study, lambda live, _: _captured(live))
                expected = max(now.learned - (now.learned if before is None else before.learned), 1)
                explore = True if outcomes == MANY else expected if outcomes is None else outcomes
                started = time.monotonic()
                kept.policy = await asyncio.to_thread(_policy_of, capture, leaves, explore)
                ended = time.monotonic()
                kept.of, kept.parsed = now, None
                kept.rests_until = ended + min(POLICY_REST * (ended - started), POLICY_EVERY_S)
        return kept


_of_service: WeakKeyDictionary[Service, LatestPolicies] = WeakKeyDictionary()


def policies_of(service: Service) -> LatestPolicies:
    if service not in _of_service:
        _of_service[service] = LatestPolicies(service)
    return _of_service[service]


def why_no_policy(live: LiveStudy) -> str | None:
    """Why no policy can explore for this study; None: one can."""
    if live.approvals is not None:
        return (
            "suggestions of this study wait for a person, so that no policy can try them: create it without approve_s"
        )
    return live.tuner.why_no_policy()


def _version(live: LiveStudy) -> Version:
    return Version(live.id, live.seq, live.tuner.learned)


def _captured(live: LiveStudy) -> tuple[Version, Callable[[], bytes]]:
    if (why := why_no_policy(live)) is not None:
        raise Conflict(why)
    return _version(live), live.tuner.capture(STEPS_FOR_POLICY)


def _policy_of(capture: Callable[[], bytes], leaves: int, explore: bool | int) -> MadePolicy:
    made = Tuner.from_bytes(capture()).policy(leaves, explore=explore).policy
    return MadePolicy(f'"{made["explore"]["version"]}"', dumps(made))
