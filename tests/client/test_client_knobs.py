"""Every kind of knob through the client and the commands."""

import pytest
from typer.testing import CliRunner

from rasp_tuner import Auto, Bool, Categorical, Float, Int, InvalidSpace, Optional, PowerOfTwo, Tuner
from rasp_tuner.cli import app
from rasp_tuner.client import Client
from rasp_tuner.client.wire import space_json

SPACE = {
    "codec": Categorical(["lz4", "zstd"]),
    "level": Int(0, 22, log=True, when={"codec": ["zstd"]}),
    "effort": Categorical(["low", "mid", "high"], ordered=True),
    "threads": Auto(Int(1, 64, log=True)),
    "window_mb": Optional(Float(0.5, 512, log=True, digits=2)),
    "block_kb": PowerOfTwo(4, 1024),
    "checksum": Bool(),
    "ratio": Float(0, 1),
}
DEFAULT = {"codec": "lz4", "effort": "mid", "threads": "auto", "window_mb": None, "block_kb": 64} | {
    "checksum": True,
    "ratio": 0.5,
}
RULES = ["block_kb * threads <= 4096"]
TOML = """
name = "compress"
constraints = ["block_kb * threads <= 4096"]

[space]
codec = {type = "categorical", choices = ["lz4", "zstd"]}
level = {type = "int", low = 0, high = 22, log = true, when = {codec = "zstd"}}
threads = {type = "auto", knob = {type = "int", low = 1, high = 64, log = true}}
window_mb = {type = "optional", knob = {type = "float", low = 0.5, high = 512, log = true}}
block_kb = {type = "power_of_two", low = 4, high = 1024}
checksum = {type = "bool"}

[metrics]
ms = "min"

[default]
codec = "lz4"
threads = "auto"
window_mb = 8.0
block_kb = 64
checksum = true
"""


def test_it_answers_what_a_tuner_in_this_process_would(server):
    tuner = Tuner(SPACE, {"ms": "min"}, default=DEFAULT, constraints=RULES)
    with Client(server.url, ask_deadline=None, timeout=20) as client:
        study = client.create("kinds", SPACE, {"ms": "min"}, default=DEFAULT, constraints=RULES)
        for step in range(15):
            ours, theirs = study.ask(), tuner.ask()
            assert ours == theirs
            metrics = {"ms": 3.0 + ours.params["ratio"] + (ours.params["codec"] == "lz4")}
            ran = {"threads": 2, "window_mb": None} if step % 3 == 2 else None
            study.tell(ours.id, metrics, ran)
            tuner.tell(theirs.id, metrics, ran)
        assert study.recommend() == tuner.recommend()
        with pytest.raises(InvalidSpace, match="broken by the default"):
            client.create("broken", SPACE, {"ms": "min"}, default=DEFAULT, constraints=["ratio > 0.5"])


def test_knobs_are_sent_as_they_are():
    assert space_json({"x": Auto(Float(0, 1, digits=5))})["x"]["knob"]["digits"] == 5
    with pytest.raises(InvalidSpace, match=r"space\['x'\] must be a knob or its JSON"):
        space_json({"x": (0, 1)})


def test_commands_take_a_study_file_and_say_what_its_knobs_are(server, monkeypatch, tmp_path):
    monkeypatch.setenv("RASP_URL", server.url)
    file = tmp_path / "compress.toml"
    file.write_text(TOML)

    def rasp(*words):
        result = CliRunner().invoke(app, list(words))
        assert result.exit_code == 0, result.stderr
        return result.stdout

    rasp("study", "create", str(file))
    said = rasp("study", "show", "compress")
    for words in (
        "whole numbers from 0 to 22, on a log scale; only if codec is zstd",
        "auto, or whole numbers from 1 to 64, on a log scale",
        "none, or numbers from 0.5 to 512, on a log scale",
        "powers of two from 4 to 1024",
        "false or true",
        "block_kb * threads <= 4096",
    ):
        assert words in said
    id = rasp("ask", "compress").split()[0]
    ran = ["--ran", "threads=auto", "--ran", "window_mb=None", "--ran", "checksum=off", "--ran", "block_kb=8"]
    rasp("tell", "compress", id, "ms=3", *ran)
    with Client(server.url, ask_deadline=None) as client:
        newest = client.study("compress").suggestions(1)[0]
    assert newest["ran"] == {"codec": "lz4", "threads": "auto", "window_mb": None, "block_kb": 8, "checksum": False}
    wrong = CliRunner().invoke(app, ["tell", "compress", id, "ms=3", "--ran", "checksum=maybe"])
    assert wrong.exit_code != 0
    assert "--ran 'checksum' must be true or false" in wrong.stderr
