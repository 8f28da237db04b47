"""Settings that somebody else chose: ask_for, withdraw, and what is recommended among some."""

import numpy as np
import pytest

from rasp_tuner import (
    AlreadyAnswered,
    Categorical,
    ExpiredSuggestion,
    Float,
    Int,
    InvalidValue,
    Metric,
    Tuner,
    UnknownSuggestion,
)

SPACE = {"n": Int(1, 64), "mode": Categorical(["a", "b"])}
DEFAULT = {"n": 8, "mode": "a"}


def cost(params):
    return 10.0 + abs(params["n"] - 32) / 4 + 3.0 * (params["mode"] == "b")


def taught(**more):
    tuner = Tuner(SPACE, {"ms": "min"}, default=DEFAULT, **more)
    noise = np.random.default_rng(0)
    for n in (8, 8, 20, 30, 45, 60):
        for mode in ("a", "b"):
            params = {"n": n, "mode": mode}
            tuner.observe(None, params, {"ms": cost(params) * float(np.exp(0.02 * noise.normal()))})
    return tuner


def test_a_suggestion_of_given_settings_is_like_any_other():
    tuner = taught()
    given = {"n": 45, "mode": "a"}
    suggestion = tuner.ask_for(None, given, "tried by hand")
    assert suggestion.params == given
    assert suggestion.stop > cost(DEFAULT)
    why = tuner.explain(suggestion.id)
    assert why.source == "tried by hand"
    assert why.predicted == pytest.approx(cost(given), rel=0.2)
    assert tuner.should_stop(suggestion.id, {"ms": 10.0 * suggestion.stop})
    tuner.tell(suggestion.id, {"ms": cost(given)})
    assert tuner.history(latest=1)[0]["chosen_by"] == "tried by hand"


def test_before_anything_is_known_there_is_nothing_to_expect():
    tuner = Tuner(SPACE, {"ms": "min"}, default=DEFAULT)
    suggestion = tuner.ask_for(None, {"n": 3, "mode": "b"})
    assert suggestion.stop is None
    assert tuner.explain(suggestion.id).predicted is None


def test_it_draws_no_random_number_and_learns_nothing():
    one, other = taught(), taught()
    one.ask_for(None, {"n": 45, "mode": "a"})
    assert one.ask().params == other.ask().params


def test_a_holdout_may_put_the_default_in_its_place():
    tuner = taught(holdout=0.5)
    drawn = [tuner.ask_for(None, {"n": 45, "mode": "a"}).params == DEFAULT for _ in range(40)]
    assert 5 < sum(drawn) < 35


def test_under_limits_and_the_papers_preset():
    metrics = {"ms": "min", "mb": Metric("min", max=100.0)}
    limited = Tuner(SPACE, metrics, default=DEFAULT)
    for n in (8, 16, 24, 40):
        limited.observe(None, {"n": n, "mode": "a"}, {"ms": 50.0 - n, "mb": 4.0 * n})
    assert limited.ask_for(None, {"n": 20, "mode": "a"}).params["n"] == 20
    assert limited.recommend(among=[{"n": 20, "mode": "a"}, {"n": 60, "mode": "a"}])["n"] in (8, 20)  # 60 breaks it
    paper = Tuner({"x": Float(0.0, 1.0)}, {"ms": "min"}, preset="paper")
    paper.tell(paper.ask_for(None, {"x": 0.25}).id, {"ms": 3.0})
    with pytest.raises(InvalidValue, match="paper"):
        paper.recommend(among=[{"x": 0.25}])


def test_the_best_of_some():
    tuner = taught()
    some = [{"n": 20, "mode": "a"}, {"n": 30, "mode": "a"}, {"n": 30, "mode": "b"}]
    assert tuner.recommend(among=some) == {"n": 30, "mode": "a"}
    assert tuner.recommend(among=[{"n": 60, "mode": "b"}]) == DEFAULT
    assert tuner.recommend(among=[]) == DEFAULT
    assert tuner.what_if(among=some).recommended.params == {"n": 30, "mode": "a"}
    assert Tuner(SPACE, {"ms": "min"}, default=DEFAULT).recommend(among=some) == DEFAULT


def test_what_is_withdrawn_waits_no_longer():
    tuner = taught()
    suggestion = tuner.ask()
    tuner.withdraw(suggestion.id)
    assert tuner.pending == []
    with pytest.raises(ExpiredSuggestion, match="withdrawn"):
        tuner.tell(suggestion.id, {"ms": 1.0})


def test_bad_input_is_refused_and_changes_nothing():
    tuner = taught(constraints=["n <= 60"])
    answered = tuner.ask()
    tuner.tell(answered.id, {"ms": 10.0})
    before = tuner.to_bytes()
    for wrong in ({"n": 99, "mode": "a"}, {"n": 8}, {"n": 64, "mode": "a"}, None):
        with pytest.raises(InvalidValue):
            tuner.ask_for(None, wrong)
    with pytest.raises(InvalidValue, match="context"):
        tuner.ask_for({"qps": 1.0}, DEFAULT)
    with pytest.raises(InvalidValue, match="source"):
        tuner.ask_for(None, DEFAULT, "")
    for wrong in (3, "n", DEFAULT, [3], [{"n": 99, "mode": "a"}]):
        with pytest.raises(InvalidValue, match="among"):
            tuner.recommend(among=wrong)
    with pytest.raises(UnknownSuggestion):
        tuner.withdraw("s99")
    with pytest.raises(InvalidValue):
        tuner.withdraw(7)
    with pytest.raises(AlreadyAnswered):
        tuner.withdraw(answered.id)
    assert tuner.to_bytes() == before
