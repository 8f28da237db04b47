"""`rasp study`, `ask` and `tell` against a real server."""

import json
import re
from itertools import count
from pathlib import Path

import pytest
from typer.testing import CliRunner

from rasp_tuner.cli import app
from rasp_tuner.client import Client

STUDY_FILE = Path(__file__).parents[2] / "examples" / "checkout.toml"
METRICS = {"p99_ms": 3.0, "throughput": 4.0}
names = (f"command-{i}" for i in count())


@pytest.fixture
def rasp(server, monkeypatch):
    monkeypatch.setenv("RASP_URL", server.url)
    return lambda *words: CliRunner().invoke(app, list(words))


@pytest.fixture
def client(server):
    with Client(server.url, ask_deadline=None, timeout=20) as client:
        yield client


@pytest.fixture
def name(rasp):
    name = next(names)
    assert rasp("study", "create", str(STUDY_FILE), "--name", name).exit_code == 0
    return name


def of_json(result):
    assert result.exit_code == 0, result.stderr
    assert result.stdout.count("\n") == 1
    return json.loads(result.stdout)


def test_create_says_what_comes_next_and_can_be_repeated(rasp):
    name = next(names)
    first = rasp("study", "create", str(STUDY_FILE), "--name", name)
    assert first.stdout == f"Created {name}\nNext: rasp ask {name} qps=...\n"
    again = of_json(rasp("study", "create", str(STUDY_FILE), "--name", name, "--json"))
    assert not again["created"]
    assert again["study"]["space"]["pool"] == {"type": "int", "low": 1, "high": 64, "log": True, "step": 1}


def test_ask_and_tell(rasp, name):
    assert rasp("ask", name, "qps=420").stdout == "s0\n  pool       8\n  timeout_s  1\n  codec      lz4\n"
    assert rasp("tell", name, "s0", "p99_ms=3", "throughput=4").stdout == "s0 learned\n"
    assert rasp("tell", name, "s0", "p99_ms=3", "throughput=4").stdout == "s0 was told before: nothing changed\n"
    assert of_json(rasp("ask", name, "420", "--json"))["id"] == "s1"
    told = of_json(rasp("tell", name, "s1", "--failed", "out of memory", "--json"))
    assert told == {"id": "s1", "status": "learned", "late": False}
    view = of_json(rasp("study", "show", name, "--json"))
    assert [view[key] for key in ("asks", "tells", "failures", "pending")] == [2, 1, 1, 0]
    shown = rasp("study", "show", name).stdout
    assert re.search(r"\n  pool +whole numbers from 1 to 64, on a log scale +default 8\n", shown)
    assert "budget 0.02" in shown
    assert re.search(r"\n  throughput +max +weight 0.5 +linear scale\n", shown)
    assert "\nExploring may cost 2.0% more than the default. So far " in shown
    assert name in [view["name"] for view in of_json(rasp("study", "list", "--json"))["studies"]]
    assert re.search(rf"{name} +2 +1 +1 +0 ", rasp("study", "list").stdout)


def test_tell_what_ran(rasp, name, client):
    for _ in range(2):
        rasp("ask", name, "qps=420")
    words = ("tell", name, "s0", "p99_ms=3", "throughput=4", "--ran", "pool=16", "--ran", "codec=zstd")
    assert rasp(*words).stdout == "s0 learned\n"
    assert rasp(*words).stdout == "s0 was told before: nothing changed\n"
    assert "with other values" in rasp("tell", name, "s0", "p99_ms=3", "throughput=4").stderr
    assert client.study(name).explain("s0").ran == {"pool": 16, "timeout_s": 1.0, "codec": "zstd"}
    assert of_json(rasp("tell", name, "s1", "--failed", "oom", "--ran", "timeout_s=0.5", "--json"))["id"] == "s1"
    assert client.study(name).explain("s1").ran["timeout_s"] == 0.5


@pytest.mark.parametrize("choices", [["a", "3", None, True, 0.123456789], [None, 3, False, "b c", 2.5]])
def test_every_choice_can_be_said_to_have_run(rasp, client, choices):
    study = client.create(next(names), {"k": {"type": "categorical", "choices": choices}}, {"m": "min"})
    for choice in choices:
        id = study.ask().id
        word = choice if isinstance(choice, str) else json.dumps(choice)
        assert rasp("tell", study.name, id, "m=1", "--ran", f"k={word}").exit_code == 0
        seen = study.suggestion(id)
        assert seen.get("ran", seen["params"]) == {"k": choice}


