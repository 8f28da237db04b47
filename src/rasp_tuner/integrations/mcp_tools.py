"""The MCP tools: each a call of the service by our own client, which has the rights of its key.

Answers have the fields of the service's own (`GET /openapi.json`), fewer and shorter: an agent pays for what it reads.
"""

import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal

from rasp_tuner.client import AsyncClient, AsyncStudy
from rasp_tuner.errors import UnknownSuggestion
from rasp_tuner.integrations import mcp_schemas as schemas
from rasp_tuner.types import Budget

MOST_EVENTS = 20
MOST_CHOICES, MOST_CHOICES_IN_ALL = 50, 400  # of one knob, and of all, that are shown
LONGEST_TEXT, MOST_VALUES = 300, 64  # of a text, and of a context, that are shown
LONGEST_WORDS = 8_000  # characters of an explanation
Right = Literal["read", "admin"]  # scopes of keys
Answer = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Tool:
    """One tool; the first line of `call`'s docstring says what it gives."""

    call: Callable[[AsyncClient, Any], Awaitable[Answer]]
    title: str
    takes: type[schemas.Arguments]
    needs: Right = "read"

    @property
    def name(self) -> str:
        return self.call.__name__

    @property
    def description(self) -> str:
        return " ".join((self.call.__doc__ or "").split())


async def list_studies(client: AsyncClient, given: schemas.ListArguments) -> Answer:
    """The studies that the key may see, some at a time: what each serves, what it has gained over its default,
    and what is wrong with it. Start here."""
    page = await client.studies_page(given.limit, given.offset, given.find, given.sort)
    following = given.offset + given.limit
    return {
        "studies": [_row(view) for view in page["studies"]],
        "total": page["total"],
        "next_offset": following if following < page["total"] else None,
        "loading": page["loading"],
        "damaged": page["damaged"],
    }


async def show_study(client: AsyncClient, given: schemas.StudyArguments) -> Answer:
    """One study: knobs, metrics, context and default; what it serves now and who decided that; gain, budget,
    counts, alerts, and the latest events."""
    study = await _study(client, given)
    view, history = await study.view(), await study.history(points=1)
    budget, looks = view["budget_report"], view["looks"]
    counts = ("asks", "tells", "failures", "observations", "expired")
    return {
        **_row(view),
        **{name: view[name] for name in ("metrics", "preset", "health", "failure_share", *counts)},
        "default": _short(view["default"]),
        "context": _short_schema(view["context"]),
        "space": _short_space(view["space"]),
        "constraints": _short(view["constraints"]),
        "switched": _switched(view),
        "budget": _rounded(budget),
        "budget_words": "No budget." if budget is None else str(Budget(**budget)),
        "savings_words": _savings_words(view),
        "exploring": "Nothing was answered yet." if looks is None else looks["words"],
        "events": [{**event, "at": _moment(event["at"])} for event in history["events"][-MOST_EVENTS:]],
    }


async def list_suggestions(client: AsyncClient, given: schemas.SuggestionsArguments) -> Answer:
    """The newest suggestions of a study: the situation of each, the settings, and the metrics that came back.
    Their ids are for explain."""
    study = await _study(client, given)
    return {"study": given.study, "suggestions": [_suggestion(one) for one in await study.suggestions(given.limit)]}


async def explain(client: AsyncClient, given: schemas.ExplainArguments) -> Answer:
    """Why a suggestion was made: which knobs changed, what was expected of them beside the default, how sure that
    was, whether the situation was known; and what came of it."""
    study = await _study(client, given)
    if not re.fullmatch(r"s\d+", given.suggestion):
        raise UnknownSuggestion(f"no suggestion {given.suggestion!r} was handed out in this study")
    found = await study.suggestion(given.suggestion)
    why = found["why"] or {}
    sign = -1.0 if why.get("direction") == "max" else 1.0  # inside, less is always better
    return {
        **_suggestion(found),
        "words": _short_words(found["explanation"] or "It is so old that its explanation was dropped."),
        "metric": why.get("metric"),
        "expected": _signed(why.get("predicted"), sign),
        "deviation": _rounded(why.get("deviation")),
        "expected_of_default": _signed(why.get("level"), sign),
        "better": _rounded(why.get("better")),
        "novelty": _rounded(why.get("novelty")),
    }


