"""How many runs come after the search."""

from rasp_tuner.tune.knob_shares import FEWEST_ROUNDS, MOST_KNOBS
from rasp_tuner.tune.paired_comparison import pairs_each
from rasp_tuner.tune.playoff import MOST_INPUTS, ROUNDS
from rasp_tuner.tune.study import TuneStudy


def comparison_runs(study: TuneStudy, final_pairs: int | None, inputs: int) -> int:
    """Runs of the play-off, of the look at which knobs matter, and of the final pairs, as a rule at most."""
    if final_pairs == 0:
        return 0
    situations = max(1, min(inputs, MOST_INPUTS))
    checks = 4 * ROUNDS + FEWEST_ROUNDS * min(len(study.knobs), MOST_KNOBS)
    return situations * (2 * pairs_each(situations, final_pairs) + checks) * (study.warmup + study.repeats)