def test_export_import_delete(rasp, name, tmp_path):
    for step in range(3):
        rasp("ask", name, "qps=1")
        rasp("tell", name, f"s{step}", "p99_ms=3", "throughput=4")
    file = tmp_path / "copy.ndjson"
    assert of_json(rasp("study", "export", name, "--out", str(file), "--json"))["events"] == 6
    assert list(tmp_path.iterdir()) == [file]
    assert rasp("study", "export", name, "--out", "-").stdout == file.read_text()
    assert "exists already" in rasp("study", "import", str(file)).stderr
    copy = of_json(rasp("study", "import", str(file), "--name", f"{name}-copy", "--json"))
    assert (copy["asks"], copy["tells"]) == (3, 3)
    assert rasp("ask", name, "qps=1").stdout == rasp("ask", f"{name}-copy", "qps=1").stdout
    file.write_text(file.read_text().replace("p99_ms", "p99_mz", 1))
    assert "checksum" in rasp("study", "import", str(file), "--name", "damaged").stderr
    assert "add --yes" in rasp("study", "delete", f"{name}-copy").stderr
    assert of_json(rasp("study", "delete", f"{name}-copy", "--yes", "--json")) == {"deleted": f"{name}-copy"}
    assert rasp("study", "show", f"{name}-copy").exit_code == 1


@pytest.mark.parametrize("ending", [b"", b'{"count":1,"sha256":"0"}\n'])
def test_an_export_that_breaks_off_leaves_no_file(rasp, bad_server, http, tmp_path, ending):
    read, reply = http

    def break_off(connection):
        while read(connection):
            reply(connection, "200 OK", b'{"format":"rasp-study"}\n{"seq":1}\n' + ending)

    words = ("--out", str(tmp_path / "x.ndjson"), "--url", bad_server(break_off).url)
    result = rasp("study", "export", "x", *words)
    assert result.exit_code == 1
    assert "broke off" in result.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "command",
    [["ask"], ["tell"]]
    + [
        ["study", word]
        for word in ("create", "list", "show", "export", "import", "delete", "forget", "freeze", "unfreeze")
    ],
)
def test_every_command_shows_an_example_and_takes_the_same_options(command):
    text = CliRunner().invoke(app, [*command, "--help"], env={"COLUMNS": "120", "NO_COLOR": "1"}).stdout
    assert f"Example: rasp {' '.join(command)}" in text
    assert all(option in text for option in ("--url", "RASP_URL", "--key", "RASP_KEY", "--json"))


def test_forget(rasp, name, client):
    for qps in (410.0, 420.0, 450.0, 600.0):
        suggestion = client.study(name).ask({"qps": qps})
        client.study(name).tell(suggestion.id, METRICS)
    client.study(name).observe({"qps": 5.0}, suggestion.params, METRICS, key="run 1")
    done = rasp("study", "forget", name, "--where", "qps=400..430", "--yes")
    assert done.stdout == f"Erased 2 records of {name}; files are clean\n"
    clean = {"scrubbed": True}
    words = ("study", "forget", name, "--yes", "--json")
    assert of_json(rasp(*words, "--where", "qps=450", "--before", "2020-01-01")) == {"erased": 0, **clean}
    assert of_json(rasp(*words, "--where", "qps=450", "--after", "1e9")) == {"erased": 1, **clean}
    assert of_json(rasp(*words, "--where", "qps=590..")) == {"erased": 1, **clean}
    assert of_json(rasp(*words, "--id", "s3", "--observation", "run 1")) == {"erased": 1, **clean}
    assert client.study(name).view()["erased"] == 5
    for words, said in (
        (["--yes"], "say which records"),
        (["--id", "s3"], "add --yes"),
        (["--where", "qps", "--yes"], "name=value or name=low..high"),
        (["--where", "qps=a..2", "--yes"], "must hold numbers"),
        (["--before", "noon", "--yes"], "--before must be unix seconds or an ISO 8601 time"),
    ):
        refused = rasp("study", "forget", name, *words)
        assert refused.exit_code != 0
        assert said in " ".join(refused.stderr.split())


