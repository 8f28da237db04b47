import json

from typer.testing import CliRunner

from rasp_tuner.bench import agents, results, run
from rasp_tuner.cli import app


def rasp(*words):
    return CliRunner().invoke(app, list(words))


def test_bench_then_report(tmp_path):
    words = (
        "bench",
        "--agents",
        "static,random",
        "--seeds",
        "2",
        "--horizon",
        "20",
        "--jobs",
        "1",
        "--out",
        str(tmp_path),
    )
    result = rasp(*words)
    assert result.exit_code == 0, result.stderr
    assert "Regret relative to the static default, T = 20" in result.stdout
    assert (
        (tmp_path / "steps.csv")
        .read_text()
        .startswith("domain,agent,horizon,seed,step,regime,loss,regret,ask_ms,tell_ms")
    )
    assert json.loads((tmp_path / "summary.json").read_text())["T20"]["geometric_mean"]["static"] == 1.0
    assert json.loads(rasp(*words, "--json").stdout) == json.loads((tmp_path / "summary.json").read_text())
    assert rasp("report", str(tmp_path)).exit_code == 0
    assert (tmp_path / "report.html").is_file()


def test_results_from_what_is_finished(tmp_path):
    plan = [cell for cell in results.plan(1) if cell.agent == "static" and cell.horizon == 100]
    run.run_plan(plan, tmp_path / "out")
    words = ("results", "--seeds", "1", "--out", str(tmp_path / "out"), "--page-only")
    result = rasp(*words, "--markdown", str(tmp_path / "page.md"))
    assert result.exit_code == 0, result.stderr
    assert f"Markdown: {tmp_path / 'page.md'}" in result.stdout
    assert "- T = 1,000, `static`: all 12 runs" in (tmp_path / "page.md").read_text()
    assert rasp(*words).exit_code == 0
    assert (tmp_path / "out" / "RESULTS.md").read_text() == (tmp_path / "page.md").read_text()


def test_results_runs_the_plan_and_measures_memory(tmp_path, monkeypatch):
    monkeypatch.setattr(agents, "AGENTS", {"static": agents.AGENTS["static"]})
    monkeypatch.setattr(results, "AGENTS", agents.AGENTS)
    result = rasp("results", "--seeds", "1", "--jobs", "1", "--out", str(tmp_path))
    assert result.exit_code == 0, result.stderr
    page = (tmp_path / "RESULTS.md").read_text()
    assert "missing" not in page
    assert "## Memory growth on H1_Recurring_Regimes, T = 200" in page


def test_settings_of_an_agent_are_shown_as_they_are(tmp_path):
    agent = "rasp-paper[top_k=1]"
    words = ("bench", "--suite", "beyond", "--agents", agent, "--seeds", "1", "--horizon", "3", "--jobs", "1")
    assert agent in rasp(*words, "--out", str(tmp_path)).stdout


def test_agents_are_listed():
    names = rasp("bench", "--agents", "list").stdout.split()
    assert {"static", "random", "cma-es", "gp-ucb", "rasp", "rasp-paper", "ra-gd"} <= set(names)


TABLE = """threads,codec,machine,time_ms
1,lz4,small,40
4,lz4,small,20
16,lz4,small,
4,zstd,small,60
1,lz4,large,40
4,lz4,large,12
16,lz4,large,5
4,zstd,large,30
"""


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
    for wrong in ("time_ms:down", "", "speed"):
        refused = rasp(*words, "--metrics", wrong)
        assert refused.exit_code == 1
        assert refused.stderr.splitlines()[-1].startswith("rasp: ")


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


def test_mistakes_are_said_in_one_line(tmp_path):
    for words in (
        ("bench", "--suite", "nope", "--out", str(tmp_path)),
        ("bench", "--agents", "nobody", "--out", str(tmp_path)),
        ("bench", "--engine", "abacus", "--out", str(tmp_path)),
        ("bench", "--jobs", "0", "--out", str(tmp_path)),
        ("report", str(tmp_path / "nowhere")),
        ("results", "--page-only", "--out", str(tmp_path / "nowhere")),
    ):
        result = rasp(*words)
        assert result.exit_code == 1, words
        assert result.stderr.splitlines()[-1].startswith("rasp: ")
        assert "Traceback" not in result.stderr
