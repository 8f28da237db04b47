"""The page of a tuner: one self-contained HTML file with its gain, runs, knobs, situations and budget."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

from rasp_tuner.base.numerics import Array
from rasp_tuner.gain.versus_default import ForecastLedger, StepForecast, VersusDefault, believed_deviation
from rasp_tuner.optimizer.optimizer import Optimizer
from rasp_tuner.page import html_page
from rasp_tuner.page.axes import jitter, place_of, places_of
from rasp_tuner.page.charts import Point, knob_steps, running_gain, timeline
from rasp_tuner.page.parts import PAGE_STYLE, key, settings_table, tiles
from rasp_tuner.page.words import number_words, settings_words
from rasp_tuner.records.ledger import Ledger
from rasp_tuner.records.step_record import StepRecord
from rasp_tuner.report.decided import FinalDecision
from rasp_tuner.report.history import History, Row
from rasp_tuner.report.looks import Looks
from rasp_tuner.report.return_section import return_section
from rasp_tuner.report.situation_gains import SituationGain, expected_words
from rasp_tuner.report.situations import some_of
from rasp_tuner.report.steps import Names
from rasp_tuner.report.visits_on_record import SeenBefore
from rasp_tuner.space import Auto, Knob, Params
from rasp_tuner.types import Margin, Metric
from rasp_tuner.types.knob_shares import NO_EFFECT_WORDS

MOST_PANELS = 24  # pictures of knobs
MOST_METRICS = 6
MOST_STEPS_SHOWN = 200  # of the table of steps, the latest
MEASURED_WORDS = (
    "Measured: some steps ran the default, drawn at random or as controls, and are compared with the others. The"
    " interval of 95% holds at every look."
)
FORECAST_WORDS = (
    "A forecast, no proof: what the tuner expected of the default in the same situations, beside what came, exploring"
    " included. A holdout (docs/SAVINGS.md) measures it."
)
DRAWN = 1e300  # larger numbers are drawn there


@dataclass(frozen=True)
class Shown:
    """What a page is made of."""

    title: str | None
    history: History
    names: Names
    record: StepRecord
    ledger: Ledger
    optimizer: Optimizer
    learned: int
    seen: SeenBefore | None = None  # visits on record
    versus: VersusDefault | None = None  # the gain
    situations: Sequence[SituationGain] = ()
    looks: Looks | None = None  # whether it still tries what is less known
    decided: FinalDecision | None = None  # what a final comparison settled, in the place of `situations`

    @property
    def default(self) -> Params:
        return self.names.space.from_unit(self.names.default)


def tuner_page(shown: Shown) -> str:
    """The whole page, with nothing to fetch and no script."""
    title = shown.title or f"Tuner of {some_of(list(shown.names.space.knobs), ' and others')}"
    body = [
        f"<h1>{escape(title)}</h1>",
        _headline(shown),
        *(
            []
            if shown.looks is None or shown.decided is not None
            else [f'<p class="note">Exploring: {escape(str(shown.looks))}.</p>']
        ),
        tiles(_facts(shown)),
        *_situations(shown),
        *_returns(shown),
        *_gain(shown),
        *_metrics(shown),
        *_knobs(shown),
        *_budget(shown),
        *_steps(shown.history),
    ]
    return html_page.page(title, body, PAGE_STYLE)


def _headline(shown: Shown) -> str:
    """The outcome in a sentence, and what it rests on."""
    colour, said, notes = "", "", []
    versus, decided = shown.versus, shown.decided
    if decided is not None:
        colour = {"better": "good", "worse": "bad"}.get(decided.outcome, "")
        said = decided.words[:1].upper() + decided.words[1:]
        notes = [decided.basis(), *([] if versus is None else [f"While tuning, by the runs below: {versus}."])]
    elif not shown.learned:
        said = "Nothing has been learned yet"
    elif len(shown.history) and all(row["failed"] for row in shown.history):
        colour, said = "bad", f"All {len(shown.history):,} runs on record failed"
    elif versus is None:
        said = "No comparison with the default: too little is known of it"
    else:
        outcome = None if versus.gain is None else versus.gain.outcome
        colour = "good" if outcome == "better" else "bad" if outcome == "worse" else ""
        name = next(iter(versus.metrics)) if len(versus.metrics) == 1 else "all metrics together"
        said, notes = f"{name}: {versus}", [f"{one}: {gain}." for one, gain in versus.metrics.items()]
        notes = [*(notes if len(notes) > 1 else []), MEASURED_WORDS if versus.measured else FORECAST_WORDS]
    notes += [] if versus is None else [versus.rest_words(shown.learned)]
    told = "<br>".join(map(escape, filter(None, notes)))
    return f'<p class="verdict {colour}">{escape(said)}.</p>' + (f'<p class="note">{told}</p>' if told else "")


def _facts(shown: Shown) -> list[tuple[str, str]]:
    failed, total = sum(row["failed"] for row in shown.history), len(shown.history)
    facts = [(f"{shown.learned:,}", "runs learned")]
    if total:
        facts.append((f"{failed:,}", f"of {total:,} on record failed"))
        facts.append((f"{sum(row['default'] for row in shown.history):,}", f"of {total:,} ran the default"))
    facts.append((f"{len(shown.ledger.pending):,}", "wait for an answer"))
    for name, metric in shown.optimizer.metrics.items():
        limit, told = metric.limit, [row["metrics"][name] for row in shown.history if row["metrics"] is not None]
        if limit is not None and not limit.relative and told:
            kept = sum(not metric.breaks(value) for value in told)
            facts.append((f"{kept / len(told):.0%}", f"of them kept the limit of {name}, {number_words(limit.value)}"))
    return facts


def _situations(shown: Shown) -> list[str]:
    """What to use where, and how far that keeps limits."""
    body = ["<h2>Recommended settings</h2>"]
    knobs = list(shown.names.space.knobs)
    if shown.decided is not None:
        alone = len(shown.decided.situations) == 1
        each = [("use" if alone else one.label, one.use, one.words) for one in shown.decided.situations]
        return [*body, settings_table(knobs, shown.default, each, "" if alone else "situation", "against the default")]
    if not shown.situations:
        why = "Contexts are not on record" if shown.learned else "No situation was met yet"
        note = f'<p class="note">{why}: tuner.recommend(context) says what is best in one.</p>'
        return [*body, settings_table(knobs, shown.default, [], "situation", ""), note]
    met = sum(one.contexts for one in shown.situations)
    rows, margins = [], []
    for one in shown.situations:
        count = f" ({one.contexts:,} of {met:,} contexts)" if met > 1 else ""
        params = {name: value for name, value in one.params.items() if name not in one.unproven}
        rows.append((one.label, params, _gain_words(one, len(knobs) > 1) + count))
        margins += [(one.label, name, margin) for name, margin in one.margins.items()]
    shares = ", and from which knobs" if len(knobs) > 1 and any(one.knobs.shares for one in shown.situations) else ""
    body.append(settings_table(knobs, shown.default, rows, "situation", f"expected against the default{shares}"))
    if any(one.unproven for one in shown.situations):
        body.append(f'<p class="note">{escape(NO_EFFECT_WORDS)}</p>')
    return [*body, *_limits(shown.optimizer.metrics, margins)]


def _gain_words(one: SituationGain, several_knobs: bool) -> str:
    if not one.changed:
        return "the default"
    if several_knobs or one.unproven:
        said = one.gain_words() if one.gains else "not known yet"
        return said if one.proven else f"the default; {said}"
    return ", ".join(f"{name} {expected_words(gain)}" for name, gain in one.gains.items()) or "not known yet"


def _returns(shown: Shown) -> list[str]:
    if shown.seen is None:
        return []
    return return_section(shown.seen, list(shown.record.parts()[3]), lambda context: _named(shown, context))


def _limits(metrics: Mapping[str, Metric], margins: Sequence[tuple[str, str, Margin]]) -> list[str]:
    if not margins:
        limited = [name for name, metric in metrics.items() if metric.limit is not None]
        return [f'<p class="note">Nothing is known yet of the limits of {escape(", ".join(limited))}.</p>'] * bool(
            limited
        )
    head = ["situation", "metric", "expected", "in nine runs of ten", "limit", "kept with probability"]
    rows = [
        [label, name, *map(number_words, (margin.expected, margin.bound, margin.limit)), f"{margin.kept:.0%}"]
        for label, name, margin in margins
    ]
    return [html_page.table((head, rows), "Limits, with the recommended settings")]


def _named(shown: Shown, context: Array) -> dict[str, Any]:
    values = shown.names.decode(context)
    return values if isinstance(values, dict) else dict(zip(shown.names.context, values, strict=True))


def _gain(shown: Shown) -> list[str]:
    """How the gain by forecast came about; one that is measured has no such course."""
    metric = shown.optimizer.model.own_metric
    if metric is None or shown.versus is None or shown.versus.measured:
        return []
    ledger, rows = ForecastLedger({metric: shown.names.sign}), []
    scales, unit = shown.optimizer.scales, 100.0 if shown.versus.kind == "share" else 1.0
    for row in shown.history:
        if row["id"] is None or row["failed"]:
            continue
        ledger.add({metric: row["target"]}, _forecast(row, metric), row["default"], 1)
        found = ledger.report(scales, {metric: 1.0})
        gain = None if found is None else found.gain
        if gain is not None and gain.low is not None and gain.high is not None and gain.kind == shown.versus.kind:
            rows.append((float(row["step"]), unit * gain.value, unit * gain.low, unit * gain.high))
    if len(rows) < 2:
        return []
    label = "gain so far, % of the default" if unit == 100.0 else f"gain of a step so far, in {metric}"
    note = (
        "Mean over the steps so far, with its 95% interval; above 0 is better. Failed runs and those that nobody asked"
        " for are left out."
    )
    return ["<h2>Gain against the default</h2>", running_gain(rows, label), f'<p class="note">{note}</p>']


def _forecast(row: Row, metric: str) -> dict[str, StepForecast]:
    """What was expected before a step, as the tuner counted it."""
    level, expected, deviation = row["expected_default"], row["expected"], row["deviation"]
    if level is None or expected is None or deviation is None:
        return {}
    return {metric: StepForecast(level, believed_deviation(level - expected, row["better"], deviation), deviation)}


def _metrics(shown: Shown) -> list[str]:
    history = shown.history
    if not len(history):
        return [f'<p class="note">{escape(str(history))}</p>']
    pictures = [_metric(shown, name, metric) for name, metric in list(shown.optimizer.metrics.items())[:MOST_METRICS]]
    dashes = "; short dashes: what was expected of it" if shown.optimizer.model.own_metric else ""
    legend = [key(f"the default{dashes}")] if any(pictures) else ['<p class="note">No run on record has any.</p>']
    more = _left_out(len(shown.optimizer.metrics) - MOST_METRICS, "metrics")
    return ["<h2>Metrics over steps</h2>", *pictures, *legend, *more]


def _metric(shown: Shown, name: str, metric: Metric) -> str:
    points = [Point(float(row["step"]), _value(row, name), _mark(row), _note(row)) for row in shown.history]
    known = [
        row for row in shown.history if row["expected_default"] is not None and name == shown.optimizer.model.own_metric
    ]
    usual = [(float(row["step"]), _drawn(row["expected_default"])) for row in known]
    limit = metric.limit
    if limit is None or limit.relative:
        return timeline(points, name, None, usual)
    return timeline(points, f"{name}, limit {number_words(limit.value)}", limit.value, usual)


def _knobs(shown: Shown) -> list[str]:
    """What ran over steps."""
    panels = []
    for name, knob in list(shown.names.space.knobs.items())[:MOST_PANELS]:
        points = [
            Point(float(row["step"]), _height(knob, row["params"][name], row["step"]), _mark(row), "")
            for row in shown.history
            if name in row["params"]
        ]
        usual = _height(knob, shown.default[name], None) if name in shown.default else None
        word = name in shown.default and usual is None
        if points:
            panels.append(knob_steps(name, points, places_of(knob), float("nan") if word else usual))
    if not panels:
        return []
    return [
        "<h2>Knobs over steps</h2>",
        '<p class="note">What ran. Dashed: the default; grey: runs of the default; red: failed.</p>',
        f'<div class="panels">{"".join(panels)}</div>',
        *_left_out(len(shown.names.space.knobs) - MOST_PANELS, "knobs"),
    ]


def _budget(shown: Shown) -> list[str]:
    budget = shown.optimizer.model.budget()
    if budget is None:
        return []
    facts = [
        (f"{budget.share:.1%}", "more than the default may be lost by exploring"),
        (number_words(budget.spent), "runs of the default lost so far"),
        (number_words(budget.earned), "surely won back"),
        (number_words(max(budget.left, 0.0)), "may still be lost"),
    ]
    note = "A run that is 30% worse than the default loses 0.3 runs of the default."
    return ["<h2>Budget</h2>", tiles(facts), f'<p class="note">{note}</p>']


def _steps(history: History) -> list[str]:
    if not len(history):
        return []
    shown = min(len(history), MOST_STEPS_SHOWN)
    title = (
        f"The latest {shown:,} of {len(history):,} steps" if shown < len(history) else f"All {shown:,} steps on record"
    )
    note = f'<p class="note">{escape(history.note)}</p>' if history.note else ""
    return ["<h2>Steps</h2>", html_page.folded(title, html_page.table(history.texts(MOST_STEPS_SHOWN))), note]


def _left_out(count: int, what: str) -> list[str]:
    return [f'<p class="note">{count:,} more {what} are not drawn.</p>'] if count > 0 else []


def _value(row: Row, metric: str) -> float | None:
    return None if row["metrics"] is None else _drawn(row["metrics"][metric])


def _drawn(value: float) -> float:
    return min(max(value, -DRAWN), DRAWN)


def _mark(row: Row) -> str:
    return "failed" if row["failed"] else "control" if row["default"] else "suggested"


def _note(row: Row) -> str:
    came = " ".join((row["failure"] or "failed").split()) if row["failed"] else settings_words(row["metrics"])
    return f"step {row['step']}: {settings_words(row['params'])}: {came}"


def _height(knob: Knob, value: Any, step: int | None) -> float | None:
    """Where a value lies in a picture; None for a word."""
    if isinstance(knob, Auto) and knob.is_word(value):
        return None
    return place_of(knob, value) + (0.0 if step is None else jitter(knob, step))
