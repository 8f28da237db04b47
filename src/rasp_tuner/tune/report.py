"""The report of a tuned command: one HTML page with the verdict, the settings, pictures and every run."""

import math
from collections.abc import Callable, Mapping, Sequence
from html import escape

from rasp_tuner.page import html_page
from rasp_tuner.page.axes import jitter, place_of, places_of
from rasp_tuner.page.charts import Point, forest, knob_panel, timeline
from rasp_tuner.page.parts import PAGE_STYLE, key, settings_table, tiles
from rasp_tuner.page.words import duration_words, number_words, settings_words, value_words
from rasp_tuner.report.paired import METHOD
from rasp_tuner.space import Knob, Params
from rasp_tuner.tune.loop import CONTROL_EVERY, Run, timeout_words
from rasp_tuner.tune.result import TuneResult, headline, share_words
from rasp_tuner.tune.verdict import Outcome, goals_of, ratio_words

MOST_RUNS_SHOWN = 2000  # of the table of runs
MOST_PANELS = 24  # pictures of knobs

COLOURS: Mapping[Outcome, str] = {"better": "good", "worse": "bad", "same": "", "default": "", "untested": ""}

EFFECTS = {"ratio": "times", "difference": "difference from"}  # of an effect, before "the default"


def as_html(result: TuneResult, shown: Callable[[Params], str], finished: bool = True) -> str:
    """The whole page, with nothing to fetch; `shown` writes what runs with some settings."""
    study = result.study
    body = [f"<h1>{escape(study.name)}</h1>"]
    if finished:
        colour, said = COLOURS[result.verdict.outcome], headline(result)
        body.append(f'<p class="verdict {colour}">{escape(said[:1].upper() + said[1:])}</p>')
        ratios = "; ".join(
            f"{name} {ratio_words(e)} times" for name, e in result.verdict.effects.items() if e.kind == "ratio"
        )
        body.append(f'<p class="note">{escape(ratios)} the default, with 95% interval</p>' if ratios else "")
    else:
        body.append(f'<p class="verdict">Not finished: {study.caller.again} goes on from here.</p>')
    body += [
        _tiles(result),
        "<h2>Settings</h2>",
        _settings_table(result),
        *_knob_shares(result),
        _commands(result, shown),
    ]
    body += _comparison(result)
    body += _pictures(result)
    body += ["<h2>How it was measured</h2>", _method(result), _runs_table(result.runs, study.knobs)]
    return html_page.page(f"{study.name}: rasp tune", body, PAGE_STYLE)


def relative(runs: Sequence[Run], metric: str) -> list[float | None]:
    """Each run's metric as times the default's mean on the same input; as it is where that makes no sense."""
    levels: dict[str | None, float] = {}
    for input in {run.input for run in runs}:
        found = [r.metrics[metric] for r in runs if r.is_control and r.input == input and r.metrics]
        if found and all(value > 0.0 for value in found):
            levels[input] = math.exp(math.fsum(map(math.log, found)) / len(found))
    usable = all(run.input in levels for run in runs)
    return [
        None if run.metrics is None else run.metrics[metric] / (levels[run.input] if usable else 1.0) for run in runs
    ]


def _tiles(result: TuneResult) -> str:
    failed = sum(run.metrics is None for run in result.runs)
    spent = result.runs[-1].spent_s if result.runs else 0.0
    facts = [
        (f"{len(result.runs):,}", f"settings measured, {sum(r.is_control for r in result.runs)} times the default"),
        (f"{failed:,}", "failed"),
        (f"{sum(run.stopped for run in result.runs):,}", "stopped early"),
        (duration_words(spent), "spent tuning"),
        (f"{len(result.pairs):,}", "pairs in the final comparison"),
    ]
    return tiles(facts)


def _settings_table(result: TuneResult) -> str:
    """One row for each situation; what differs from the default is marked."""
    alone = len(result.situations) <= 1
    rows = [("use" if alone else found.situation.label, found.use, found.verdict.words) for found in result.situations]
    corner = "" if alone else "situation"
    return settings_table(list(result.study.knobs), result.study.default, rows, corner, "against the default")


def _knob_shares(result: TuneResult) -> list[str]:
    """Which knobs matter, for each situation where something is changed."""
    lines = []
    for found in result.situations:
        if found.shares:
            where = "" if len(result.situations) == 1 else f"{found.situation.label}: "
            lines.append(f"<li>{escape(where)}{escape(share_words(found.shares))}</li>")
    if not lines:
        return []
    what = result.study.objective if len(goals_of(result.study.metrics)) == 1 else "the cost"
    note = f"What each changed knob does to {what}, with the others as recommended:"
    return [f'<p class="note">{escape(note)}</p>', f'<ul class="knobs">{"".join(lines)}</ul>']


def _commands(result: TuneResult, shown: Callable[[Params], str]) -> str:
    """The default's command, and what to run instead."""
    lines = [f"# default\n{shown(result.study.default)}"]
    for found in result.situations:
        if found.use != result.study.default:
            label = "use" if len(result.situations) == 1 else found.situation.label
            lines.append(f"# {label}\n{shown(found.use)}")
    return f"<pre>{escape(chr(10).join(lines))}</pre>"


