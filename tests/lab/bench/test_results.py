import re
from itertools import pairwise
from pathlib import Path

import pytest

from rasp_lab.bench import agents
from rasp_lab.bench.agents import AGENTS
from rasp_lab.bench.analysis.metrics import load
from rasp_lab.bench.analysis.verdicts import NO_LOSS
from rasp_lab.bench.domains import BEYOND, PAPER, STREAMS, create
from rasp_lab.bench.report import results
from rasp_lab.bench.runner import run, suites, timing
from rasp_lab.bench.runner.protocol import Cell
from rasp_tuner import InvalidValue
from rasp_tuner.page import html_page

pytestmark = pytest.mark.slow  # most of it reads one page, which takes seconds to make


def test_the_plan_is_every_agent_on_every_domain_with_the_slow_ones_cut_short():
    cells = results.plan(5)
    at = {(c.domain, c.agent, c.horizon): 0 for c in cells}
    for c in cells:
        at[c.domain, c.agent, c.horizon] += 1
    for agent in AGENTS:
        for domain in (*PAPER, *BEYOND, *STREAMS):
            assert at[domain, agent, 100] == 5
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
    run.run_plan(done, out)
    return out


@pytest.fixture(scope="module")
def page(folder):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(html_page, "image", lambda _figure, alt: alt)  # seconds, for a page that nobody looks at here
        web = results.write(PLAN, folder, folder / "docs" / "RESULTS.md")
    assert web.is_file()
    return (folder / "docs" / "RESULTS.md").read_text()


def section(page, title):
    return page.split(f"\n## {title}\n")[1].split("\n## ")[0]


ORDER = [
    "Where it loses",
    "The paper's nine domains in words",
    "How to read this page",
    "T = 100",
    "T = 1,000",
    "Random worlds",
    "The paper's claims",
    "Step time",
    "Calibration",
    "Steps to adapt",
    "Memory growth",
]


def headings(text):
    return [line.removeprefix("## ").split(" on ")[0] for line in text.splitlines() if line.startswith("## ")]


def test_the_page_opens_with_the_table_then_says_where_it_loses_then_details(page):
    opening, rest = page.split("\n## ", 1)
    assert opening.startswith("# Results\n\nRegret relative to `static`")
    assert opening.split("\n\n")[2].startswith("| agent | 1 LLM |")
    assert rest.startswith("Where it loses\n\n- T = 100: rasp-paper has more regret than never changing anything")
    assert headings(page) == [*ORDER, "Missing"]
    assert "`rasp results --seeds 2`" in section(page, "How to read this page")


def test_the_committed_page_has_the_same_order():
    committed = (Path(__file__).parents[3] / "docs" / "RESULTS.md").read_text()
    assert headings(committed) == ORDER
    assert committed.split("\n\n")[2].startswith("| agent | 1 LLM |")
    assert "**T =" not in committed


def test_a_page_without_losses_says_so():
    plan = [Cell(PAPER[4], "static", 0, 100)]
    assert section(results.page([], plan), "Where it loses").strip() == f"- {NO_LOSS}"


def test_what_is_not_finished_is_named(page):
    assert "30 of 124 runs are missing" in page
    missing = section(page, "Missing")
    assert "- T = 100, `rasp-paper`: 29 of 30 runs: 1 LLM, " in missing
    assert "5 Switching (seed 0)" in missing
    assert "- T = 1,000, `botorch`: all 1 runs" in missing
    assert "Missing: not measured yet" in section(page, "Memory growth")


def test_step_times_come_from_the_timing_pass_alone(folder, page):
    assert section(page, "Step time").count("Missing: not measured yet") == 2
    assert "|" not in section(page, "Step time")
    quick = [c for c in PLAN if c.agent in QUICK and c.domain == PAPER[0]]
    times = {
        timing.DOMAIN: {
            "random": timing.StepTimes(500, 0.5, 0.625, 2.0),
            "botorch": timing.StepTimes(175, 700.0, 710, 1e3),
        }
    }
    told = section(results.page(load(run.merge(quick, folder)), quick, times=times), "Step time")
    assert "| random | 500 | 0.500 | 0.625 | 2.00 |\n| botorch | 175 | 700 | 710 | 1000 |" in told
    assert told.count("Missing") == 1  # the stream


def test_a_finished_plan_misses_nothing(folder):
    quick = [c for c in PLAN if c.agent in QUICK]
    assert "missing;" not in results.page(load(run.merge(quick, folder)), quick)


def test_rows_and_columns_are_where_they_should_be(page):
    table = page.split("\n## ")[0]
    head = next(line for line in table.splitlines() if line.startswith("| agent"))
    assert [name.strip().split()[0] for name in head.split("|")[2:-1]] == [
        *["1", "2", "3", "4", "5", "6", "7", "8", "9"], "geo-mean", "A1", "A2", "H1", "seeds",
    ]  # fmt: skip
    static = next(line for line in table.splitlines() if line.startswith("| static"))
    assert static.split("|")[2:-1] == [" 1.00 "] * 10 + [" (0) ", " 1.00 ", " 1.00 ", " 2 "]
    paper = next(line for line in table.splitlines() if line.startswith("| rasp-paper"))
    assert paper.count(" - ") == 12  # all but domain 5: a missing run leaves a gap, not a number


def test_streams_are_told_with_their_intervals(page):
    streams = page.split("### Tabular streams")[1].split("###")[0]
    assert re.search(
        r"\| random \| \d+\.\d\d ± \d+\.\d\d \| \d+\.\d\d ± \d+\.\d\d \| \d+\.\d\d ± \d+\.\d\d \|", streams
    )


def test_regrets_of_the_synthetic_domains_have_intervals_at_both_horizons(page):
    short, long = (section(page, f"T = {t}").split("<details>")[1].split("</details>")[0] for t in ("100", "1,000"))
    cell = r"[\d.e+]+ ± [\d.e+]+"
    assert re.search(rf"\| random \|( {cell} \|){{12}}", short)
    assert re.search(r"\| random \| [\d.]+ \(1 seed\) \|", long)  # one seed has no interval
    assert "S1" not in short  # the streams have a table of their own


def test_the_page_says_why_the_oracle_is_no_lower_bound_on_one_domain(page):
    assert "no lower bound on 6_Smooth_Quadratic" in page


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


def test_the_later_half_of_static_is_about_the_first(page):
    rows = section(page, "T = 1,000").split("### Second half")[1].splitlines()
    static = next(line for line in rows if line.startswith("| static"))
    assert 0.5 < float(static.split("|")[2]) < 2.0


def test_tables_are_square(page):
    tables = re.findall(r"(?:^\|.*\|\n)+", page, re.MULTILINE)
    assert len(tables) >= 8
    for table in tables:
        assert len({line.count("|") for line in table.splitlines()}) == 1


def test_a_folder_without_runs_is_said_so(tmp_path):
    with pytest.raises(InvalidValue, match="must hold finished runs of the plan, got none of 124"):
        results.write(PLAN, tmp_path, tmp_path / "RESULTS.md")
