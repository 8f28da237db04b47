"""The MCP tools: each a call of the service by our own client, which has the rights of its key."""

import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal

from rasp_tuner.client import AsyncClient, AsyncStudy
from rasp_tuner.errors import InvalidValue, UnknownSuggestion
from rasp_tuner.integrations import mcp_schemas as schemas
from rasp_tuner.integrations.mcp_schemas import MOST_CHOICES, MOST_CHOICES_IN_ALL, MOST_EVENTS
from rasp_tuner.types import Budget

LONGEST_TEXT, MOST_VALUES = 300, 64  # of a text, and of a context, that are shown
LONGEST_WORDS = 8_000  # characters of an explanation
Right = Literal["read", "admin"]  # scopes of keys


@dataclass(frozen=True, slots=True)
class Tool:
    """One tool; the first line of `call`'s docstring says what it gives."""

    call: Callable[[AsyncClient, Any], Awaitable[schemas.ToolAnswer]]
    title: str
    takes: type[schemas.Arguments]
    gives: type[schemas.ToolAnswer]
    needs: Right = "read"
    destroys: bool = False

    @property
    def name(self) -> str:
        return self.call.__name__

    @property
    def description(self) -> str:
        return " ".join((self.call.__doc__ or "").split())


async def list_studies(client: AsyncClient, given: schemas.ListArguments) -> schemas.StudyPage:
    """The studies that the key may see, some at a time: what each serves, what it has gained over its default,
    and what is wrong with it. Start here."""
    page = await client.studies_page(given.limit, given.offset, given.find, given.sort)
    following = given.offset + given.limit
    return schemas.StudyPage(
        studies=[schemas.StudyRowAnswer(**_row(view)) for view in page["studies"]],
        total=page["total"],
        next_offset=following if following < page["total"] else None,
        loading=page["loading"],
        damaged=page["damaged"],
    )


async def show_study(client: AsyncClient, given: schemas.StudyArguments) -> schemas.StudyDetails:
    """One study: knobs, metrics, context and default; what it serves now and who decided that; gain, budget,
    counts, alerts, and the latest events."""
    study = await _study(client, given)
    view, history = await study.view(), await study.history(points=1)
    budget = view["budget_report"]
    return schemas.StudyDetails(
        **_row(view),
        **{name: view[name] for name in ("metrics", "preset")},
        default=_short(view["default"]),
        context=_short_schema(view["context"]),
        **{name: view[name] for name in ("asks", "tells", "failures", "observations", "expired")},
        space=_short_space(view["space"]),
        constraints=_short(view["constraints"]),
        switched=_switched(view),
        failure_share=view["failure_share"],
        budget=budget,
        budget_words="No budget." if budget is None else str(Budget(**budget)),
        savings_words=_savings_words(view),
        exploring=(view["looks"] or {"words": "Nothing was answered yet."})["words"],
        health=view["health"],
        events=[
            schemas.StudyEvent(**{**event, "at": _moment(event["at"])}) for event in history["events"][-MOST_EVENTS:]
        ],
    )


async def list_suggestions(client: AsyncClient, given: schemas.SuggestionsArguments) -> schemas.SuggestionList:
    """The newest suggestions of a study: the situation of each, the settings, and the metrics that came back.
    Their ids are for explain."""
    study = await _study(client, given)
    found = [schemas.SuggestionAnswer(**_suggestion(one)) for one in await study.suggestions(given.limit)]
    return schemas.SuggestionList(study=given.study, suggestions=found)


async def explain(client: AsyncClient, given: schemas.ExplainArguments) -> schemas.ExplanationAnswer:
    """Why a suggestion was made: which knobs changed, what was expected of them beside the default, how sure that
    was, whether the situation was known; and what came of it."""
    study = await _study(client, given)
    if not re.fullmatch(r"s\d+", given.suggestion):
        raise UnknownSuggestion(f"no suggestion {given.suggestion!r} was handed out in this study")
    found = await study.suggestion(given.suggestion)
    why = found["why"]
    words = found["explanation"] or "It is so old that its explanation was dropped."
    sign = -1.0 if why is not None and why.get("direction") == "max" else 1.0
    told: dict[str, Any] = {
        "metric": None if why is None else why.get("metric"),
        "expected": _signed(why, "predicted", sign),
        "deviation": _signed(why, "deviation", 1.0),
        "expected_of_default": _signed(why, "level", sign),
        "better": _signed(why, "better", 1.0),
        "novelty": _signed(why, "novelty", 1.0),
    }
    return schemas.ExplanationAnswer(**_suggestion(found), words=_short_words(words), **told)


