"""The page of a tuner: one file that needs nothing else, whatever was learned and however little."""

import json
import math
import random
import re

import numpy as np
import pytest
from page_parser import Page
from typer.testing import CliRunner

from rasp_tuner import Auto, Bool, Categorical, Category, Fleet, Float, Int, Metric, Optional, PowerOfTwo, Tuner
from rasp_tuner.cli import app
from rasp_tuner.errors import SnapshotFileError
from rasp_tuner.tune import tune

BAD = '<script>alert("x")</script>'
KNOBS = {
    "rate": Float(0.1, 10.0, log=True),
    "threads": Auto(Int(1, 64, log=True)),
    "limit": Optional(Float(0.5, 2.0)),
    "mode": Categorical([BAD, "WAL"]),
    "checkpoint": Int(0, 4096, log=True, when={"mode": "WAL"}),
    "page": PowerOfTwo(512, 65536),
    "fast": Bool(),
}
TODAY = {"rate": 1.0, "threads": "auto", "limit": None, "mode": BAD, "page": 4096, "fast": False}
X = {"x": Float(0.0, 10.0)}


def page_of(tuner, tmp_path, **options):
    before = tuner.to_bytes()
    tuner.report(tmp_path / "out.html", **options)
    assert tuner.to_bytes() == before
    text = (tmp_path / "out.html").read_text()
    page = Page(text)
    assert page.links == []
    assert "script" not in page.tags
    assert not re.search(r"https?://|url\(|\bnan\b|\binf\b", text)
    return page


def play(tuner, steps, loss, context=lambda _: None):
    for i in range(steps):
        s = tuner.ask(context(i))
        came = loss(s.params, i)
        tuner.tell_failed(s.id, BAD) if came is None else tuner.tell(s.id, came)
    return tuner