async def recommend(client: AsyncClient, given: schemas.ContextArguments) -> Answer:
    """The best settings known for a situation, without exploring; the default unless something else is better there
    with a probability of 80%. Changes nothing."""
    study = await _study(client, given)
    found = (await study.what_if(given.context)).to_json()  # both in one request, and of one moment
    best, default = found["recommended"], found["default"]["params"]
    return {
        "study": given.study,
        "params": _short(best["params"]),
        "default": _short(default),
        "is_default": best["params"] == default,
        "margins": _rounded(best["margins"]),
    }


async def what_if(client: AsyncClient, given: schemas.WhatIfArguments) -> Answer:
    """What some settings are expected to give in a situation, beside the default and the recommendation, and how
    sure that is. Changes nothing: ask before anything is changed."""
    study = await _study(client, given)
    found = await study.what_if(given.context, given.params)
    answer = found.to_json()
    for name in ("given", "default", "recommended"):
        answer[name] = {**_rounded(answer[name]), "params": _short(answer[name]["params"])}
    return {**answer, "study": given.study, "words": _short_words(str(found))}


async def freeze(client: AsyncClient, given: schemas.StudyArguments) -> Answer:
    """Stops exploring: every ask gets the best known settings for its situation, until unfreeze. What is told is
    still learned."""
    study = await _study(client, given)
    await study.freeze()
    return _state(await study.view())


async def unfreeze(client: AsyncClient, given: schemas.StudyArguments) -> Answer:
    """Explores again, after freeze or back_to_default."""
    study = await _study(client, given)
    await study.unfreeze()
    return _state(await study.view())


async def back_to_default(client: AsyncClient, given: schemas.StudyArguments) -> Answer:
    """Has every ask get the default, which is what ran before tuning, until unfreeze. Nothing that was learned is
    lost."""
    study = await _study(client, given)
    await study.freeze(default=True)
    return _state(await study.view())


async def list_waiting(client: AsyncClient, given: schemas.StudyArguments) -> Answer:
    """The suggestions of a study that wait for a person: what each would change against what runs, why, and at which
    cost its run should be ended. Empty where suggestions need no approval."""
    study = await _study(client, given)
    return {"study": given.study, "waiting": [_waiting(one) for one in await study.waiting()]}


async def approve(client: AsyncClient, given: schemas.ApproveArguments) -> Answer:
    """Lets a suggestion that waits run, at the next ask in its situation. A person must have said yes to it."""
    await (await _study(client, given)).approve(given.waiting)
    return {"study": given.study, "waiting": given.waiting, "status": "approved"}


async def refuse(client: AsyncClient, given: schemas.RefuseArguments) -> Answer:
    """Refuses a suggestion that waits: neither it nor nearly the same is put up again for some hours."""
    await (await _study(client, given)).refuse(given.waiting, given.hours * 3600.0)
    return {"study": given.study, "waiting": given.waiting, "status": "refused"}


TOOLS = (
    Tool(list_studies, "List studies", schemas.ListArguments),
    Tool(show_study, "Show a study", schemas.StudyArguments),
    Tool(list_suggestions, "List suggestions", schemas.SuggestionsArguments),
    Tool(explain, "Explain a suggestion", schemas.ExplainArguments),
    Tool(recommend, "Best known settings", schemas.ContextArguments),
    Tool(what_if, "What would settings give?", schemas.WhatIfArguments),
    Tool(list_waiting, "What waits for approval", schemas.StudyArguments),
    Tool(approve, "Let a suggestion run", schemas.ApproveArguments, "admin"),
    Tool(refuse, "Refuse a suggestion", schemas.RefuseArguments, "admin"),
    Tool(freeze, "Stop exploring", schemas.StudyArguments, "admin"),
    Tool(unfreeze, "Explore again", schemas.StudyArguments, "admin"),
    Tool(back_to_default, "Back to the default", schemas.StudyArguments, "admin"),
)


async def _study(client: AsyncClient, given: schemas.StudyArguments) -> AsyncStudy:
    """The study of this name; no request is made yet."""
    return await client.study(given.study, default={})