async def recommend(client: AsyncClient, given: schemas.ContextArguments) -> schemas.Recommendation:
    """The best settings known for a situation, without exploring; the default unless something else is better there
    with a probability of 80%. Changes nothing."""
    study = await _study(client, given)
    found = (await study.what_if(given.context)).to_json()  # both in one request, and of one moment
    best, default = found["recommended"], found["default"]["params"]
    return schemas.Recommendation(
        study=given.study,
        params=_short(best["params"]),
        default=_short(default),
        is_default=best["params"] == default,
        margins=best["margins"],
    )


async def what_if(client: AsyncClient, given: schemas.WhatIfArguments) -> schemas.WhatIfToolAnswer:
    """What some settings are expected to give in a situation, beside the default and the recommendation, and how
    sure that is. Changes nothing: ask before anything is changed."""
    study = await _study(client, given)
    found = await study.what_if(given.context, given.params)
    answer = found.to_json()
    for name in ("given", "default", "recommended"):
        answer[name]["params"] = _short(answer[name]["params"])
    return schemas.WhatIfToolAnswer(study=given.study, words=_short_words(str(found)), **answer)


async def freeze(client: AsyncClient, given: schemas.StudyArguments) -> schemas.ServingAnswer:
    """Stops exploring: every ask gets the best known settings for its situation, until unfreeze. What is told is
    still learned."""
    study = await _study(client, given)
    await study.freeze()
    return _state(await study.view())


async def unfreeze(client: AsyncClient, given: schemas.StudyArguments) -> schemas.ServingAnswer:
    """Explores again, after freeze or back_to_default."""
    study = await _study(client, given)
    await study.unfreeze()
    return _state(await study.view())


async def back_to_default(client: AsyncClient, given: schemas.StudyArguments) -> schemas.ServingAnswer:
    """Has every ask get the default, which is what ran before tuning, until unfreeze. Nothing that was learned is
    lost."""
    study = await _study(client, given)
    await study.freeze(default=True)
    return _state(await study.view())


async def list_waiting(client: AsyncClient, given: schemas.StudyArguments) -> schemas.WaitingList:
    """The suggestions of a study that wait for a person: what each would change against what runs, why, and at which
    cost its run should be ended. Empty where suggestions need no approval."""
    study = await _study(client, given)
    found = [schemas.WaitingSuggestionAnswer(**_waiting(one)) for one in await study.waiting()]
    return schemas.WaitingList(study=given.study, waiting=found)


async def approve(client: AsyncClient, given: schemas.ApproveArguments) -> schemas.Decision:
    """Lets a suggestion that waits run, at the next ask in its situation. A person must have said yes to it."""
    await (await _study(client, given)).approve(given.waiting)
    return schemas.Decision(study=given.study, waiting=given.waiting, status="approved")


async def refuse(client: AsyncClient, given: schemas.RefuseArguments) -> schemas.Decision:
    """Refuses a suggestion that waits: neither it nor nearly the same is put up again for some hours."""
    await (await _study(client, given)).refuse(given.waiting, given.hours * 3600.0)
    return schemas.Decision(study=given.study, waiting=given.waiting, status="refused")


async def forget(client: AsyncClient, given: schemas.ForgetArguments) -> schemas.ForgottenAnswer:
    """Erases records of a study for good: those that meet all given conditions. The study learns again from the
    rest, and the bytes are removed from the server's files. It cannot be undone: confirm must be the study's name."""
    if given.confirm != given.study:
        raise InvalidValue(
            f"confirm must be the name of the study, {given.study!r}, since erasing cannot be undone; got"
            f" {given.confirm!r}: nothing was erased"
        )
    which: dict[str, Any] = {
        "ids": given.suggestions,
        "keys": given.observations,
        "context": given.context,
        "after": None if given.after is None else given.after.timestamp(),
        "before": None if given.before is None else given.before.timestamp(),
    }
    which = {name: value for name, value in which.items() if value not in (None, [], {})}
    if not which:
        raise InvalidValue("say which records: suggestions, observations, context, after or before; nothing was erased")
    study = await _study(client, given)
    done = await study.forget(**which)
    return schemas.ForgottenAnswer(study=given.study, erased=done["erased"], files_clean=done["scrubbed"])