def test_every_picture_every_kind_of_knob_and_names_are_no_markup(tmp_path):
    noise, day = random.Random(0), {0: "eu", 1: None, 2: BAD}

    def loss(params, _):
        if params["threads"] != "auto" and params["threads"] > 40:
            return None
        return {"ms": 20.0 + (params["rate"] - 3.0) ** 2 + 5.0 * (params["mode"] == BAD) + noise.gauss(0.0, 0.1)}

    tuner = Tuner(KNOBS, {"ms": "min"}, {BAD: Category()}, TODAY)
    play(tuner, 60, loss, lambda i: {BAD: day[i // 5 % 3]})
    page = page_of(tuner, tmp_path, title=BAD, texts={BAD: ["eu"]})
    assert page.tags.count("svg") == 1 + 1 + len(KNOBS)  # gain, metric, knobs
    for words in (
        "Gain against the default",
        "ms: no saving shown yet",
        "by forecast",
        "Budget",
        "runs of the default lost so far",
        "surely won back",
        "All 60 steps on record",
    ):
        assert words in page.text
    assert " earned" not in page.text
    assert "Content-Security-Policy" in page.text
    assert "prefers-color-scheme: dark" in page.text


def test_pages_of_little(tmp_path):
    tuner = Tuner(X, {"ms": "min"}, ["load"])
    assert "Nothing has been learned yet" in page_of(tuner, tmp_path).text
    one = play(Tuner(X, {"ms": "min"}), 1, lambda *_: {"ms": 0.0})
    assert "only the default ran" in page_of(one, tmp_path).text
    failed = play(Tuner(X, {"ms": "min"}), 5, lambda *_: None)
    assert "All 5 runs on record failed" in page_of(failed, tmp_path).text


@pytest.mark.parametrize(
    "loss", [lambda x: -x, lambda _: 0.0, lambda x: 1.7e308 * (x / 5 - 1), lambda x: x * 1e-300, lambda x: x - 5.0]
)
def test_any_numbers_can_be_drawn(loss, tmp_path):
    tuner = Tuner(X, {"ms": "min"}, ["load"], {"x": 5.0})
    play(tuner, 15, lambda params, _: {"ms": loss(params["x"])}, lambda i: {"load": 1e308 * (-1) ** i})
    assert "svg" in page_of(tuner, tmp_path).tags


def test_limits_and_several_metrics(tmp_path):
    metrics = {"cost": "min", "p99_ms": Metric("min", max=25.0), "rps": Metric("max", at_least="0.5 default")}
    tuner = Tuner(X, metrics, ["load"], {"x": 6.0})
    play(
        tuner,
        30,
        lambda params, i: {"cost": params["x"], "p99_ms": 40.0 - 3.0 * params["x"] + i % 2, "rps": 5.0},
        lambda i: [float(i // 5 % 2)],
    )
    text = page_of(tuner, tmp_path).text
    assert "Limits, with the recommended settings" in text
    assert "of them kept the limit of p99_ms, 25" in text
    two = play(Tuner(X, {"a": "min", "b": "max"}, default={"x": 9.0}), 25, lambda p, _: {"a": p["x"], "b": -p["x"]})
    assert f"all metrics together: {two.versus_default()}" in page_of(two, tmp_path).text


def test_the_table_of_settings_says_from_which_knobs_a_gain_comes_where_there_are_several(tmp_path):
    two = Tuner({"x": Float(0.0, 10.0), "idle": Int(1, 9)}, {"ms": "min"}, default={"x": 9.0, "idle": 2})
    text = page_of(play(two, 40, lambda p, i: {"ms": 1.0 + p["x"] + 0.01 * (i % 3)}), tmp_path).text
    assert "expected against the default, and from which knobs" in text
    assert re.search(r"better \([^)]*\), from x \d+%", text)
    one = play(Tuner(X, {"ms": "min"}, default={"x": 9.0}), 40, lambda p, _: {"ms": 1.0 + p["x"]})
    text = page_of(one, tmp_path).text
    assert "expected against the default" in text
    assert "from which knobs" not in text


def test_a_tuner_of_a_fleet_shows_the_situations_in_its_memory(tmp_path):
    fleet = Fleet(X, {"ms": "min"}, ["load"], {"x": 5.0}, size=2)
    for i in range(30):
        asked = fleet.ask(np.full((2, 1), float(i // 5 % 2)))
        fleet.tell({"ms": 1.0 + (np.asarray(asked.params["x"]) - 3.0) ** 2})
    text = page_of(fleet[1], tmp_path).text
    assert "No steps on record" in text
    assert "of 2 contexts" in text


def test_situations_name_what_differs(tmp_path):
    tuner = Tuner(X, {"ms": "min"}, ["load", "constant"], {"x": 5.0})
    play(
        tuner,
        60,
        lambda p, i: {"ms": 1.0 + (p["x"] - (2.0 if i // 5 % 2 else 8.0)) ** 2},
        lambda i: [float(i // 5 % 2), 7],
    )
    text = page_of(tuner, tmp_path).text
    assert '<td class="words long">load 0</td>' in text
    assert '<td class="words long">load 1</td>' in text


def test_a_path_that_cannot_be_written_is_a_typed_error(tmp_path):
    with pytest.raises(SnapshotFileError):
        Tuner(X, {"ms": "min"}).report(tmp_path)


def test_the_command_shows_a_saved_tuner_and_writes_page_and_table(tmp_path):
    tuner = play(
        Tuner(X, {"ms": "min"}, {"region": Category()}), 5, lambda p, _: {"ms": p["x"]}, lambda _: {"region": "eu"}
    )
    tuner.save(tmp_path / "run.rasp")

    def rasp(*words):
        return CliRunner().invoke(app, ["show", str(tmp_path / "run.rasp"), *words])

    out, table = tmp_path / "run.html", tmp_path / "run.csv"
    shown = rasp("--html", str(out), "--csv", str(table), "--texts", "region=us,eu")
    assert shown.exit_code == 0
    assert f"Page: {out}" in shown.output
    assert "<h1>run</h1>" in Page(out.read_text()).text
    assert table.read_text().startswith("step,id,region,x,ms")
    assert " eu " in shown.output
    assert '"learned": 5' in rasp("--json").output
    wrong = rasp("--texts", "region")
    assert wrong.exit_code == 1
    assert "region=eu,us" in wrong.output


def test_the_command_reports_what_a_saved_tuner_gained_and_recommends_where(tmp_path):
    tuner = Tuner(X, {"ms": "min"}, ["load"], {"x": 5.0}, budget=0.05)
    play(tuner, 40, lambda p, i: {"ms": 20.0 + (p["x"] - 8.0 * (i % 2)) ** 2}, lambda i: {"load": float(i % 2)})
    tuner.save(tmp_path / "tuner.rasp")
    (tmp_path / "journal.jsonl").write_text("")

    def rasp(*words):
        return CliRunner().invoke(app, ["report", *map(str, words)])

    said = rasp(tmp_path / "tuner.rasp").output
    assert f"Against the default: {tuner.versus_default()}." in said
    assert f"Exploring: {tuner.looks()}." in said
    assert f"Budget: {tuner.budget()}" in said
    assert all(f"  {one}\n" in said for one in tuner.situations())
    assert rasp(tmp_path / "journal.jsonl").output == rasp(tmp_path).output == said
    found = json.loads(rasp(tmp_path, "--json").output)
    assert found["learned"] == 40
    assert found["versus_default"]["words"] == str(tuner.versus_default())
    assert [one["words"] for one in found["situations"]] == [str(one) for one in tuner.situations()]
    assert f"Page: {tmp_path / 'out.html'}" in rasp(tmp_path / "tuner.rasp", "--html", tmp_path / "out.html").output
    assert "<h1>tuner</h1>" in Page((tmp_path / "out.html").read_text()).text
    (tmp_path / "tuner.rasp").unlink()
    early = rasp(tmp_path / "journal.jsonl")
    assert early.exit_code == 1
    assert "has no tuner.rasp yet" in early.output


def test_the_report_of_a_tuned_study_says_what_its_final_pairs_decided(tmp_path, monkeypatch):
    """What the tuner believes may be another setting: the verdict of `rasp tune` counts, in its words."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)

    def moves(a, **_):
        return {"cost": (10.0 + abs(a - 20)) * math.exp(0.05 * rng.normal())}

    def null(**_):
        return {"cost": 10.0 * math.exp(0.05 * rng.normal())}

    knobs, default = {"a": Int(1, 64), "idle": Float(0.0, 1.0)}, {"a": 50, "idle": 0.5}
    for name, measured in (("moves", moves), ("null", null)):
        result = tune(measured, knobs, {"cost": "min"}, default=default, steps=20, name=name, quiet=True)
        folder = tmp_path / "rasp-tune" / name
        said = CliRunner().invoke(app, ["report", str(folder), "--html", "page.html"]).output
        verdict, *lines = str(result).removeprefix(f"{name}: ").splitlines()
        use = next(line for line in lines if line.startswith("  use: "))
        assert f"Recommended: {verdict}\n" in said
        assert f"{use}  [{result.situations[0].verdict.words}]\n" in said
        assert "no effect shown" not in said
        assert "Exploring" not in said
        page = Page((tmp_path / "page.html").read_text()).text
        assert verdict[1:] in page
        assert "no effect shown" not in page
        found = json.loads(CliRunner().invoke(app, ["report", str(folder), "--json"]).output)
        assert found["situations"] == []
        assert found["decided"]["situations"][0][1] == result.settings["all"]


def test_a_report_says_which_runs_have_no_gain(tmp_path):
    tuner = play(Tuner(X, {"ms": "min"}, default={"x": 9.0}), 20, lambda p, _: {"ms": 1.0 + p["x"]})
    for _ in range(4):
        tuner.observe(None, {"x": 9.0}, {"ms": 10.0})
    tuner.save(tmp_path / "run.rasp")
    said = CliRunner().invoke(app, ["report", str(tmp_path / "run.rasp")]).output
    assert " in 20 steps, " in said
    assert (
        "Runs learned: 24. Of these 20 were suggested and count as steps here; the tuner was only told of the" in said
    )
    assert tuner.versus_default().rest_words(24) in page_of(tuner, tmp_path).text


def test_the_page_has_a_table_of_situations_that_came_back(tmp_path):
    def loss(params, i):
        return {"ms": 20.0 + (params["x"] - (8.0 if i // 20 % 2 else 1.0)) ** 2}

    tuner = Tuner(X, {"ms": "min"}, ["load", "unused"], {"x": 5.0})
    play(tuner, 40, loss, lambda i: {"load": float(i // 20 % 2), "unused": 3.0})
    assert "Situations that came back" not in page_of(tuner, tmp_path).text
    play(tuner, 20, loss, lambda _: {"load": 0.0, "unused": 3.0})
    text = page_of(tuner, tmp_path).text
    assert "Situations that came back" in text
    assert "The latest situation has come back. Seen once before, last 21 steps earlier." in text
    assert re.search(r"load 0\D+2\D+40\D+now", text)
    assert re.search(r"load 1\D+1\D+20\D+21 steps ago", text)
