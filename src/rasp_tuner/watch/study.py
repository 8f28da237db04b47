"""WatchStudy: what `rasp watch` asks, changes and keeps to. Built from a study file; checks itself (docs/WATCH.md)."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, cast

from rasp_tuner.base.checks import number, one_of, show, whole
from rasp_tuner.contexts import kind_json
from rasp_tuner.errors import InvalidSpace
from rasp_tuner.presets import BUDGET
from rasp_tuner.space import Knob
from rasp_tuner.study_file.fields import check_fields, parse_knobs, read_study_file, seconds, table
from rasp_tuner.study_file.study import FileStudy, rules_of
from rasp_tuner.watch.http_call import check_headers, check_url
from rasp_tuner.watch.prometheus import Prometheus
from rasp_tuner.watch.queries import (
    ContextQuery,
    MetricQuery,
    RunningQuery,
    check_missing,
    context_query,
    metric_query,
    running_query,
)
from rasp_tuner.watch.sinks import Sink, parse_sink

Mode = Literal["shadow", "canary", "live"]
LOOKS_A_WINDOW = 5  # inside a window, unless the study says otherwise
FEWEST_SHARE = 0.02
MODES: tuple[Mode, ...] = ("shadow", "canary", "live")
STUDY_ALONE = (  # fields that no table of a study has
    *("mode", "settle", "window", "wait", "share", "holdout", "violations"),
    *("budget", "when_spent", "on_change", "on_exit", "seed", "constraints", "look_every"),
)
FIELDS = (
    *("name", *STUDY_ALONE, "min_samples", "missing", "max_change"),
    *("prometheus", "knobs", "default", "metrics", "contexts", "running", "sinks"),
)


@dataclass(frozen=True, kw_only=True)
class WatchStudy(FileStudy[MetricQuery]):
    """Everything that a study file says."""

    prometheus: Prometheus
    contexts: dict[str, ContextQuery] = field(default_factory=dict)
    running: dict[str, RunningQuery] = field(default_factory=dict)  # of each knob
    sinks: tuple[Sink, ...] = ()
    mode: Mode = "shadow"
    settle_s: float = 0.0  # after a change, before the window begins
    window_s: float = 60.0  # that metrics are of
    wait_s: float = 120.0  # for data that is missing, where it is waited for
    share: float = 0.25  # of steps that run suggestions in mode canary
    holdout: float = 0.1  # of steps that run the default in mode live
    violations: int = 3  # of a limit, one after the other, that end it
    budget: float | None = BUDGET
    when_spent: Literal["rollback", "exploit"] = "rollback"
    on_change: Literal["learn", "skip"] = "learn"  # where a context changes during the window
    on_exit: Literal["keep", "default"] = "keep"  # what is good in one situation may be bad in the next
    look_every_s: float | None = None  # inside the window, whether a run is to be ended; None: it is not looked at

    @property
    def has_canaries(self) -> bool:
        """Whether every metric can be asked of canary and control instances."""
        return all(source.canary is not None for source in self.metrics.values())

    def sinks_of(self, mode: Mode) -> list[Sink]:
        return [sink for sink in self.sinks if mode in sink.modes]

    def to_json(self) -> dict[str, Any]:
        """What must stay the same for a journal to be continued: what numbers mean, not where they come from."""
        return {
            **self.shared_json(),
            "metrics": {name: source.metric.to_json() for name, source in self.metrics.items()},
            "contexts": {name: kind_json(source.kind) for name, source in self.contexts.items()},
        }

    def check_mode(self, mode: Mode) -> None:
        """InvalidSpace if the study cannot be run in this mode."""
        sinks = self.sinks_of(mode)
        if mode != "shadow" and not sinks:
            raise InvalidSpace(
                f"mode {mode} writes parameters, but no sink is there for it: add one, as in [sinks.settings] file ="
                ' "settings.json"'
            )
        reached = {name for sink in sinks for name in sink.knobs}
        for name in self.knobs if mode != "shadow" else ():
            if name not in reached:
                raise InvalidSpace(f"knob {name!r} reaches no sink: put {{{name}}} into the template or the command")
        if mode == "canary" and not self.has_canaries and any(s.canary is not None for s in self.metrics.values()):
            raise InvalidSpace("canary and control must be there for every metric, or for none")


def read_study(path: str | Path) -> WatchStudy:
    """The study in a file; files and templates that it names are relative to it."""
    return build_study(read_study_file(Path(path)), Path(path).parent)


def build_study(fields: Mapping[str, Any], folder: Path = Path()) -> WatchStudy:
    """A study from fields as a study file has them."""
    check_fields("a study to watch", fields, FIELDS)
    _check_places(fields)
    knobs, default = parse_knobs(fields, 'threads = "int:1..32:log" under [knobs]')
    if unasked := [name for name in default if name not in table(fields, "default")]:
        raise InvalidSpace(
            f"default lacks {', '.join(unasked)}: say what runs today under [default], for that is what everything is"
            " compared with and what it goes back to"
        )
    missing = check_missing("study", fields.get("missing", "skip"), ("skip", "wait"))
    metrics = {
        name: metric_query(name, spec, fields.get("min_samples"), missing)
        for name, spec in table(fields, "metrics").items()
    }
    if not metrics:
        raise InvalidSpace('a study needs a metric, as in [metrics.p99_ms] query = "..." goal = "min"')
    word = "skip" if isinstance(missing, float) else missing
    contexts = {name: context_query(name, spec, word) for name, spec in table(fields, "contexts").items()}
    window_s = seconds("window", fields.get("window", "1m")) or 0.0
    name, usual_exit = str(fields.get("name") or "watch"), "default" if contexts else "keep"
    study = WatchStudy(
        name=name,
        prometheus=_prometheus(table(fields, "prometheus")),
        knobs=knobs,
        default=default,
        metrics=metrics,
        contexts=contexts,
        running=_running(table(fields, "running"), knobs),
        sinks=tuple(parse_sink(name, key, spec, knobs, folder) for key, spec in table(fields, "sinks").items()),
        constraints=rules_of(fields.get("constraints", ())),
        mode=check_mode_word(fields.get("mode", "shadow")),
        settle_s=_seconds_or_zero("settle", fields.get("settle", 0)),
        window_s=window_s,
        wait_s=seconds("wait", fields.get("wait", 2.0 * window_s)) or 0.0,
        share=_share("share", fields.get("share", 0.25)),
        holdout=_share("holdout", fields.get("holdout", 0.1), none=True),
        violations=whole("violations", fields.get("violations", 3), 1, 1000, InvalidSpace),
        budget=_budget(fields.get("budget", BUDGET)),
        when_spent=one_of("when_spent", fields.get("when_spent", "rollback"), ("rollback", "exploit"), InvalidSpace),
        on_change=one_of("on_change", fields.get("on_change", "learn"), ("learn", "skip"), InvalidSpace),
        on_exit=one_of("on_exit", fields.get("on_exit", usual_exit), ("keep", "default"), InvalidSpace),
        seed=whole("seed", fields.get("seed", 0), 0, 2**63, InvalidSpace),
        max_change=fields.get("max_change"),
        look_every_s=_look_every(fields.get("look_every"), window_s),
    )
    study.check()
    study.check_mode(study.mode)
    return study


def _check_places(fields: Mapping[str, Any]) -> None:
    """Refuse a field of the study in one of its tables: in TOML a line belongs to the [table] above it."""
    parts = {"prometheus": fields.get("prometheus")}
    for kind in ("metrics", "contexts", "sinks"):
        parts |= {f"{kind}.{name}": part for name, part in table(fields, kind).items()}
    for where, part in parts.items():
        for name in part if isinstance(part, Mapping) else ():
            if name in STUDY_ALONE:
                raise InvalidSpace(
                    f"{where} has no field {name!r}, the study has: put its line above the first [table]"
                )


def check_mode_word(given: object) -> Mode:
    return cast(Mode, one_of("mode", given, MODES, InvalidSpace))


def _prometheus(fields: Mapping[str, Any]) -> Prometheus:
    check_fields("prometheus", fields, ("url", "timeout", "max_age", "headers", "token_env"))
    return Prometheus(
        check_url("prometheus.url", fields.get("url", "http://127.0.0.1:9090")).rstrip("/"),
        seconds("prometheus.timeout", fields.get("timeout", 5)) or 0.0,
        seconds("prometheus.max_age", fields.get("max_age", "2m")) or 0.0,
        check_headers("prometheus", fields.get("headers", {}), fields.get("token_env")),
    )


def _running(fields: Mapping[str, Any], knobs: Mapping[str, Knob]) -> dict[str, RunningQuery]:
    if unknown := sorted(set(fields) - set(knobs)):
        raise InvalidSpace(f"running names {unknown[0]!r}, which is no knob; there are {', '.join(knobs)}")
    if lacking := [name for name in knobs if fields and name not in fields]:
        raise InvalidSpace(f"running lacks {lacking[0]!r}: give a query for every knob, or for none")
    return {name: running_query(name, spec) for name, spec in fields.items()}


def _seconds_or_zero(field: str, given: object) -> float:
    is_zero = isinstance(given, (int, float)) and not isinstance(given, bool) and given == 0
    return 0.0 if is_zero else seconds(field, given) or 0.0


def _look_every(given: object, window_s: float) -> float | None:
    """A fifth of the window, unless it is said; `look_every = false`: never."""
    if given is False:
        return None
    every = window_s / LOOKS_A_WINDOW if given is None else seconds("look_every", given)
    return every if every is not None and every < window_s else None


def _share(field: str, given: object, none: bool = False) -> float:
    """A share of the steps."""
    share = number(field, given, InvalidSpace)
    if not (FEWEST_SHARE <= share <= 1.0 - FEWEST_SHARE or (none and share == 0.0)):
        also = ", or 0" if none else ""
        raise InvalidSpace(
            f"{field} must be a share of steps from {FEWEST_SHARE:g} to {1.0 - FEWEST_SHARE:g}{also}, got {show(given)}"
        )
    return share


def _budget(given: object) -> float | None:
    """`budget = false` is none."""
    if given is False:
        return None
    if given is True or (share := number("budget", given, InvalidSpace)) < 0.0:
        raise InvalidSpace(f"budget must be a share of the default's loss such as 0.02, or false, got {show(given)}")
    return share
