"""RaspScheduler: trials of Ray Tune that RaspSearch suggested end at their stop (docs/RAY_TUNE.md)."""

from typing import Any

from rasp_tuner.base.checks import show
from rasp_tuner.errors import InvalidSpace
from rasp_tuner.integrations.ray_tune import RaspSearch  # which says what to install, if Ray is not there

from ray.tune.schedulers import FIFOScheduler  # isort: skip


class RaspScheduler(FIFOScheduler):
    """Ends a trial whose metric has reached the suggestion's stop; RaspSearch learns it as at least so bad.

    For `tune.TuneConfig(search_alg=RaspSearch(..., default={...}), scheduler=RaspScheduler())`. The trials report their
    metric while they run: what it came to so far, of one that only grows, as time and cost do.
    """

    def on_trial_result(self, tune_controller: Any, trial: Any, result: dict[str, Any]) -> str:
        """STOP or CONTINUE."""
        search = _search_of(tune_controller.search_alg)
        return str(self.STOP if search.should_stop(trial.trial_id, result) else self.CONTINUE)


def _search_of(found: Any) -> RaspSearch:
    """The RaspSearch inside of what Ray has wrapped around it."""
    while not isinstance(found, RaspSearch):
        inner = getattr(found, "searcher", None)
        if inner is None:
            raise InvalidSpace(f"RaspScheduler needs search_alg=RaspSearch(...), got {show(found)}")
        found = inner
    return found
