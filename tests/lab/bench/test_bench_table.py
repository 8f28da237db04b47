"""`rasp bench --table`: every option does what it says, and mistakes are said in one line."""

import csv
import re
import shlex
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from rasp_lab.cli.table import parse_default, parse_metrics
from rasp_tuner.cli import app
from rasp_tuner.cli.common import words
from rasp_tuner.errors import InvalidValue


def rasp(*words):
    return CliRunner().invoke(app, list(words))


DOCS = (Path(__file__).parents[3] / "docs" / "BENCHMARKS.md").read_text(encoding="utf-8")
TABLE = DOCS.split("```csv\n")[1].split("```")[0]


def test_the_commands_in_the_docs_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("runs.csv").write_text(TABLE)
    commands = "".join(re.findall("```sh\n(.*?)```", DOCS, re.DOTALL)).replace("\\\n", " ").splitlines()
    assert len(commands) == 5
    for command in commands:
        name, *given = shlex.split(command)
        small = ["--agents", "static,random", "--seeds", "2", "--horizon", "9", "--jobs", "1"]  # the last count
        result = rasp(*given, *small * (given[0] == "bench"))
        assert (name, result.exit_code) == ("rasp", 0), result.stderr
    assert len(list(Path("out/runs/cells").iterdir())) == 8
    assert len(list(Path("out/late/cells").iterdir())) == 8
    assert Path("out/runs/report.html").is_file()


def test_a_table_of_ones_own(tmp_path):
    (tmp_path / "runs.csv").write_text(TABLE)
    words = [
        *("bench", "--table", str(tmp_path / "runs.csv"), "--knobs", "threads,codec", "--context", "machine"),
        *("--agents", "static,random", "--seeds", "2", "--horizon", "40", "--out", str(tmp_path / "out")),
    ]
    result = rasp(*words, "--metrics", "time_ms:min", "--jobs", "2")
    assert result.exit_code == 0, result.stderr
    steps = (tmp_path / "out" / "steps.csv").read_text().splitlines()[1:]
    assert len(steps) == 160
    assert all(line.startswith("runs,") and float(line.split(",")[7]) >= 0 for line in steps)


def test_a_table_read_in_another_way_is_run_anew(tmp_path):
    (tmp_path / "runs.csv").write_text(TABLE)
    words = [
        *("bench", "--table", str(tmp_path / "runs.csv"), "--knobs", "threads,codec", "--context", "machine"),
        *("--agents", "rasp", "--seeds", "1", "--horizon", "30", "--jobs", "1", "--out", str(tmp_path / "out")),
    ]
    seen = []
    for way in (("time_ms:min",), ("time_ms:max",), ("time_ms:max", "--noise", "5"), ("time_ms:min",)):
        assert rasp(*words, "--metrics", *way).exit_code == 0
        seen.append((tmp_path / "out" / "steps.csv").read_text())
    assert len(set(seen)) == 3
    assert seen[3] == seen[0]  # step times and all: a finished run is kept


@pytest.fixture
def bench(tmp_path):
    """Runs the static agent on the table with more options; gives its steps."""
    (tmp_path / "runs.csv").write_text(TABLE)

    def run(*more):
        result = rasp(
            *("bench", "--table", str(tmp_path / "runs.csv"), "--knobs", "threads,codec", "--context", "machine"),
            *("--metrics", "time_ms", "--agents", "static", "--seeds", "1", "--horizon", "40", "--jobs", "1"),
            *("--out", str(tmp_path / "out"), *more),
        )
        assert result.exit_code == 0, result.stderr
        with (tmp_path / "out" / "steps.csv").open() as file:
            return list(csv.DictReader(file))

    return run


def test_loss_and_default(bench):
    central = {"0": 20.0, "1": 12.0}  # four threads with lz4, in each context
    for row in bench("--loss", "raw"):
        assert float(row["loss"]) == central[row["regime"]]
    slow = {"0": 60 / 20, "1": 30 / 5}
    for row in bench("--default", "codec=zstd, threads=4"):
        assert float(row["loss"]) == pytest.approx(np.log(slow[row["regime"]]))