def _comparison(result: TuneResult) -> list[str]:
    if not result.pairs:
        return []
    body = ["<h2>Final comparison</h2>"]
    for name, overall in result.verdict.effects.items():
        rows = [
            (found.situation.label, one, COLOURS[found.verdict.outcome])
            for found in result.situations
            if len(result.situations) > 1 and (one := found.verdict.effects.get(name)) is not None
        ]
        rows.append(("all situations" if rows else name, overall, COLOURS[result.verdict.outcome]))
        for kind, what in EFFECTS.items():  # zero in one situation alone: a ratio here, a difference there
            own = [(label, e.value, e.low, e.high, colour) for label, e, colour in rows if e.kind == kind]
            body += [forest(own, f"{name}: {what} the default", 1.0 if kind == "ratio" else 0.0)] if own else []
    verdicts = [result.verdict, *(found.verdict for found in result.situations)]
    methods = {one.method for verdict in verdicts for one in verdict.effects.values()} or {METHOD}
    failures = ""
    if result.verdict.failed_default or result.verdict.failed_recommended:
        failures = (
            f" Of {result.verdict.pairs} runs each, {result.verdict.failed_recommended} failed with the recommendation"
            f" and {result.verdict.failed_default} with the default; pairs with a failure are left out of the ratios."
        )
    body.append(
        f'<p class="note">{len(result.pairs)} pairs of default and recommendation, run back to back, in random order.'
        f" Dots are means, lines their 95% intervals ({' and '.join(sorted(methods))}).{failures}</p>"
    )
    return body


def _pictures(result: TuneResult) -> list[str]:
    runs, study = result.runs, result.study
    metric = study.objective
    values = relative(runs, metric)
    level = (
        1.0
        if any(r.is_control and v is not None and abs(v - 1.0) < 1.0 for r, v in zip(runs, values, strict=True))
        else None
    )
    label = f"{metric}, times the default" if level is not None else metric
    points = [
        Point(float(run.step), value, _mark_of(run), _note(run, metric))
        for run, value in zip(runs, values, strict=True)
    ]
    upwards = study.metrics[metric].metric.direction == "max"
    known = [value for run, value in zip(runs, values, strict=True) if value is not None and not run.stopped]
    best = (max if upwards else min)(known) if known else None
    one = len({run.input for run in runs}) == 1
    body = [
        "<h2>Runs</h2>",
        timeline(points, label, level, best=best, trend=one),
        key("default, run to compare with", trend=one, stopped=any(run.stopped for run in runs)),
    ]
    panels = []
    for name, knob in list(study.knobs.items())[:MOST_PANELS]:
        places = places_of(knob)
        at = [
            Point(place_of(knob, run.params[name]) + jitter(knob, run.step), p.y, p.mark, p.note)
            for run, p in zip(runs, points, strict=True)
            if name in run.params
        ]
        chosen = [place_of(knob, found.use[name]) for found in result.situations if name in found.use]
        usual = [place_of(knob, study.default[name])] if name in study.default else []
        panels.append(knob_panel(name, at, places, usual, chosen, best))
    if panels:
        note = f"{label}, by the value of each knob. Dashed: the default; green: what to use."
        body += [
            "<h2>Knobs</h2>",
            f'<p class="note">{escape(note)}</p>',
            f'<div class="panels">{"".join(panels)}</div>',
        ]
    return body


def _mark_of(run: Run) -> str:
    if run.metrics is None:
        return "failed"
    return "control" if run.is_control else "stopped" if run.stopped else "suggested"


def _note(run: Run, metric: str) -> str:
    least = "stopped early, at least " if run.stopped else ""
    came = run.failure if run.metrics is None else f"{metric} {least}{number_words(run.metrics[metric])}"
    where = f" on {run.input}" if run.input else ""
    return f"step {run.step}{where}: {settings_words(run.params)}: {came}"


def _method(result: TuneResult) -> str:
    study = result.study
    lines = [f"Metrics: {'; '.join(f'{name} ({source})' for name, source in study.metrics.items())}."]
    told = [f"{name} ({source})" for name, source in study.contexts.items() if source.kind != "text"]
    lines += [f"Contexts: {'; '.join(told)}."] if told else []
    if study.inputs:
        lines.append(f"Inputs, in turn: {', '.join(study.inputs)}.")
    each = f"{study.repeats} runs, of which the median counts" if study.repeats > 1 else "one run"
    warm = f", after {study.warmup} that are dropped" if study.warmup else ""
    often = (
        "Beside every suggestion the default runs on the same input: noise that both share cancels."
        if study.paired
        else f"After every {CONTROL_EVERY} suggestions the default runs again."
    )
    lines.append(f"Each setting is {each}{warm}. {often}")
    lines += [] if result.savings is None else [f"While tuning: {result.savings}."]
    if study.command is not None:
        if study.can_stop:
            then = "; the default then does its work" if study.redo else ""
            rival = "best setting so far" if study.budget is None else "default"
            lines.append(
                f"A suggestion that takes clearly longer than the {rival} would is stopped early, at that one's"
                f" expected time and a quarter, or what noise asks for; it is learned as at least that slow{then}."
            )
        by_code = any(source.kind == "exit" for source in study.metrics.values())
        code = "" if by_code else ", or if its exit code is not zero"
        lines.append(f"A run fails if it takes longer than {timeout_words(study)}{code}.")
    return "".join(f"<p>{escape(line)}</p>" for line in lines)


def _runs_table(runs: Sequence[Run], knobs: Mapping[str, Knob]) -> str:
    metrics = list(dict.fromkeys(name for run in runs for name in run.metrics or ()))
    head = ["step", "input", *knobs, *metrics, "outcome"]
    rows = [
        [
            str(run.step),
            run.input or "",
            *(value_words(run.params[name]) if name in run.params else "-" for name in knobs),
            *("-" if run.metrics is None else f"{'≥ ' * run.stopped}{run.metrics[name]:.6g}" for name in metrics),
            run.failure or ("default" if run.is_control else "stopped early" if run.stopped else "tried"),
        ]
        for run in runs[-MOST_RUNS_SHOWN:]
    ]
    return html_page.folded(f"All {len(runs):,} runs", html_page.table((head, rows)))
