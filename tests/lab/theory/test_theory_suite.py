"""`rasp theory` as a user runs it, and docs/THEORY.md, whose tables must be what it prints."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from rasp_lab.pages import csv_tables
from rasp_lab.theory import page, suite
from rasp_lab.theory.claim import Claim, Trial, examine, ratio
from rasp_tuner.cli import app

DOC = Path(__file__).parents[3] / "docs" / "THEORY.md"
TABLE = DOC.parent / "tables" / "theory.csv"
SUSPECTS = {"perfect retrieval", "sandwich", "regret", "misretrieval", "gradient error"}


@pytest.fixture(scope="module")
def outcomes():
    """The whole suite, once."""
    return list(suite.run(0))


@pytest.fixture
def quick(monkeypatch, outcomes):
    """The command without its ten seconds: it is given what was measured already."""
    monkeypatch.setattr(suite, "run", lambda seed: iter(outcomes if seed == 0 else outcomes[:1]))


def rasp(*words):
    return CliRunner().invoke(app, ["theory", *words])


def test_every_mended_claim_holds_and_every_suspect_breaks(outcomes):
    assert all(o.holds and o.worst_ratio <= 1.0 for o in outcomes if o.claim.version == "mended")
    broken = {o.claim.name for o in outcomes if o.claim.version == "paper" and not o.holds}
    assert broken == SUSPECTS | {"soft weights", "composer stability"}
    assert all(o.counterexamples for o in outcomes if not o.holds)


def test_every_broken_claim_has_a_mended_one(outcomes):
    mended = {o.claim.name for o in outcomes if o.claim.version == "mended"}
    assert {o.claim.name for o in outcomes if o.claim.version == "paper" and not o.holds} <= mended


def test_the_tables_of_the_document_are_what_is_printed(outcomes):
    head, rows = page.as_table(outcomes)
    kept = [head.index(name) for name in ("claim", "as", "instances", "worst measured/bound", "holds?")]
    printed = [[row[i] for i in kept] for row in rows]
    assert csv_tables.read(TABLE) == ([head[i] for i in kept], printed)
    failing = [
        f"| {name} | {worst} |" for name, version, _, worst, holds in printed if (version, holds) == ("paper", "NO")
    ]
    lines = DOC.read_text().splitlines()
    start = lines.index("| claim | worst measured/bound, as printed |")
    assert lines[start + 2 : lines.index("", start)] == failing


def test_the_ratios_of_the_counterexamples_in_the_document_are_what_is_printed(outcomes):
    text = DOC.read_text()
    for outcome in outcomes:
        for trial in outcome.counterexamples:
            assert f"`{trial.name}`: {ratio(trial.ratio)}" in text


def test_a_seed_repeats_and_another_one_differs():
    claim = next(c for c in suite.CLAIMS if c.name == "sandwich" and c.version == "paper")
    first, again, other = (examine(claim, seed).trials for seed in (3, 3, 4))
    assert first == again
    assert first != other


def test_versions_of_a_claim_are_measured_on_the_same_instances():
    printed, mended = (examine(claim, 0).trials for claim in suite.CLAIMS if claim.name == "composer stability")
    assert [t.measured for t in printed] == [t.measured for t in mended]


@pytest.mark.usefixtures("quick")
def test_the_command_prints_a_table_and_writes_figure_and_page(tmp_path):
    result = rasp("--out", str(tmp_path / "a[/b]"))
    assert result.exit_code == 0, result.stderr
    assert "Of 12 statements of the paper 5 hold as printed; of 12 mended ones 12 do." in result.stdout
    assert "centers 0 and 3, rho = 1" in result.stdout
    assert result.stdout.splitlines()[-1].endswith(f"Page: {tmp_path}/a[/b]/theory.html")
    html = (tmp_path / "a[/b]" / "theory.html").read_text()
    assert html.startswith("<!doctype html>")
    assert 'src="data:image/png;base64,' in html
    assert "://" not in html  # it fetches nothing
    assert (tmp_path / "a[/b]" / "theory.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.usefixtures("quick", "undrawn")
def test_json_is_a_list_of_claims_and_all_that_is_printed(tmp_path):
    rows = json.loads(rasp("--json", "--out", str(tmp_path)).stdout)
    assert len(rows) == len(suite.CLAIMS)
    for row in rows:
        assert {"claim", "holds", "worst_ratio"} <= set(row)
        assert row["holds"] == (row["worst_ratio"] <= 1.0)
        assert np.isfinite(row["worst_ratio"])
        assert bool(row["counterexamples"]) != row["holds"]
    assert len(json.loads(rasp("--json", "--seed", "1", "--out", str(tmp_path)).stdout)) == 1


def test_a_broken_mended_bound_is_told_by_the_exit_status(monkeypatch, tmp_path):
    broken = Claim("wrong", "mended", "2 <= 1", "none", lambda _: iter(()), (lambda: Trial(2.0, 1.0, "two"),), 0)
    monkeypatch.setattr(suite, "run", lambda _: iter([examine(broken, 0)]))
    result = rasp("--out", str(tmp_path))
    assert result.exit_code == 1
    assert "two: 2.00" in result.stdout


def test_without_matplotlib_one_line_says_so_before_anything_runs(tmp_path):
    code = "import sys; sys.modules['matplotlib'] = None; from rasp_tuner.cli import app; app(['theory'])"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=tmp_path)
    assert result.returncode == 1
    assert result.stderr.startswith("rasp: this command needs matplotlib")
    assert result.stderr.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("words", [("--seed", "-1"), ("--seed", "many"), ("--sed", "1")])
def test_wrong_words_exit_with_two(words):
    assert rasp(*words).exit_code == 2


@pytest.mark.parametrize(
    ("measured", "bound", "expected"),
    [(1.0, 2.0, 0.5), (1.0 + 1e-12, 1.0, 1.0), (1.0 + 1e-6, 1.0, 1.0 + 1e-6), (1e-16, 0.0, 0.0), (1.0, 0.0, np.inf)],
)
def test_a_ratio_forgives_rounding_and_nothing_else(measured, bound, expected):
    assert Trial(measured, bound).ratio == expected
