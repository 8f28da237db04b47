import numpy as np
import pytest

from rasp_tuner.errors import SnapshotError
from rasp_tuner.paper import HybridAdaptation, RealErrorComposer, RunningEMA
from rasp_tuner.paper.adaptation import ReplayBuffer


def settled():
    adaptation = HybridAdaptation()
    rng = np.random.default_rng(0)
    for _ in range(400):
        adaptation.judge(0.0, 0.1 + 0.01 * rng.normal())
    return adaptation


def test_nothing_unusual_takes_the_fast_path():
    verdict = settled().judge(anomaly=1.9, variance=0.1)
    assert (verdict.path, verdict.reason) == ("fast", "nothing unusual")


def test_an_unusual_error_takes_the_slow_path_and_says_so():
    verdict = settled().judge(anomaly=2.1, variance=0.1)
    assert (verdict.path, verdict.reason) == ("slow", "unusual error (z = 2.1)")


def test_disagreement_takes_the_slow_path_and_says_so():
    verdict = settled().judge(anomaly=0.0, variance=0.3)
    assert verdict.path == "slow"
    assert verdict.reason.startswith("experts disagree (z = ")


def test_unusually_good_is_no_emergency():
    assert settled().judge(anomaly=-9.0, variance=0.0).path == "fast"


def test_disagreement_is_judged_at_two_deviations():
    adaptation = settled()
    ema = adaptation.disagreement_ema
    below, above = (next(v for v in np.linspace(0.1, 0.2, 2001) if ema.peek(v) > z) for z in (1.9, 2.0))
    assert adaptation.doubt(below) < adaptation.doubt(above)
    assert settled().judge(0.0, below).path == "fast"
    assert settled().judge(0.0, above).path == "slow"


def test_with_the_papers_start_no_error_is_unusual_before_step_fifty_two():
    """The averages start at variance 1: even a jump from 0 to 1 stays below two deviations until that has faded."""

    def after(calm):
        ema = RunningEMA()
        for _ in range(calm):
            ema.observe(0.0)
        return ema.observe(1.0)

    assert next(step for step in range(200) if after(step - 1) > 2.0) == 52


def test_a_metric_that_never_moved_may_jump_unnoticed_until_step_112():
    """A composed error is 0.5 of a constant metric and below 1 after its jump, however large that is."""

    def after(calm):
        composer = RealErrorComposer({"m": "min"})
        for _ in range(calm):
            composer.anomaly(composer.compose({"m": 1.0}))
        return composer.anomaly(composer.compose({"m": 1e9}))

    assert next(step for step in range(80, 200) if after(step - 1) > 2.0) == 112


def test_thresholds_can_be_moved():
    assert HybridAdaptation(anomaly_threshold=0.5).judge(0.6, 0.0).path == "slow"
    assert HybridAdaptation(disagreement_threshold=0.5).judge(0.0, 10.0).path == "slow"


def test_doubt_rises_with_disagreement_and_moves_nothing():
    adaptation = settled()
    before = adaptation.disagreement_ema.moments.tolist()
    low, usual, high = (adaptation.doubt(v) for v in (0.0, 0.1, 0.3))
    assert 0.0 <= low < usual < high <= 1.0
    assert usual == pytest.approx(0.5, abs=0.1)
    assert adaptation.disagreement_ema.moments.tolist() == before


def replay_of(count, size=5):
    replay = ReplayBuffer(dim=1, context_dim=1, size=size)
    for i in range(count):
        replay.add(np.array([i]), np.array([10 * i]), i / 100)
    return replay


def test_replay_keeps_the_latest_samples():
    replay = replay_of(8)
    assert len(replay) == 5
    assert sorted(replay.points[:, 0].tolist()) == [3, 4, 5, 6, 7]


@pytest.mark.parametrize("count", [1, 2, 5, 8])
def test_a_batch_starts_with_the_newest_and_repeats_nothing(count):
    replay = replay_of(count)
    rows = replay.draw(4, np.random.default_rng(0))
    assert replay.points[rows[0], 0] == count - 1
    assert len(rows) == len(set(rows)) == min(4, count)


def test_batches_differ_between_draws():
    replay, rng = replay_of(200, size=200), np.random.default_rng(0)
    assert replay.draw(8, rng) != replay.draw(8, rng)


def test_replay_state_restores_order():
    replay, other = ReplayBuffer(1, 1, 5), ReplayBuffer(1, 1, 5)
    for i in range(8):
        replay.add(np.array([i / 10]), np.array([10 * i]), i / 100)
    other.restore(replay.state())
    for r in (replay, other):
        r.add(np.array([0.99]), np.array([0]), 0.0)
    assert np.array_equal(replay.points, other.points)


@pytest.mark.parametrize("added", [7.0, 3.0, -1.0, 2.0**60])
def test_a_count_that_is_not_that_of_the_samples_is_refused(added):
    replay, other = ReplayBuffer(1, 1, 9), ReplayBuffer(1, 1, 9)
    for i in range(4):
        replay.add(np.array([i / 10]), np.array([10 * i]), i / 100)
    with pytest.raises(SnapshotError, match="'added' must"):
        other.restore({**replay.state(), "added": np.array(added)})
    assert len(other) == 0
