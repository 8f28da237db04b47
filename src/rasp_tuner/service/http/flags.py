"""Flags: the evaluation of a flag becomes an ask, and a tracked event a tell (docs/OPENFEATURE.md).

All knobs of one targeting key come from one suggestion, until its lease is over, it was told or stopped, or the study
was frozen or unfrozen. Evaluated by a policy, they come from one of its settings, for as long as the policy stays.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rasp_tuner.feature_flags import (
    AS_DEFAULT,
    NOT_ASKED,
    RECOMMENDATION,
    TrackedOutcome,
    known_context,
    outcome,
    reason_for,
)
from rasp_tuner.policy.evaluate import params_of, pick_of
from rasp_tuner.service.http.http_errors import HttpError
from rasp_tuner.service.http.latest_policy import policies_of, why_no_policy
from rasp_tuner.service.service import Answer, Service
from rasp_tuner.service.service_errors import Conflict, InvalidRequest, NotFound, Unavailable
from rasp_tuner.service.storage.transaction import UnitOfWork
from rasp_tuner.service.study.event_time import MAX_WAIT_S
from rasp_tuner.service.study.events import ask_id, ask_number
from rasp_tuner.service.study.flag_leases import target_hash
from rasp_tuner.service.study.live_study import LiveStudy
from rasp_tuner.service.study.suggestion_record import SuggestionRecord

TARGETING_KEY_MISSING, EXPIRED_LEASE = "targeting_key_missing", "expired_lease"  # codes of errors
FLAG_NOT_FOUND = "flag_not_found"
EVENT_ID, LONGEST_EVENT_ID = "eventId", 64  # in the details of an event: sent twice, it counts once
PICKED = re.compile(r"[0-9a-f]{16}:[0-9]+\.[0-9]+")  # the variant of a policy's pick: version, leaf, setting
CANNOT_WRITE = ("storage", "lease_over")  # codes of errors under which a study can still be read


@dataclass(frozen=True, slots=True)
class Target:
    """Who evaluates: what is known of the situation, and who must get the same suggestion again."""

    attributes: Mapping[str, Any]
    key: str | None


async def evaluate(service: Service, name: str, knob: str | None, target: Target) -> dict[str, Any]:
    """All knobs of a study for a target, or one, as OFREP's `value`, `variant`, `reason` and `metadata`.

    If nothing can be written, the suggestion that the target has, else the recommendation.
    """

    def run(live: LiveStudy, work: UnitOfWork) -> dict[str, Any]:
        if knob is not None and knob not in live.definition.space:
            raise flag_not_found(f"{name}.{knob}")
        leased = _leased(service, live, target, work.now)
        if leased is not None:
            return leased
        context = known_context(target.attributes, live.definition.context)
        flag = {} if target.key is None else {"target": target_hash(name, target.key)}
        made = service.suggest(work, live, context, flag)
        return _evaluation(service, live, live.pending[ask_number(made["id"]) or 0])

    def read(live: LiveStudy, work: UnitOfWork) -> dict[str, Any]:
        return _leased(service, live, target, work.now) or _recommendation(live, target)

    try:
        evaluation: dict[str, Any] = await service.write(name, run)
    except Unavailable as error:
        if error.code not in CANNOT_WRITE:
            raise
        evaluation = await service.read(name, read)
    return evaluation if knob is None else one_knob(evaluation, knob)


async def evaluate_by_policy(service: Service, name: str, knob: str | None, target: Target) -> dict[str, Any]:
    """The same by the study's policy: the targeting key decides what is tried, and nothing is written.

    A study for which no policy can explore is asked.
    """

    def read(live: LiveStudy, _: UnitOfWork) -> tuple[str | None, Any]:
        if knob is not None and knob not in live.definition.space:
            raise flag_not_found(f"{name}.{knob}")
        context = known_context(target.attributes, live.definition.context)
        live.tuner.check_context(context)
        return why_no_policy(live), context

    why_not, context = await service.read(name, read)
    if why_not is not None:
        return await evaluate(service, name, knob, target)
    policies = policies_of(service)
    study, policy = await policies.parsed(name)
    pick = pick_of(policy, context, target.key)
    metadata: dict[str, Any] = {"study": name, "policy": pick.version}
    if pick.probability is None:
        variant = RECOMMENDATION
    else:
        variant = f"{pick.version}:{pick.leaf}.{pick.setting}"
        metadata["probability"] = pick.probability
        policies.remember(study, variant, pick)
    recommended = policy["default"] if pick.leaf < 0 else params_of(policy, context)
    reason = reason_for(pick.params, policy["default"], recommended)
    evaluation = {"value": pick.params, "reason": reason, "variant": variant, "metadata": metadata}
    return evaluation if knob is None else one_knob(evaluation, knob)


def one_knob(evaluation: Mapping[str, Any], knob: str) -> dict[str, Any]:
    """The evaluation of one knob. Without a value if the knob is null or does not exist now: the caller's own holds."""
    metadata = {**evaluation["metadata"], "knob": knob}
    value = evaluation["value"].get(knob)
    if value is None:
        return {"reason": AS_DEFAULT, "variant": evaluation["variant"], "metadata": metadata}
    return {**evaluation, "value": value, "metadata": metadata}


