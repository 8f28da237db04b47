import re
from itertools import pairwise

import pytest

from rasp_lab import REPOSITORY
from rasp_lab.bench import agents
from rasp_lab.bench.agents import AGENTS, OF_PAPER_PAGE
from rasp_lab.bench.analysis import kept_runs, summary, world_scores
from rasp_lab.bench.analysis.metrics import load, second_half_ratio
from rasp_lab.bench.analysis.verdicts import NO_LOSS
from rasp_lab.bench.domains import BEYOND, PAPER, STREAMS, SYNTHETIC, create
from rasp_lab.bench.report import result_figures, result_page, results
from rasp_lab.bench.runner import run, suites, timing
from rasp_lab.bench.runner.protocol import Cell
from rasp_lab.pages import csv_tables, origin
from rasp_tuner import InvalidValue

pytestmark = pytest.mark.slow  # most of it reads one page, which takes seconds to make


def test_the_plan_is_every_agent_on_every_domain_with_the_slow_ones_cut_short():
    cells = results.plan(5)
    at = {(c.domain, c.agent, c.horizon): 0 for c in cells}
    for c in cells:
        at[c.domain, c.agent, c.horizon] += 1
    assert not {c.agent for c in cells} & OF_PAPER_PAGE  # `make paper` runs those
    for agent in set(AGENTS) - OF_PAPER_PAGE:
        for domain in (*PAPER, *BEYOND, *STREAMS):
            fresh = 5 if agent in ("static", "rasp") and domain in SYNTHETIC else 0
            assert at[domain, agent, 100] == 5 + fresh
        for domain in (*PAPER, *BEYOND):
            expected = 1 if agent in suites.SLOW else 5
            assert at.get((domain, agent, 1000), 0) == expected, (agent, domain)
    assert len(set(cells)) == len(cells)
    slow = [c.agent in suites.SLOW for c in cells]
    assert slow == sorted(slow)  # the quick ones first


def test_only_the_whole_set_cuts_the_slow_ones_short():
    assert len(suites.cells("long", ["gp-ucb-1"], 5)) == len(PAPER) * 5


def test_one_horizon_for_a_suite_of_two_names_no_cell_twice():
    cells = suites.cells("all", ["static"], 1, horizon=10)
    assert len(set(cells)) == len(cells) == len((*PAPER, *BEYOND, *STREAMS))


QUICK = ("static", "random", "cma-es")
PLAN = [
    Cell(domain, agent, seed, 100)
    for domain in (*PAPER, *BEYOND, *STREAMS)
    for agent in (*QUICK, "rasp-paper")
    for seed in range(2)
] + [Cell("H1_Recurring_Regimes", agent, 0, 1000) for agent in (*QUICK, "botorch")]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The quick agents finished everywhere, the paper's stack on one seed of one domain, botorch nowhere."""
    out = tmp_path_factory.mktemp("results")
    done = [c for c in PLAN if c.agent in QUICK or (c.domain, c.agent, c.seed) == (PAPER[4], "rasp-paper", 1)]
    results.forget_older(done, out)
    run.run_plan(done, out)
    return out


@pytest.fixture(scope="module")
def page(folder):
    results.write(PLAN, folder, folder / "docs" / "RESULTS.md", [])
    return (folder / "docs" / "RESULTS.md").read_text()


def section(page, title):
    return page.split(f"\n## {title}\n")[1].split("\n## ")[0]


def table(folder, name):
    head, rows = csv_tables.read(folder / "docs" / result_page.FOLDER / f"{name}.csv")
    return head, {row[0]: row for row in rows}


ORDER = [
    "Where it loses",
    "The paper's nine domains",
    "Tabular streams",
    "Random worlds",
    "Calibration",
    "Step time",
    "All tables",
]


def headings(text):
    return [line.removeprefix("## ") for line in text.splitlines() if line.startswith("## ")]


def test_the_page_opens_with_its_engine_and_a_table_then_says_where_it_loses(page):
    opening, rest = page.split("\n## ", 1)
    title, head, *_ = opening.split("\n\n")
    assert title == "# Results"
    assert origin.engine_hash() in head
    assert "older" not in head
    assert "| agent | T = 100 | T = 1,000 |" in opening
    assert rest.startswith("Where it loses\n\n- T = 100: rasp-paper has more regret than never changing anything")
    assert [h for h in headings(page) if h != "Missing"] == ORDER
    assert "`rasp results --seeds 2`" in opening


def test_the_committed_page_is_made_from_the_tables_beside_it():
    docs = REPOSITORY / "docs"
    known = result_figures.load(docs / result_page.FOLDER)
    committed = (docs / "RESULTS.md").read_text()
    assert committed == result_page.page(known, origin.head("RESULTS.md"))
    assert [title for title in headings(committed) if title != "Missing"] == ORDER
    assert len(committed.split()) <= 1500
    assert set(known.tables) == set(result_figures.FILES)