def test_freeze(rasp, name):
    assert rasp("study", "freeze", name).stdout == f"{name} is frozen\n"
    assert "frozen" in rasp("study", "show", name).stdout
    assert rasp("study", "freeze", name, "--default").stdout == f"{name} is frozen at its default\n"
    assert "frozen at its default by local " in rasp("study", "show", name).stdout
    assert of_json(rasp("study", "unfreeze", name, "--json")) == {"name": name, "frozen": False}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("ask nowhere qps=1", "no study 'nowhere'; `rasp study list` shows them"),
        ("ask NAME load=1", "context lacks ['qps']"),
        ("ask NAME qps=1 2", "context must be given as name=value, got '2'"),
        ("ask NAME qps=many", "context['qps'] must be a finite number, got 'many'"),
        ("ask NAME qps=nan", "context['qps'] must be a finite number, got 'nan'"),
        ("tell NAME s99 p99_ms=1 throughput=2", "no suggestion 's99' was handed out"),
        ("tell NAME s0", "give metrics, as in p99_ms=181.2, or --failed with a reason"),
        ("tell NAME s0 p99_ms=1 --failed x", "give metrics, as in p99_ms=181.2, or --failed with a reason"),
        ("tell NAME s0 p99_ms=1 p99_ms=2", "metric 'p99_ms' is given twice"),
        ("tell NAME s0 p99_ms=1 throughput=2 --ran 16", "--ran must be given as name=value, got '16'"),
        ("tell NAME s0 p99_ms=1 throughput=2 --ran pool=16 --ran pool=8", "--ran 'pool' is given twice"),
        ("tell NAME s0 p99_ms=1 throughput=2 --ran pool=many", "--ran 'pool' must be a number, got 'many'"),
        ("tell NAME s0 p99_ms=1 throughput=2 --ran pool=65", "params['pool']: value must lie in [1, 64], got 65"),
        ("tell NAME s0 p99_ms=1 throughput=2 --ran codec=rar", "--ran 'codec' must be one of lz4, zstd"),
        (
            "tell NAME s0 --failed x --ran load=1",
            "--ran 'load' is no knob of this study; it has pool, timeout_s, codec",
        ),
        ("study create nowhere.toml", "No such file"),
        ("study list --url 127.0.0.1:8321", "url must look like http://127.0.0.1:8321, got '127.0.0.1:8321'"),
        ("study list --url http://127.0.0.1:1", "`rasp serve --data DIR` starts one, --url or RASP_URL names one"),
    ],
)
def test_errors_are_one_line_with_the_mend(rasp, name, words, said, monkeypatch):
    monkeypatch.setattr("rasp_tuner.cli.remote.TIMEOUT_S", 0.5)
    rasp("ask", name, "qps=1")
    result = rasp(*words.replace("NAME", name).split())
    assert result.exit_code == 1
    assert said in result.stderr
    assert result.stderr.startswith("rasp: ")
    assert result.stderr.count("\n") == 1
    assert result.stdout == ""


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("name = ", "is not TOML: Invalid value (at end of document)"),
        ('name = "x"', "lacks space and metrics"),
        ('name = "x"\nseed = nan\n[space]\n[metrics]', "holds a value that JSON has not"),
        ('name = "x"\nseed = 2026-01-01\n[space]\n[metrics]', "holds a value that JSON has not"),
        ('name = "x"\n[space]\np = {type="int", low=1, high=1}\n[metrics]\nm = "min"', "low < high"),
        ('name = "x"\nspeed = 1\n[space]\np = {type="int", low=1, high=2}\n[metrics]\nm = "min"', "speed"),
    ],
)
def test_a_bad_study_file(rasp, tmp_path, text, said):
    file = tmp_path / "bad.toml"
    file.write_text(text)
    result = rasp("study", "create", str(file))
    assert result.exit_code == 1
    assert said in result.stderr
    assert result.stderr.count("\n") == 1


def test_a_key_that_may_not(rasp, server, monkeypatch):
    """Of a server with keys: a bad server that says 401 as the real one does."""
    monkeypatch.setenv("RASP_KEY", "rasp_no_such")
    data = server.data.parent / "with-keys"
    made = CliRunner().invoke(app, ["keys", "create", "--data", str(data), "--scope", "read", "--json"])
    other = type(server)(data).start()
    try:
        refused = rasp("study", "list", "--url", other.url)
        read_only = rasp("ask", "x", "--url", other.url, "--key", json.loads(made.stdout)["key"])
        allowed = rasp("study", "list", "--url", other.url, "--key", json.loads(made.stdout)["key"])
    finally:
        other.kill()
    for result in (refused, read_only):
        assert result.exit_code == 1
        assert "--key or RASP_KEY takes a key that `rasp keys create` made" in result.stderr
        assert result.stderr.count("\n") == 1
    assert allowed.stdout == "No studies yet. Next: rasp study create FILE.toml\n"
