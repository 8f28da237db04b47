"""What a study would do, in words: commands, metrics, how many runs, how long."""

from pathlib import Path

import numpy as np

from rasp_tuner.page.words import duration_words, listed, range_words, settings_words
from rasp_tuner.tune.api import TUNE_FOLDER
from rasp_tuner.tune.changed_space import own_folder
from rasp_tuner.tune.loop import CONTROL_EVERY, timeout_words
from rasp_tuner.tune.measure import placeholder_values, runner_of
from rasp_tuner.tune.paired_comparison import LEAST_PAIRS, USUAL_PAIRS
from rasp_tuner.tune.progress import comparison_runs
from rasp_tuner.tune.study import StopRules, TuneStudy

INPUTS_SHOWN = 5


def plan_words(study: TuneStudy, limits: StopRules, folder: Path | None = None) -> str:
    """Everything that would happen, without doing it."""
    inputs = study.find_inputs()
    runner = runner_of(study)
    offers = [study.space.from_unit(np.full(study.space.dim, at)) for at in (0.8, 0.2)]
    other = next((offer for offer in offers if offer != study.default), offers[0])
    input = inputs[0] if inputs else None
    assumed = f"  (no --default was given for {', '.join(study.assumed)})" if study.assumed else ""
    lines = [
        f"study     {study.name}, in {folder or own_folder(study, Path(TUNE_FOLDER))}",
        f"default   {settings_words(study.default)}{assumed}",
        f"runs      {runner.shown(placeholder_values(study, study.default, input))}",
        f"such as   {runner.shown(placeholder_values(study, other, input))}",
        *(f"writes    {target} from {source}" for target, source in study.files.items()),
        *(f"knob      {name}: {range_words(knob)}" for name, knob in study.knobs.items()),
        *(f"keeps     {rule}" for rule in study.constraints),
        *(f"metric    {name}: {source}" for name, source in study.metrics.items()),
        *(f"context   {name}: {source}" for name, source in study.contexts.items() if source.kind != "text"),
    ]
    if inputs:
        lines.append(f"inputs    {listed(inputs, INPUTS_SHOWN)}, in turn")
    each = study.warmup + study.repeats
    dropped = f", the first {study.warmup} of them dropped" if study.warmup else ""
    lines.append(f"each step {each} run{'s' * (each > 1)}{dropped}; the default once more every {CONTROL_EVERY} steps")
    lines += [_limit_words(study), _length_words(limits, each, study, len(inputs))]
    return "\n".join(lines)


def _limit_words(study: TuneStudy) -> str:
    if study.command is None:
        return "timeout   none: a function cannot be stopped"
    rival = "best" if study.budget is None else "default"
    stop = f"; one that is clearly slower than the {rival} is stopped before" if study.can_stop else ""
    ended = "then the command and all it started are ended, and the run counts as failed"
    return f"timeout   {timeout_words(study)}; {ended}{stop}"


def _length_words(limits: StopRules, each: int, study: TuneStudy, inputs: int) -> str:
    pairs = limits.final_pairs
    usual = f"{USUAL_PAIRS} pairs against the default, at least {LEAST_PAIRS} in each situation"
    compared = f"{pairs} pairs against the default in each situation" if pairs is not None else usual
    final = f"then a play-off of the best settings, a look at which knobs matter, and {compared}"
    final = final if pairs != 0 else "no final comparison"
    if limits.steps is None:
        return f"length    {duration_words(limits.time_s or 0.0)} of tuning, {final}"
    total = limits.steps * each + comparison_runs(study, pairs, inputs)
    worst = f", at most {duration_words(total * study.timeout_s)}" if study.timeout_s else ""
    capped = f", tuning ends after {duration_words(limits.time_s)}" if limits.time_s is not None else ""
    return (
        f"length    {limits.steps} steps, {final}: up to about {total:,} runs, {duration_words(total)} if one takes a"
        f" second{worst}{capped}"
    )
