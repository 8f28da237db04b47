import json

import numpy as np
import pytest
from streams import followed, noise, regimes

from rasp_tuner import Category, Float, Tuner
from rasp_tuner.context_report import report as context_report
from rasp_tuner.context_report import screen
from rasp_tuner.context_report.report import memory_of
from rasp_tuner.context_report.shifts import distances, reduced
from rasp_tuner.contexts.context_encoder import context_encoder
from rasp_tuner.errors import InvalidValue
from rasp_tuner.gain.versus_default import Gain


def test_a_context_that_moves_the_optimum_helps_and_the_dimension_is_named():
    report = screen(*regimes(), ["weather", "load"])
    assert report.verdict == "helps"
    assert report.p <= report.level
    weather, load = report.dimensions
    assert (weather.note, load.note) == ("no sign", "helps")
    assert load.share > 0.5 > 0.3 > weather.share
    assert "by itself: load" in report.words
    assert "weather" in str(report)


def test_noise_is_useless():
    report = screen(*noise())
    assert report.verdict == "useless"
    assert report.p > report.level
    assert not report.warnings


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_a_context_that_only_sets_the_parameters_does_not_help(seed):
    assert screen(*followed(seed=seed)).verdict != "helps"


@pytest.mark.parametrize("width", [40, 768])
def test_a_long_context_is_judged_by_its_components(width):
    contexts, points, losses = regimes()
    rng = np.random.default_rng(0)
    wide = np.outer(contexts[:, 1], rng.normal(size=width)) + 0.2 * rng.normal(size=(len(losses), width))
    report = screen(wide, points, losses)
    assert report.verdict == "helps"
    assert [d.name for d in report.dimensions] == ["component 1", "component 2", "component 3"]


def test_a_text_is_one_feature_under_the_word_of_the_user():
    contexts, points, losses = regimes()
    encoder = context_encoder({"weather": "number", "region": "category", "mode": Category(["day", "night"])})
    said = [
        {"weather": weather, "region": "eu" if load > 0.5 else "us", "mode": "day"}
        for weather, load in contexts.tolist()
    ]
    report = screen(np.array([encoder.encode(one) for one in said]), points, losses, encoder.labels)
    assert [(d.name, d.note) for d in report.dimensions] == [("weather", "no sign"), ("region", "helps")]
    assert report.warnings == ("mode: constant, so nothing can be learned from it",)