def test_tables_come_back_from_their_files_and_those_not_measured_leave_none(tmp_path):
    facts = result_figures.Facts(2, "numpy 2", ["one, two"], [])
    made = result_figures.Figures(facts, {"calibration": (["agent", "NLL"], [["a, b", "1"], ['"c"', "-"]])})
    (tmp_path / "step-time-domain.csv").write_text("old")
    result_figures.save(made, tmp_path)
    assert {file.name for file in tmp_path.iterdir()} == {"calibration.csv", "facts.json"}
    assert result_figures.load(tmp_path).tables == made.tables
    assert result_figures.load(tmp_path).facts.losses == ["one, two"]
    with pytest.raises(InvalidValue, match="must hold the tables of a page"):
        result_figures.load(tmp_path / "nowhere")


def test_a_page_without_losses_says_so():
    made = result_figures.collected([], 1, 0, [])
    assert section(result_page.page(made, ""), "Where it loses").strip() == f"- {NO_LOSS}"


def test_what_is_not_finished_is_named(page):
    missing = section(page, "Missing")
    assert "- T = 100, `rasp-paper`: 29 of 30 runs: 1 LLM, " in missing
    assert "5 Switching (seed 0)" in missing
    assert "- T = 1,000, `botorch`: all 1 runs" in missing


def test_step_times_come_from_the_timing_pass_alone(folder, page):
    assert "Missing: not measured yet" in section(page, "Step time")
    quick = [c for c in PLAN if c.agent in QUICK and c.domain == PAPER[0]]
    times = {
        timing.DOMAIN: {
            "random": timing.StepTimes(500, 0.5, 0.625, 2.0),
            "botorch": timing.StepTimes(175, 700.0, 710, 1e3),
        }
    }
    made = result_figures.collected(results._finished(quick, folder), 2, len(quick), [], times=times)
    assert made["step-time-domain"][1] == [
        ["random", "500", "0.500", "0.625", "2.00"],
        ["botorch", "175", "700", "710", "1000"],
    ]
    assert "step-time-stream" not in made.tables
    assert "| random | " in result_page.page(made, "").split("\n## ")[0]


def test_a_finished_plan_misses_nothing(folder):
    quick = [c for c in PLAN if c.agent in QUICK]
    made = results.figures(results._finished(quick, folder), quick, folder, folder)
    assert "## Missing" not in result_page.page(made, "")


def test_rows_and_columns_are_where_they_should_be(folder, page):
    assert page
    head, rows = table(folder, "ratios-100")
    assert [name.split()[0] for name in head[1:]] == [
        *["1", "2", "3", "4", "5", "6", "7", "8", "9"], "geo-mean", "A1", "A2", "H1", "seeds",
    ]  # fmt: skip
    assert rows["static"][1:] == ["1.00"] * 10 + ["(0)", "1.00", "1.00", "2"]
    assert rows["rasp-paper"].count("-") == 12  # all but domain 5: a missing run leaves a gap, not a number


def test_streams_and_regrets_are_told_with_their_intervals(folder, page):
    assert page
    assert all(re.fullmatch(r"\d+\.\d\d ± \d+\.\d\d", cell) for cell in table(folder, "streams")[1]["random"][1:])
    short, long = (table(folder, f"regret-{t}") for t in ("100", "1000"))
    assert all(re.fullmatch(r"[\d.e+]+ ± [\d.e+]+", cell) for cell in short[1]["random"][1:])
    assert re.fullmatch(r"[\d.]+ \(1 seed\)", long[1]["random"][1])  # one seed has no interval
    assert not any(name.startswith("S1") for name in short[0])  # the streams have a table of their own


def test_runs_of_an_older_engine_are_repeated_and_those_of_peers_kept(tmp_path, monkeypatch):
    cells = [Cell(domain, agent, 1, 5) for domain in (PAPER[4], "W_Mixed") for agent in ("static", "rasp")]
    run.run_plan(cells, tmp_path)
    assert results.forget_older(cells, tmp_path) == [c for c in cells if c.agent == "rasp"]  # of which nobody knows
    run.run_plan(cells, tmp_path)
    assert results.forget_older(cells, tmp_path) == []
    target = tmp_path / "docs" / "RESULTS.md"
    results.write(cells, tmp_path, target, [])
    assert {row.cells[0] for row in results.on_file(cells, target)} == set(cells)
    monkeypatch.setattr(origin, "engine_hash", lambda _root=None: "another")
    kept = results.on_file(cells, target)
    assert {row.agent for row in kept} == {"static"}
    assert results.to_run(cells, kept) == [c for c in cells if c.agent == "rasp"]
    monkeypatch.setattr(kept_runs, "_version", lambda _name: "another")
    assert [row.cells for row in results.on_file(cells, target)] == [row.cells for row in kept]  # whatever made them
    assert results.on_file(cells, target, peers=True) == []
    assert results.to_run(cells, [], peers=True) == cells
    assert results.forget_older(cells, tmp_path) == [c for c in cells if c.agent == "rasp"]