async def track(
    service: Service, name: str, metric: str | None, target: Target, details: Mapping[str, Any]
) -> dict[str, Any]:
    """The result of telling what a tracked event says; `metric` is the one in its name."""

    def run(live: LiveStudy, work: UnitOfWork) -> dict[str, Any]:
        told = outcome(live.definition.metrics, metric, details)
        if told.variant is not None and PICKED.fullmatch(told.variant):
            return _tell_pick(service, live, work, told, target, details.get(EVENT_ID))
        id = told.variant or _leased_id(service, live, target.key, work.now)
        if id == RECOMMENDATION:
            message = "variant: nothing was suggested, since nothing could be recorded: there is nothing to tell"
            raise Conflict(message, "variant", EXPIRED_LEASE)
        try:
            return service.learn(work, live, Answer(id, told.metrics, told.failure, stopped=told.stopped))
        except Conflict as error:
            if told.variant is not None:
                raise
            raise Conflict(f"{error.message}; evaluate the flag again before its next outcome", error.field) from error

    result: dict[str, Any] = await service.write(name, run)
    return result


def _tell_pick(
    service: Service, live: LiveStudy, work: UnitOfWork, told: TrackedOutcome, target: Target, event_id: object
) -> dict[str, Any]:
    """Learn what a pick of a policy came to; the event's own context says where."""
    variant = told.variant or ""
    if told.metrics is None or told.stopped:
        what = "stopped" if told.stopped else "failed"
        message = f"{what}: the outcome of a policy's pick is its metrics; evaluate the flag by its key to tell more"
        raise InvalidRequest(message, what)
    if event_id is not None and not (isinstance(event_id, str) and 0 < len(event_id) <= LONGEST_EVENT_ID):
        raise InvalidRequest(f"{EVENT_ID} must be a text of at most {LONGEST_EVENT_ID} characters", EVENT_ID)
    pick = policies_of(service).handed_out(live.id, variant)
    if pick is None:
        message = f"variant {variant!r} is not known, or was handed out too long ago: evaluate the flag again"
        raise HttpError(410, EXPIRED_LEASE, message, "variant")
    context = known_context(target.attributes, live.definition.context)
    live.tuner.check_context(context)
    one = {
        "policy": pick.version, "leaf": pick.leaf, "setting": pick.setting, "params": pick.params,
        "probability": pick.probability, "contexts": [] if context is None else [context], "count": 1,
        "metrics": {name: {"sum": value, "squares": value * value} for name, value in told.metrics.items()},
    }  # fmt: skip
    result = service.learn_sums(work, live, [one], None if event_id is None else f"event:{event_id}", 0)
    return {"id": variant, "status": result, "late": False}


def flag_not_found(key: str) -> NotFound:
    message = f"no flag {key[:80]!r}: a key is the name of a study, or study.knob; GET /v1/studies lists them"
    return NotFound(message, "key", FLAG_NOT_FOUND)


def _leased(service: Service, live: LiveStudy, target: Target, now: float) -> dict[str, Any] | None:
    """The suggestion that the target has, if its lease is not over."""
    latest = None if target.key is None else live.flags.latest(target_hash(live.definition.name, target.key))
    record = None if latest is None else live.pending.get(latest.number)  # as it is now: clocks may have jumped
    if record is None or not record.asked_at - MAX_WAIT_S <= now <= _until(service, live, record):
        return None
    if record.number < live.flags.valid_from:
        return None  # whoever goes back to the default means all, and now
    return _evaluation(service, live, record)


def _leased_id(service: Service, live: LiveStudy, key: str | None, now: float) -> str:
    """The suggestion that an event without a variant is about."""
    if key is None:
        message = "say which suggestion: give variant in the details, or targetingKey in the context"
        raise HttpError(400, TARGETING_KEY_MISSING, message, "context.targetingKey")
    latest = live.flags.latest(target_hash(live.definition.name, key))
    if latest is None:
        message = "this targeting key has no suggestion in this study: evaluate the flag first, or give variant"
        raise Conflict(message, "context.targetingKey", EXPIRED_LEASE)
    id, record = ask_id(latest.number), live.pending.get(latest.number)
    late = 0.0 if record is None else now - _until(service, live, record)
    if late > 0.0:
        message = f"the lease of this targeting key ended {late:.0f} s ago; with variant {id!r} the event is learned"
        raise HttpError(410, EXPIRED_LEASE, message, "context.targetingKey")
    return id


def _until(service: Service, live: LiveStudy, record: SuggestionRecord) -> float:
    return record.asked_at + min(service.limits.flag_lease, live.definition.lease_s)


def _evaluation(service: Service, live: LiveStudy, record: SuggestionRecord) -> dict[str, Any]:
    flag = record.flag or {}
    metadata: dict[str, Any] = {"study": live.definition.name, "expiresAt": live.expires_at(record)}
    if "target" in flag:
        metadata["leaseUntil"] = _until(service, live, record)
    if (stop := live.stop_of(record.number)) is not None:
        metadata["stop"] = stop
    return {"value": record.params, "reason": flag["reason"], "variant": ask_id(record.number), "metadata": metadata}


def _recommendation(live: LiveStudy, target: Target) -> dict[str, Any]:
    params = live.best_known(known_context(target.attributes, live.definition.context))
    metadata = {"study": live.definition.name}
    return {"value": params, "reason": NOT_ASKED, "variant": RECOMMENDATION, "metadata": metadata}