def test_a_tuner_reports_on_its_texts():
    tuner = Tuner({"x": Float(0, 1)}, {"loss": "min"}, {"region": "category", "moon": "number"})
    rng = np.random.default_rng(0)
    for step in range(80):
        region = ("eu", "us")[step // 9 % 2]
        s = tuner.ask({"region": region, "moon": rng.normal()})
        tuner.tell(s.id, {"loss": (s.params["x"] - (0.2 if region == "eu" else 0.8)) ** 2 + 0.01 * rng.normal()})
    report = tuner.context_report()
    assert {d.name for d in report.dimensions} == {"region", "moon"}


@pytest.mark.parametrize(
    ("lost", "verdict", "says", "never"),
    [
        (Gain("share", 0.13, -0.03, 0.32), "too little data", "lose about 13% without it, 32% at most", "useless"),
        (Gain("share", 0.01, -0.05, 0.06), "useless", "Without the context you would lose 6% at most.", "open"),
        (Gain("share", 0.2, 0.1, 0.3), "helps", "The context decides: without it you would lose 20%", "useless"),
        (Gain("share", 0.0, 0.0, 0.0), "useless", "the same settings are best in all of it", "open"),
        (None, "useless", "The context is useless as far as", "open"),
    ],
)  # fmt: skip
def test_the_samples_and_the_model_of_a_tuner_have_one_verdict(lost, verdict, says, never):
    report = screen(*noise()).beside_model(lost)
    assert report.verdict == verdict
    assert says in str(report)
    assert never not in str(report)
    assert report.lost_without == lost


def test_few_samples_are_too_few():
    report = screen(*regimes(39))
    assert report.verdict == "too little data"
    assert report.p is None
    assert "39 samples" in report.words


def test_no_sign_in_some_samples_is_not_yet_useless():
    assert screen(*noise(50)).verdict == "too little data"


def test_a_context_or_loss_that_never_changed_says_so():
    contexts, points, losses = regimes()
    assert "context never changed" in screen(np.ones_like(contexts), points, losses).words
    assert "loss never changed" in screen(contexts, points, np.full(len(losses), 1e9)).words


def test_a_context_that_hardly_changes_is_not_called_useless():
    _, points, losses = noise(100)
    slow = np.cumsum(np.random.default_rng(3).normal(size=(100, 1)), axis=0)
    report = screen(slow, points, losses)
    assert report.verdict == "too little data"
    assert "independent looks" in report.words


def test_a_context_that_parameters_follow_closely_is_not_called_useless():
    contexts, _, _ = regimes(100)
    rng = np.random.default_rng(0)
    points = np.where(contexts[:, 1:] > 0.5, 0.8, 0.2) + 0.01 * rng.normal(size=(100, 2))  # what is best in each
    report = screen(contexts, points, 0.02 * rng.normal(size=100), ["weather", "load"])
    assert report.verdict == "too little data"
    assert "the parameters follow load so closely" in report.words
    assert [d.note for d in report.dimensions] == ["no sign", "parameters follow it"]


def test_without_other_parameters_nothing_is_called_useless():
    contexts, points, losses = noise(100)
    points[5:] = 0.5
    report = screen(contexts, points, losses)
    assert report.verdict == "too little data"
    assert "in 95% of them the parameters are the same" in report.words


def test_of_a_long_log_so_many_samples_are_looked_at_over_all_its_length(monkeypatch):
    monkeypatch.setattr(context_report, "MAX_SAMPLES", 60)
    contexts, points, losses = regimes(300)
    losses[-100:] = noise(100)[2]  # at its end the context says nothing
    early = screen(contexts[:60], points[:60], losses[:60])
    report = screen(contexts, points, losses)
    assert report.samples == 60  # as its words say
    assert "60 samples" in report.words
    assert report.share < early.share  # so its end was looked at, too


def test_memory_of_white_noise_is_short_and_of_blocks_long():
    rng = np.random.default_rng(0)
    white, blocks = rng.normal(size=400), np.repeat(rng.normal(size=40), 10)
    assert memory_of(white - white.mean()) < 2.0
    assert 6.0 < memory_of(blocks - blocks.mean()) < 20.0


def test_components_keep_the_distances_of_a_context_of_few_true_dimensions():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(50, 4)) @ rng.normal(size=(4, 100))
    kept, single = reduced(x, [[i] for i in range(100)])
    assert (kept.shape, single) == ((50, 4), [[0], [1], [2]])
    assert distances(kept) == pytest.approx(distances(x), abs=1e-9)


def test_the_report_says_on_which_scale_losses_are_compared():
    assert "Losses are compared on a linear scale: by differences." in str(screen(*noise()))
    logs = screen(*noise(), scale="log")
    assert "Losses are compared on a log scale: by factors." in str(logs)
    assert logs.as_json()["scale"] == "log"


def test_the_report_is_plain_json():
    data = json.loads(json.dumps(screen(*noise()).as_json()))
    assert data["verdict"] == "useless"
    assert data["dimensions"][0]["name"] == "c1"
    assert len(data["shifted"]) >= 9


def test_bad_arrays_are_refused_by_name():
    contexts, points, losses = noise()
    with pytest.raises(InvalidValue, match="contexts must be finite"):
        screen(np.full_like(contexts, np.nan), points, losses)
    with pytest.raises(InvalidValue, match="equally many, got 80, 80, 79"):
        screen(contexts, points, losses[1:])
    with pytest.raises(InvalidValue, match="one for each of 2 dimensions"):
        screen(contexts, points, losses, ["a"])


def test_contexts_that_are_mostly_the_same_one_are_judged_too():
    rng = np.random.default_rng(0)
    contexts = np.zeros((100, 2))
    contexts[rng.choice(100, 10, replace=False)] = 1.0
    report = screen(contexts, rng.random((100, 2)), rng.normal(size=100))
    assert report.verdict != "helps"
    assert report.p is not None
