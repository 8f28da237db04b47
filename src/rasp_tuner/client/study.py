"""Study: one study of a server, used like a Tuner."""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rasp_tuner.client.study_calls import ExportCheck, Observed, StudyCalls, TellReply
from rasp_tuner.client.transport import Transport
from rasp_tuner.gain.versus_default import VersusDefault
from rasp_tuner.space import Params
from rasp_tuner.trial import Trial
from rasp_tuner.tuner import Context
from rasp_tuner.types import Budget, Explanation, Margin, Suggestion
from rasp_tuner.what_if import WhatIf

STREAM_TIMEOUT_S = 40.0  # without data; the server sends a heartbeat every 15 s


class Study:
    """Asks and tells over HTTP; thread-safe. Made by `Client.create` and `Client.study`.

    `ask` and `recommend` answer within `ask_deadline` seconds whatever the server does: from the server, else with the
    latest known recommendation for the nearest context, else with the default. All other calls are retried until the
    client's timeout is over, and then raise ServerUnavailable.
    """

    def __init__(self, calls: StudyCalls, transport: Transport) -> None:
        self._calls, self._transport, self._run = calls, transport, transport.run

    def __repr__(self) -> str:
        return f"<Study {self.name!r} at {self._transport.url}>"

    @property
    def name(self) -> str:
        return self._calls.name

    @property
    def asks(self) -> int:
        """How many asks were answered, by the server or without it."""
        return self._calls.share.asks

    @property
    def fallbacks(self) -> int:
        """How many of them without the server."""
        return self._calls.share.fallbacks

    def ask(self, context: Context = None) -> Suggestion:
        """Parameters to run in this context, under an id to tell with.

        `is_fallback(id)` says whether the client answered without the server; tell a fallback like any other.
        """
        return self._run(self._calls.ask(context))

    def ask_ahead(self, context: Context = None) -> None:
        """Ask in the background: the next `ask` with exactly this context takes the answer, for up to five minutes."""
        self._run(self._calls.ask_ahead(context))

    def ask_batch(self, contexts: Sequence[Context]) -> list[Suggestion]:
        """A suggestion for each context, in one request; no fallback: ServerUnavailable if there is no answer."""
        return self._run(self._calls.ask_batch(contexts))

    def trial(self, context: Context = None) -> Trial:
        """One ask and its answer around a block, as `Tuner.trial`; `t.check(...)` asks the server."""
        return Trial(lambda: self.ask(context), self)

    def should_stop(self, id: str, partial: Mapping[str, float]) -> bool:
        """Whether the run of `id` should be ended, by what its metric came to so far; False for a fallback.

        End it then, and `tell(id, partial, stopped=True)`.
        """
        return self._run(self._calls.should_stop(id, partial))

    def tell(
        self,
        id: str,
        metrics: Mapping[str, float],
        params: Mapping[str, object] | None = None,
        *,
        stopped: bool = False,
        control: Mapping[str, float] | None = None,
    ) -> TellReply:
        """The result, once it is on the server's disk; a fallback is queued and sent later as an observation.

        `params` says what ran, for a system that clips or rounds settings; knobs it leaves out ran as suggested.
        `stopped`: the run was ended here, and would have come to these metrics or worse. `control` has the same
        metrics, measured at the same time under the default; of a fallback it is not sent.
        """
        return self._run(self._calls.tell(id, metrics, params, stopped, control))

    def tell_later(
        self,
        id: str,
        metrics: Mapping[str, float],
        params: Mapping[str, object] | None = None,
        *,
        stopped: bool = False,
        control: Mapping[str, float] | None = None,
    ) -> TellReply:
        """Queue it and send it in the background, for code that may not wait. The queue is in memory only."""
        return self._run(self._calls.tell_later(id, metrics, params, stopped, control))

    def tell_failed(self, id: str, reason: str = "", params: Mapping[str, object] | None = None) -> TellReply:
        """The result; the failure of a fallback is dropped, because `observe` has no failures."""
        return self._run(self._calls.tell_failed(id, reason, params))

    def tell_failed_later(self, id: str, reason: str = "", params: Mapping[str, object] | None = None) -> TellReply:
        """Queue it and send it in the background, as `tell_later` does."""
        return self._run(self._calls.tell_failed_later(id, reason, params))

    def flush(self, timeout: float = 5.0) -> bool:
        """Whether all that its client has queued was sent within so many seconds."""
        return self._run(self._calls.flush(timeout))

    def tell_batch(self, tells: Mapping[str, Mapping[str, float]] | Sequence[Mapping[str, Any]]) -> list[TellReply]:
        """One result for each tell; a refused one has the status "rejected" and the error.

        `tells` is `{id: metrics}`, or a list of `{"id": ..., "metrics": ...}` and `{"id": ..., "failed": reason}`, each
        with "params" if something else ran than was suggested.
        """
        return self._run(self._calls.tell_batch(tells))

    def observe(
        self, context: Context, params: Mapping[str, object], metrics: Mapping[str, float], key: str | None = None
    ) -> Observed:
        """Whether it was new; a repeated key changes nothing. Without a key one is made, so retries are safe."""
        return self._run(self._calls.observe(context, params, metrics, key))

    def tell_sums(self, source: str, sequence: int, sums: Sequence[Mapping[str, Any]]) -> Observed:
        """Whether sums of runs were new; what a source sends twice under one number counts once (docs/EDGE.md)."""
        return self._run(self._calls.tell_sums(source, sequence, sums))

    def policy(self, outcomes: int | None = None, version: str | None = None) -> dict[str, Any] | None:
        """A policy that explores, for decisions without a request; None if it is still the one of this version.

        `outcomes`: how many are expected before the next one is fetched.
        """
        return self._run(self._calls.policy(outcomes, version))

    def recommend(self, context: Context = None) -> Params:
        """The best parameters known, without exploring; falls back as `ask` does."""
        return self._run(self._calls.recommend(context))

    def margins(self, context: Context = None) -> dict[str, Margin]:
        """How far the recommended parameters keep each metric from its limit in this context, if it has one."""
        return self._run(self._calls.margins(context))

    def what_if(self, context: Context = None, params: Mapping[str, object] | None = None) -> WhatIf:
        """What these parameters are expected to give here, beside the default and the recommendation; see `Tuner`."""
        return self._run(self._calls.what_if(context, params))

    def explain(self, id: str) -> Explanation:
        """Why `id` was suggested and, once told, its result; `str()` gives it in words."""
        return self._run(self._calls.explain(id))

    def freeze(self, *, default: bool = False) -> None:
        """Stop exploring: until `unfreeze`, every ask gets the recommendation, or, if `default`, the default."""
        self._run(self._calls.set_frozen(True, default))

    def unfreeze(self) -> None:
        """Explore again."""
        self._run(self._calls.set_frozen(False))

    def waiting(self) -> list[dict[str, Any]]:
        """Suggestions that wait for a person, oldest first: `id`, `params`, `changes` against what `runs`, `stop`, why.

        Only studies with `approve_s` have some.
        """
        return self._run(self._calls.waiting())

    def approve(self, id: str) -> None:
        """Let a suggestion that waits run: at the next ask in its situation."""
        self._run(self._calls.decide(id, "approve"))

    def refuse(self, id: str, for_s: float | None = None) -> None:
        """Not these settings, nor nearly the same, for so many seconds; by default a day."""
        self._run(self._calls.decide(id, "refuse", for_s))

    def view(self) -> dict[str, Any]:
        """The definition, the counts (asks, tells, failures, observations, late, expired, pending, learned), `scales`
        and `budget_report`."""
        return self._run(self._calls.get(""))

    def budget(self) -> Budget | None:
        """What suggestions have cost and gained against the default so far; None without a budget."""
        return self._run(self._calls.budget())

    def versus_default(self) -> VersusDefault | None:
        """What suggestions have gained against the default; None while too little is known."""
        return self._run(self._calls.versus_default())

    def situations(self) -> list[dict[str, Any]]:
        """By context values: what is recommended where, what that gains, and from which knobs; `words` says it."""
        found: list[dict[str, Any]] = self._run(self._calls.get("/situations"))["situations"]
        return found

    @property
    def scales(self) -> dict[str, str]:
        """On which scale each metric is compared now: "linear" or "log"."""
        return self._run(self._calls.scales())

    def suggestions(self, limit: int = 50) -> list[dict[str, Any]]:
        """The newest suggestions, newest first, each with its state and an explanation in words."""
        return self._run(self._calls.suggestions(limit))

    def suggestion(self, id: str) -> dict[str, Any]:
        """One suggestion, however old; `why` holds the fields of its Explanation while the tuner has them."""
        return self._run(self._calls.suggestion(id))

    def history(self, points: int = 600) -> dict[str, Any]:
        """Series of error, metrics and parameters in at most so many points, regimes and events."""
        return self._run(self._calls.get(f"/history?points={points}"))

    def live(self) -> Iterator[dict[str, Any]]:
        """The latest step, each time there is a new one, at most five a second; ends when the server stops."""
        for line in self._transport.lines(f"{self._calls.path}/live", STREAM_TIMEOUT_S):
            if line.startswith("data:"):
                yield json.loads(line[5:])

    def export(self) -> Iterator[str]:
        """The lines of the study's whole log, for `Client.import_study`; ServerUnavailable if it breaks off."""
        check = ExportCheck(self.name)
        for line in self._transport.lines(f"{self._calls.path}/export", STREAM_TIMEOUT_S):
            yield check.add(line)
        check.end()

    def delete(self) -> None:
        """Delete the study and all its data."""
        self._run(self._calls.delete())

    def forget(self, *, timeout: float = 600.0, **which: Any) -> dict[str, Any]:
        """Erase records, in files too: `{"erased": count, "scrubbed": files are clean, "backups": removed ones}`.

        `which` has one or more of after, before (unix seconds), context ({name: number or [low, high]}), ids, keys (of
        observations); a record is erased if it meets all given conditions.
        """
        return self._run(self._calls.forget(timeout, which))