TOOLS = (
    Tool(list_studies, "List studies", schemas.ListArguments, schemas.StudyPage),
    Tool(show_study, "Show a study", schemas.StudyArguments, schemas.StudyDetails),
    Tool(list_suggestions, "List suggestions", schemas.SuggestionsArguments, schemas.SuggestionList),
    Tool(explain, "Explain a suggestion", schemas.ExplainArguments, schemas.ExplanationAnswer),
    Tool(recommend, "Best known settings", schemas.ContextArguments, schemas.Recommendation),
    Tool(what_if, "What would settings give?", schemas.WhatIfArguments, schemas.WhatIfToolAnswer),
    Tool(list_waiting, "What waits for approval", schemas.StudyArguments, schemas.WaitingList),
    Tool(approve, "Let a suggestion run", schemas.ApproveArguments, schemas.Decision, "admin"),
    Tool(refuse, "Refuse a suggestion", schemas.RefuseArguments, schemas.Decision, "admin"),
    Tool(freeze, "Stop exploring", schemas.StudyArguments, schemas.ServingAnswer, "admin"),
    Tool(unfreeze, "Explore again", schemas.StudyArguments, schemas.ServingAnswer, "admin"),
    Tool(back_to_default, "Back to the default", schemas.StudyArguments, schemas.ServingAnswer, "admin"),
    Tool(forget, "Erase records for good", schemas.ForgetArguments, schemas.ForgottenAnswer, "admin", destroys=True),
)


async def _study(client: AsyncClient, given: schemas.StudyArguments) -> AsyncStudy:
    """The study of this name; no request is made yet."""
    return await client.study(given.study, default={})


def _moment(at: float) -> datetime:
    """Unix seconds as a time with its zone."""
    return datetime.fromtimestamp(at, UTC)


def _row(view: Mapping[str, Any]) -> dict[str, Any]:
    """Fields of a StudyRowAnswer."""
    versus = view["versus_default"]
    return {
        **{name: view[name] for name in ("name", "serves", "learned", "pending", "waiting", "alerts")},
        "versus_default": None if versus is None else {**versus, "lately": {}},
        "last_event_at": None if view["last_event_at"] is None else _moment(view["last_event_at"]),
    }


def _suggestion(one: Mapping[str, Any]) -> dict[str, Any]:
    """Fields of a Suggestion."""
    return {
        **{name: one[name] for name in ("id", "status")},
        "params": _short(one["params"]),
        "asked_at": _moment(one["asked_at"]),
        "context": _short(one.get("context")),
        "ran": _short(one.get("ran")),
        "metrics": one.get("metrics"),
        "failure": _short(one.get("reason")),
    }


def _waiting(one: Mapping[str, Any]) -> dict[str, Any]:
    """Fields of a WaitingSuggestion."""
    return {
        **{name: one[name] for name in ("id", "stop", "level")},
        **{name: _short(one[name]) for name in ("context", "params", "runs", "changes")},
        **{name: _moment(one[name]) for name in ("asked_at", "until")},
        "words": _short_words(one["explanation"]),
    }


def _signed(why: Mapping[str, Any] | None, name: str, sign: float) -> float | None:
    """A number of an explanation in the metric's own sign: inside, less is always better."""
    value = None if why is None else why.get(name)
    return None if value is None else sign * value


def _savings_words(view: Mapping[str, Any]) -> str:
    """What was saved, as measured."""
    versus = view["versus_default"]
    if versus is None or not versus["measured"]:
        return "Not measured: the study has no holdout and no controls, or too few of them yet."
    words: str = _short(versus["words"])
    return words


def _switched(view: Mapping[str, Any]) -> schemas.SwitchedAnswer | None:
    switched = view["switched"]
    return None if switched is None else schemas.SwitchedAnswer(by=switched["by"], at=_moment(switched["at"]))


def _state(view: Mapping[str, Any]) -> schemas.ServingAnswer:
    return schemas.ServingAnswer(
        study=view["name"], serves=view["serves"], frozen=view["frozen"], switched=_switched(view)
    )


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