def _moment(at: float | None) -> str | None:
    """Unix seconds as a time with its zone."""
    return None if at is None else datetime.fromtimestamp(at, UTC).isoformat().replace("+00:00", "Z")


def _row(view: Mapping[str, Any]) -> Answer:
    """A study in a list."""
    versus = view["versus_default"]
    return {
        **{name: view[name] for name in ("name", "serves", "learned", "pending", "waiting", "alerts")},
        "versus_default": None if versus is None else _rounded({**versus, "lately": {}}),
        "last_event_at": _moment(view["last_event_at"]),
    }


def _suggestion(one: Mapping[str, Any]) -> Answer:
    return {
        **{name: one[name] for name in ("id", "status")},
        "params": _short(one["params"]),
        "asked_at": _moment(one["asked_at"]),
        "context": _short(one.get("context")),
        "ran": _short(one.get("ran")),
        "metrics": one.get("metrics"),
        "failure": _short(one.get("reason")),
    }


def _waiting(one: Mapping[str, Any]) -> Answer:
    return {
        "id": one["id"],
        **{name: _rounded(one[name]) for name in ("stop", "level")},
        **{name: _short(one[name]) for name in ("context", "params", "runs", "changes")},
        **{name: _moment(one[name]) for name in ("asked_at", "until")},
        "words": _short_words(one["explanation"]),
    }


def _signed(value: float | None, sign: float) -> Any:
    return None if value is None else _rounded(sign * value)


def _rounded(value: Any) -> Any:
    """Estimates to six digits."""
    if isinstance(value, dict):
        return {name: _rounded(one) for name, one in value.items()}
    return float(f"{value:.6g}") if isinstance(value, float) else value


def _savings_words(view: Mapping[str, Any]) -> str:
    """What was saved, as measured."""
    versus = view["versus_default"]
    if versus is None or not versus["measured"]:
        return "Not measured: the study has no holdout and no controls, or too few of them yet."
    words: str = _short(versus["words"])
    return words


def _switched(view: Mapping[str, Any]) -> Answer | None:
    switched = view["switched"]
    return None if switched is None else {"by": switched["by"], "at": _moment(switched["at"])}


def _state(view: Mapping[str, Any]) -> Answer:
    return {
        "study": view["name"],
        "serves": view["serves"],
        "frozen": view["frozen"],
        "switched": _switched(view),
    }


def _short_space(space: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """Knobs, with so many of their choices that an agent can read them."""
    with_choices = sum("choices" in knob for knob in space.values())
    most = min(MOST_CHOICES, MOST_CHOICES_IN_ALL // max(with_choices, 1))
    return {name: _short_knob(knob, most) for name, knob in space.items()}


def _short_knob(knob: Mapping[str, Any], most: int) -> dict[str, Any]:
    """A knob, with the first of its choices if there are many."""
    choices = knob.get("choices", ())
    if len(choices) <= most:
        return {name: _short(value) for name, value in knob.items()}
    return {**knob, "choices": _short(choices[:most]), "more_choices": len(choices) - most}


def _short_schema(schema: Any) -> Any:
    """What a study knows of situations: all names, since whoever asks must give them."""
    return {name: _short(kind) for name, kind in schema.items()} if isinstance(schema, dict) else schema


def _short_words(words: str) -> str:
    return words if len(words) <= LONGEST_WORDS else f"{words[:LONGEST_WORDS]}..."


def _short(value: Any) -> Any:
    """A value from a program, cut where it is longer than an agent can use; the cut is marked."""
    if isinstance(value, str):
        return value if len(value) <= LONGEST_TEXT else f"{value[:LONGEST_TEXT]}..."
    if isinstance(value, list):
        more = [f"... {len(value) - MOST_VALUES} more"] if len(value) > MOST_VALUES else []
        return [*map(_short, value[:MOST_VALUES]), *more]
    if isinstance(value, dict):
        rest = {"...": f"{len(value) - MOST_VALUES} more"} if len(value) > MOST_VALUES else {}
        return {name: _short(value[name]) for name in list(value)[:MOST_VALUES]} | rest
    return value
