"""The page of a tuner: one self-contained HTML file with its gain, runs, knobs, situations, experts and budget."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

import numpy as np

from rasp_tuner.core import html_page
from rasp_tuner.core.ledger import Ledger
from rasp_tuner.core.numerics import Array
from rasp_tuner.core.optimizer import Optimizer
from rasp_tuner.core.savings import Savings
from rasp_tuner.core.step_record import StepRecord
from rasp_tuner.report.axes import jitter, place_of, places_of
from rasp_tuner.report.charts import Point, knob_steps, running_total, shares, timeline
from rasp_tuner.report.gain import SETTLED, Gain, running_gain
from rasp_tuner.report.history import History, Row
from rasp_tuner.report.looks import Looks
from rasp_tuner.report.pieces import PAGE_STYLE, key, settings_table, tiles
from rasp_tuner.report.return_section import return_section
from rasp_tuner.report.seen import SeenBefore
from rasp_tuner.report.situations import context_words, grouped, some_of
from rasp_tuner.report.steps import Names
from rasp_tuner.report.words import number_words, settings_words
from rasp_tuner.space import Auto, Knob, Params
from rasp_tuner.types import Margin, Metric

MOST_PANELS = 24  # pictures of knobs
MOST_METRICS = 6
MOST_ROWS = 200  # of the table of steps, the latest
MOST_CONTEXTS = 200  # different ones, the latest, that situations are made of
NAMES_IN_LABEL = 4
LATEST_ANSWERS = 20  # whose weights of experts are averaged
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
    best: Callable[[Array], Array]  # a context [d_c] -> the point [d] recommended
    seen: SeenBefore | None = None  # visits on record
    savings: Savings | None = None  # measured against drawn runs of the default, or controls
    looks: Looks | None = None  # whether it still tries what is less known

    @property
    def default(self) -> Params:
        return self.names.space.from_unit(self.names.default)


def tuner_page(shown: Shown) -> str:
    """The whole page, with nothing to fetch and no script."""
    title = shown.title or f"Tuner of {some_of(list(shown.names.space.knobs), ' and others')}"
    first = SETTLED if shown.optimizer.model.own_metric is None else 0
    gains = running_gain(shown.history, shown.names.sign, first)
    body = [
        f"<h1>{escape(title)}</h1>",
        _headline(shown, gains),
        *_savings(shown.savings),
        *([] if shown.looks is None else [f'<p class="note">Exploring: {escape(str(shown.looks))}.</p>']),
        tiles(_facts(shown)),
        *_situations(shown),
        *_returns(shown),
        *_gain(shown, gains),
        *_metrics(shown),
        *_knobs(shown),
        *_experts(shown),
        *_budget(shown),
        *_steps(shown.history),
    ]
    return html_page.page(title, body, PAGE_STYLE)


def _headline(shown: Shown, gains: Sequence[Gain]) -> str:
    """The outcome in a sentence."""
    colour, said, note = "", "", ""
    if not shown.learned:
        said = "Nothing has been learned yet"
    elif len(shown.history) and all(row["failed"] for row in shown.history):
        colour, said = "bad", f"All {len(shown.history):,} runs on record failed"
    elif not gains:
        said = "No comparison with the default: no forecasts of it are on record"
    else:
        colour, said, note = _compared(shown, gains[-1])
        note += f"; {len(gains):,} steps, exploring included"
    return f'<p class="verdict {colour}">{escape(said)}.</p>' + (f'<p class="note">{escape(note)}.</p>' if note else "")


def _savings(savings: Savings | None) -> list[str]:
    """What was measured, beside the headline, which is a forecast."""
    if savings is None:
        return []
    runs = f"{savings.held_out:,} drawn runs of the default" if savings.held_out else f"{savings.paired:,} controls"
    metrics = [] if len(savings.metrics) == 1 else [f"{name}: {gain}" for name, gain in savings.metrics.items()]
    note = f"Measured against {runs}: the interval holds at every look, with a probability of 95%."
    told = "".join(f"<br>{escape(one)}" for one in metrics)
    return [f"<p>Measured: {escape(str(savings))}.{told}</p>", f'<p class="note">{note}</p>']


def _compared(shown: Shown, gain: Gain) -> tuple[str, str, str]:
    """Colour, sentence and interval: in percent if that makes sense, else in units of the target."""
    colour = "good" if gain.total > gain.half else "bad" if gain.total < -gain.half else ""
    name = shown.optimizer.model.own_metric
    word = "higher" if (gain.total < 0.0) == (shown.names.sign > 0.0) else "lower"
    if name is not None and gain.share is not None:
        share, low, high = gain.share
        said = f"{name} was {abs(share):.1%} {word} than the default would have given"
        return colour, said, f"95% interval of the gain: {low:+.1%} to {high:+.1%}"
    said = f"{name or 'The weighted sum of all metrics'} was {word} than the default would have given"
    each = f"{gain.total / gain.steps:+.3g} a step"
    return colour, said, f"Gain {each}, +- {gain.half / gain.steps:.2g} (95%), in units of the target"


def _facts(shown: Shown) -> list[tuple[str, str]]:
    failed, total = sum(row["failed"] for row in shown.history), len(shown.history)
    facts = [(f"{shown.learned:,}", "runs learned")]
    if total:
        facts.append((f"{failed:,}", f"of {total:,} on record failed"))
        facts.append((f"{sum(row['default'] for row in shown.history):,}", "of them ran the default"))
    facts.append((f"{len(shown.ledger.pending):,}", "wait for an answer"))
    for name, metric in shown.optimizer.metrics.items():
        limit, told = metric.limit, [row["metrics"][name] for row in shown.history if row["metrics"] is not None]
        if limit is not None and not limit.relative and told:
            kept = sum(value <= limit.value if metric.direction == "min" else value >= limit.value for value in told)
            facts.append((f"{kept / len(told):.0%}", f"of them kept the limit of {name}, {number_words(limit.value)}"))
    return facts


def _situations(shown: Shown) -> list[str]:
    """What to use where, and how far that keeps limits."""
    body = ["<h2>Recommended settings</h2>"]
    contexts = _contexts(shown)
    knobs = list(shown.names.space.knobs)
    if not contexts:
        why = "Contexts are not on record" if shown.learned else "No situation was met yet"
        note = f'<p class="note">{why}: tuner.recommend(context) says what is best in one.</p>'
        return [*body, settings_table(knobs, shown.default, [], "situation", ""), note]
    decoded = [_named(shown, context) for context in contexts]
    points = [shown.best(context) for context in contexts]
    recommended = [shown.names.space.from_unit(point) for point in points]
    varying = [name for name in decoded[0] if len({str(context[name]) for context in decoded}) > 1]
    rows, margins = [], []
    for members, typical in grouped(decoded, recommended):
        own = [decoded[i] for i in members]
        label = context_words(own, varying[:NAMES_IN_LABEL]) if len(members) < len(decoded) else "everywhere"
        count = f"{len(members):,} of {len(decoded):,} contexts" if len(decoded) > 1 else ""
        rows.append((label or "everywhere", recommended[typical], count))
        margins += [
            (label, name, margin)
            for name, margin in shown.optimizer.margins(contexts[typical], points[typical]).items()
        ]
    body.append(settings_table(knobs, shown.default, rows, "situation", "met in"))
    return [*body, *_limits(shown.optimizer.metrics, margins)]


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


def _contexts(shown: Shown) -> list[Array]:
    """Different contexts that were met, the latest of them; of a tuner without steps on record those in memory."""
    found = list(shown.record.parts()[3])
    if not shown.names.context:
        return [np.zeros(0)]
    if not len(shown.record):
        slots = shown.optimizer.model.slots().contexts
        found = list(slots) if slots.shape[1] == len(shown.names.context) or shown.record.keeps_context else []
    elif not shown.record.keeps_context:
        return []
    latest = {context.tobytes(): context for context in found}
    return list(latest.values())[-MOST_CONTEXTS:]


def _named(shown: Shown, context: Array) -> dict[str, Any]:
    values = shown.names.decode(context)
    return values if isinstance(values, dict) else dict(zip(shown.names.context, values, strict=True))


def _gain(shown: Shown, gains: Sequence[Gain]) -> list[str]:
    if len(gains) < 2:
        return []
    metric = shown.optimizer.model.own_metric
    label = f"gain so far, in {metric}" if metric else "gain so far, in units of the target"
    rows = [(float(g.step), g.total, g.total - g.half, g.total + g.half) for g in gains]
    note = (
        "What the default was expected to come to in the same situations, less what came, summed up; above 0 is better."
        " Failed runs and those that nobody asked for are left out. The band is a 95% interval, as far as the tuner can"
        " tell: it counts errors of the forecasts as if all had erred the same way."
    )
    return ["<h2>Gain against the default</h2>", running_total(rows, label), f'<p class="note">{note}</p>']


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


def _experts(shown: Shown) -> list[str]:
    """How much weight each expert had in the latest answers."""
    latest = [why.explanation().gate for why in list(shown.ledger.answered.values())[-LATEST_ANSWERS:]]
    names = shown.optimizer.model.experts
    gates = [gate for gate in latest if len(gate) == len(names) and gate]
    if not gates:
        return []
    weights = np.mean(gates, axis=0).tolist()
    rows = sorted(zip(names, weights, strict=True), key=lambda row: -row[1])
    note = f"Weight of each expert in forecasts, mean of the latest {len(gates)} answers. They forecast from:"
    return ["<h2>Experts</h2>", f'<p class="note">{note}</p>', shares(rows, "weights of experts")]


def _budget(shown: Shown) -> list[str]:
    budget = shown.optimizer.model.budget()
    if budget is None:
        return []
    facts = [
        (f"{budget.share:.1%}", "of the default's loss may be spent at each step"),
        (f"{budget.spent:.2f}", f"spent in {budget.steps:,} steps"),
        (f"{budget.earned:.2f}", "surely earned"),
        (f"{max(budget.left, 0.0):.2f}", "may be spent now"),
    ]
    note = "In steps of the default's loss: a run that is 30% worse than the default spends 0.3."
    return ["<h2>Budget</h2>", tiles(facts), f'<p class="note">{note}</p>']


def _steps(history: History) -> list[str]:
    if not len(history):
        return []
    shown = min(len(history), MOST_ROWS)
    title = (
        f"The latest {shown:,} of {len(history):,} steps" if shown < len(history) else f"All {shown:,} steps on record"
    )
    note = f'<p class="note">{escape(history.note)}</p>' if history.note else ""
    return ["<h2>Steps</h2>", html_page.folded(title, html_page.table(history.texts(MOST_ROWS))), note]


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
