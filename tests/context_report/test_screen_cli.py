import csv
import json

import pytest
from streams import regimes
from typer.testing import CliRunner

from rasp_tuner.cli import app

OPTIONS = ("--context", "weather,load", "--metrics", "p99:min", "--params", "pool,timeout")


@pytest.fixture(scope="module")
def log(tmp_path_factory):
    path = tmp_path_factory.mktemp("screen") / "log.csv"
    with path.open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["weather", "load", "pool", "timeout", "p99"])
        for context, point, loss in zip(*regimes(60), strict=True):
            rows.writerow([*context, *point, loss])
        rows.writerow([1.0, 1.0, 0.5, 0.5, ""])
    return path


def test_verdict_and_table(log):
    result = CliRunner().invoke(app, ["screen", str(log), *OPTIONS])
    assert result.exit_code == 0, result.stderr
    assert result.stdout.startswith("The context helps: ")
    assert "weather" in result.stdout
    assert "Rows left out because a value is missing: 1\n" in result.stdout


def test_json_is_all_that_is_printed(log):
    result = CliRunner().invoke(app, ["screen", str(log), *OPTIONS, "--json"])
    data = json.loads(result.stdout)
    assert (data["verdict"], data["left_out"], data["samples"]) == ("helps", 1, 60)


def test_mistakes_are_said_in_one_line(log):
    result = CliRunner().invoke(app, ["screen", str(log), "--context", "x", "--metrics", "p99", "--params", "pool"])
    assert result.exit_code == 1
    assert result.stderr.startswith("rasp: ")
    assert "lacks the columns ['x']" in result.stderr


def test_names_with_commas_are_quoted(tmp_path):
    log = tmp_path / "log.csv"
    log.write_text('"moon, full",pool,p99\n1,2,3\n4,5,6\n')
    options = ("--context", '"moon, full"', "--metrics", "p99", "--params", "pool")
    result = CliRunner().invoke(app, ["screen", str(log), *options])
    assert result.exit_code == 0, result.stderr
    assert "2 samples are not enough" in result.stdout