def test_sums_and_means_of_a_run_come_back_from_its_row(tmp_path):
    cells = [Cell("W_Scales", "random", 1, 30), Cell("W_Near", "static", 3, 60), Cell(PAPER[4], "rasp", 0, 20)]
    cells += [Cell("W_Mixed", "random", 1, 30)]
    whole = load(run.run_plan(cells, tmp_path))
    rows = [kept_runs.kept(r, kept_runs.made_by(r.agent)) for r in whole]
    kept_runs.write(tmp_path / "runs.csv", rows)
    back = kept_runs.read(tmp_path / "runs.csv")
    assert {r.cells[0]: [*map(str, r)] for r in back} == {r.cells[0]: [*map(str, kept_runs.rounded(r))] for r in rows}
    for before, after in zip(whole, kept_runs.as_runs(map(kept_runs.rounded, rows)), strict=True):
        assert after.totals == pytest.approx(before.totals, rel=1e-6)
        if before.domain == "W_Scales":
            assert world_scores.scales(after)[:2] == pytest.approx(world_scores.scales(before)[:2], rel=1e-6)
        elif before.domain == "W_Near":
            assert world_scores.harm(after) == pytest.approx(world_scores.harm(before), rel=1e-6)
        elif before.domain == "W_Mixed":
            assert world_scores.share(after) == pytest.approx(world_scores.share(before), rel=1e-6)
        else:
            assert second_half_ratio(after) == pytest.approx(second_half_ratio(before), rel=1e-5)
            assert "loss" not in after.columns  # no step of it is known


def test_the_oracle_is_a_step_late_where_every_step_is_new():
    """What the page says of 6_Smooth_Quadratic: what ra-gd plays suits the step before better than this one."""
    domain = create("6_Smooth_Quadratic")
    stream = domain.build_sequence(100, 0)
    agent = agents.create("ra-gd", domain.task(), 0)
    late = now = idle = 0.0
    for before, omega in pairwise(stream):
        agent.reveal(domain, before)
        agent.tell(agent.ask(domain.context_fn(before))[0], {})
        agent.reveal(domain, omega)
        theta = domain.theta(agent.ask(domain.context_fn(omega))[1])
        late += domain.true_loss(theta, before) - domain.minimum(before)
        now += domain.true_loss(theta, omega) - domain.minimum(omega)
        idle += domain.true_loss(domain.theta(domain.default), omega) - domain.minimum(omega)
    assert {domain.regime(omega) for omega in stream} == {0}
    assert late < idle / 2 < idle < now


def test_the_later_half_of_static_is_about_the_first(folder, page):
    assert page
    assert 0.5 < float(table(folder, "second-half")[1]["static"][1]) < 2.0


def test_tables_are_square(page):
    tables = re.findall(r"(?:^\|.*\|\n)+", page, re.MULTILINE)
    assert len(tables) >= 2
    for table in tables:
        assert len({line.count("|") for line in table.splitlines()}) == 1


def test_a_folder_without_runs_is_said_so(tmp_path):
    with pytest.raises(InvalidValue, match="must hold finished runs of the plan, got none of 124"):
        results.write(PLAN, tmp_path, tmp_path / "RESULTS.md", [])


def test_a_mean_of_seeds_stays_until_all_of_them_ran():
    mean = kept_runs.KeptRun(
        PAPER[0], "tpe", 100, 0, "a page", 50, 3.0, 1.0, *[float("nan")] * 6, seeds=2, deviation=0.5
    )
    runs = [mean._replace(seed=seed, seeds=1, deviation=float("nan"), regret=2.0 + seed) for seed in (0, 1)]
    assert kept_runs.merged([mean], runs[:1]) == [mean]
    assert kept_runs.merged([mean], runs) == runs
    (back,) = kept_runs.as_runs([mean])
    assert back.seeds == (0, 1)
    assert (back.totals.mean(), back.totals.std(ddof=1)) == pytest.approx((4.0, 0.5))
    assert second_half_ratio(back) == pytest.approx(1 / 3)
    (none,) = kept_runs.as_runs([mean._replace(regret=0.0, later_regret=0.0, deviation=0.0)])
    assert not none.totals.any()
    ours = [mean._replace(agent="rasp", seed=s, seeds=1, deviation=float("nan"), regret=0.1 * s) for s in (0, 1)]
    (test,) = summary.best_peer_tests(kept_runs.as_runs([mean, *ours]), "rasp")
    assert test["p"] != test["p"]  # of a mean, seeds cannot be paired