def test_block(bench):
    regimes = [row["regime"] for row in bench("--block", "2,2")]
    assert regimes == [regimes[step // 2 * 2] for step in range(40)]
    assert all(regimes[step] != regimes[step + 2] for step in range(0, 38, 2))


def test_noise_on_contexts_and_metrics_changes_what_a_learner_does(bench):
    plain = bench("--agents", "rasp")
    for option in ("--context-noise", "--noise"):
        noisy = bench("--agents", "rasp", option, "2")
        assert [row["regime"] for row in noisy] == [row["regime"] for row in plain]
        assert [row["predicted"] for row in noisy] != [row["predicted"] for row in plain]


def test_a_wide_table_needs_no_context_columns(tmp_path):
    (tmp_path / "wide.csv").write_text("threads,ms_small,ms_large\n1,40,40\n4,20,12\n16,,5\n")
    result = rasp(
        *("bench", "--table", str(tmp_path / "wide.csv"), "--knobs", "threads", "--metrics", "ms_*:min"),
        *("--agents", "static", "--seeds", "1", "--horizon", "9", "--jobs", "1", "--out", str(tmp_path / "out")),
    )
    assert result.exit_code == 0, result.stderr


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (("--metrics", "time_ms:down"), "metrics must look like time_ms:min,fps:max, got 'time_ms:down'"),
        (("--metrics", ""), "metrics must look like time_ms:min,fps:max, got ''"),
        (
            ("--metrics", "speed"),
            r"lacks the columns ['speed']; it has ['threads', 'codec', 'machine', 'time_ms', 'gain']",
        ),
        (("--metrics", "time_ms:min,time_ms:max"), "metrics must be different, got 'time_ms' twice"),
        (
            ("--metrics", "gain"),
            "loss='log' (--loss log) needs positive metrics, got -1.0 in 'gain'; use loss='raw' (--loss raw)",
        ),
        (("--knobs", ""), "knobs (--knobs) must name at least one column of"),
        (("--knobs", '"threads'), "cannot be split at its commas"),
        (("--context", ""), "context (--context) must name at least one column of"),
        (("--loss", "square"), "loss (--loss) must be 'log' or 'raw', got 'square'"),
        (("--block", "30,10"), "as in block=(10, 30) or --block 10,30, got (30, 10)"),
        (("--block", "10"), "as in block=(10, 30) or --block 10,30, got '10'"),
        (("--block", "1,b"), "as in block=(10, 30) or --block 10,30, got '1,b'"),
        (("--default", "threads"), "default must look like threads=4,codec=lz4, got 'threads'"),
        (("--default", "threads=4,threads=1"), "default must name a knob once, got 'threads' twice"),
        (("--default", "threads=4"), "default (--default) must set each of the knobs ['threads', 'codec'], got"),
        (
            ("--default", "thread=4,codec=lz4"),
            "default (--default) must set each of the knobs ['threads', 'codec'], got",
        ),
        (
            ("--default", "threads=5,codec=lz4"),
            "knob 'threads' was measured at [1.0, 4.0, 16.0], got '5' in default (--default)",
        ),
        (("--default", "threads=1,codec=zstd"), "default (--default) must be a measured configuration of"),
        (("--suite", "paper"), "choose --table or --suite"),
        (("--memory",), "--memory needs --suite"),
    ],
)
def test_mistakes_with_a_table_are_said_in_one_line(tmp_path, wrong, message):
    (tmp_path / "runs.csv").write_text(re.sub("(?m)$(?=\n)", ",-1", TABLE).replace("time_ms,-1", "time_ms,gain"))
    result = rasp(
        *("bench", "--table", str(tmp_path / "runs.csv"), "--knobs", "threads,codec", "--context", "machine"),
        *("--metrics", "time_ms", "--agents", "static", "--out", str(tmp_path / "out"), *wrong),
    )
    assert result.exit_code == 1
    assert result.stderr.startswith("rasp: ")
    assert message in result.stderr
    assert result.stderr.count("\n") == 1


def test_a_table_says_what_is_good(tmp_path):
    (tmp_path / "runs.csv").write_text(TABLE)
    result = rasp("bench", "--table", str(tmp_path / "runs.csv"), "--out", str(tmp_path / "out"))
    assert result.stderr == "rasp: --table needs --metrics, as in --metrics time_ms:min\n"


def test_an_npz_file_takes_no_columns(tmp_path):
    path = tmp_path / "runs.npz"
    np.savez(path, configurations=[[1], [2]], contexts=[[0.0]], time=[[1.0, 2.0]])
    shared = (
        "bench",
        "--table",
        str(path),
        "--metrics",
        "time",
        "--agents",
        "static",
        "--seeds",
        "1",
        "--horizon",
        "3",
    )
    assert rasp(*shared, "--jobs", "1", "--default", "x1=2", "--out", str(tmp_path / "out")).exit_code == 0
    for option in ("--knobs", "--context"):
        result = rasp(*shared, option, "x1", "--out", str(tmp_path / "out"))
        assert result.exit_code == 1
        assert "an npz file says itself what its knobs and contexts are: leave out knobs and context" in result.stderr


@pytest.mark.parametrize(
    "option",
    [
        *(("--knobs", "a"), ("--context", "a"), ("--metrics", "a"), ("--loss", "log"), ("--noise", "0")),
        *(("--context-noise", "0.1"), ("--block", "1,2"), ("--default", "a=1")),
    ],
)
def test_options_of_a_table_need_a_table(tmp_path, option):
    result = rasp("bench", *option, "--agents", "static", "--seeds", "1", "--horizon", "3", "--out", str(tmp_path))
    assert result.exit_code == 1
    assert result.stderr == f"rasp: {option[0]} says how to read a table: name its file with --table\n"


def test_names_with_commas_and_colons_can_be_typed():
    assert words('threads, "size, MB"') == ("threads", "size, MB")
    assert parse_metrics('"size, MB:max",a:b:min') == (("size, MB", "max"), ("a:b", "min"))
    assert parse_default('"codec=lz4, fast",mode=0:0') == (("codec", "lz4, fast"), ("mode", "0:0"))
    with pytest.raises(InvalidValue, match="metrics must look like"):
        parse_metrics("a:b")


def test_the_help_has_a_panel_for_tables():
    text = rasp("bench", "--help").stdout
    first, second = text.split("Your own measurements")
    assert "--suite" in first
    assert "--table" not in first.split("Options")[1]
    for option in ("--table", "--knobs", "--metrics", "--loss", "--noise", "--context-noise", "--block", "--default"):
        assert option in second
