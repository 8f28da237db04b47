import json
import re
from html.parser import HTMLParser
from xml.etree import ElementTree

import numpy as np
import pytest

from rasp_lab.bench import domains
from rasp_lab.bench.agents import AGENTS
from rasp_lab.bench.analysis import claims, metrics, overview, summary, verdicts
from rasp_lab.bench.analysis.kept_runs import KeptRun
from rasp_lab.bench.domains import PAPER, SYNTHETIC
from rasp_lab.bench.report import figures, html_report, result_figures, tables
from rasp_lab.bench.report.regret_figure import regret_svg
from rasp_lab.bench.runner import memory_growth as memory
from rasp_lab.bench.runner import run, timing
from rasp_lab.bench.runner.protocol import COLUMNS, plan
from rasp_tuner import InvalidValue


def made(agent, totals, domain, horizon=100):
    """Runs whose cumulative regrets are `totals`, one a seed, spread evenly over the steps."""
    regret = np.repeat(np.array(totals, dtype=float)[:, None] / horizon, horizon, axis=1)
    columns = dict.fromkeys(COLUMNS[4:], np.full(regret.shape, np.nan))
    columns |= {"loss": regret, "regret": regret, "regime": np.zeros(regret.shape)}
    columns |= {"ask_ms": np.ones(regret.shape), "tell_ms": np.zeros(regret.shape)}
    return metrics.Runs(domain, agent, horizon, tuple(range(len(totals))), columns)


def everywhere(**totals):
    return [made(agent.replace("_", "-"), values, domain) for domain in SYNTHETIC for agent, values in totals.items()]


def test_the_summary_says_plainly_who_loses_to_doing_nothing():
    runs = everywhere(static=[10.0, 11.0], random=[30.0, 31.0], rasp_paper=[20.0, 21.0], rasp=[1.0, 2.0])
    assert verdicts.summaries(runs) == [
        "T = 100: rasp beats never changing anything (0.14 times its regret, lower on 9 of 9 domains),"
        " beats random search (0.05 times its regret, lower on 9 of 9 domains).",
        "T = 100: rasp-paper loses to never changing anything (1.95 times its regret, lower on 0 of 9 domains),"
        " beats random search (0.67 times its regret, lower on 9 of 9 domains).",
    ]


def test_the_best_peer_has_a_place_in_the_summary_and_a_tie_is_called_one():
    runs = everywhere(static=[10.0], cma_es=[5.0], ra_gd=[0.1], rasp=[5.001])
    (line,) = verdicts.summaries(runs)
    assert "ties with the best peer, cma-es (1.00 times its regret, lower on 0 of 9 domains)" in line
    assert verdicts.summaries(everywhere(rasp=[1.0])) == []


OUTSIDE = {
    "A1_Adversarial_Context": {"static": [0, 0], "rasp": [1, 2]},
    "H1_Recurring_Regimes": {"static": [9, 9], "tpe": [3, 4], "rasp": [4, 5]},
    "S1_California_Housing": {"static": [8, 8], "rasp": [8, 8.01]},
    "S2_Boston_Housing": {"static": [5, 5], "rasp": [6, 6]},
    "S3_Digits": {"random": [9, 9], "rasp": [8, 8]},
}


def test_every_domain_is_named_where_ours_loses_and_a_tie_is_no_loss():
    runs = [made(agent, totals, domain) for domain, each in OUTSIDE.items() for agent, totals in each.items()]
    assert verdicts.losses([*everywhere(static=[4, 4], rasp=[1, 1]), *runs]) == [
        "T = 100: rasp has more regret than never changing anything on A1 Adversarial, S2 Boston, and more than the"
        " best peer of the domain on A1 Adversarial (static), H1 Recurring (tpe), S2 Boston (static).",
        verdicts.ON_A1,
        verdicts.ON_STREAMS,
    ]
    assert verdicts.losses(everywhere(static=[4, 4], rasp=[1, 1])) == []


def test_who_loses_everywhere_is_said_so_and_the_papers_stack_comes_last():
    runs = everywhere(static=[4, 4], tpe=[2, 2], rasp=[3, 3], rasp_paper=[9, 9])
    nine = ", ".join(f"{domains.short_name(name)} (tpe)" for name in SYNTHETIC)
    assert verdicts.losses(runs[: 4 * 8] + [r for r in runs[4 * 8 :] if r.agent != "tpe"])[0] == (
        f"T = 100: rasp has more regret than the best peer of the domain on {nine.rsplit(', ', 1)[0]}."
    )
    assert verdicts.losses(runs) == [
        "T = 100: rasp has more regret than the best peer of the domain on all 9 domains.",
        "T = 100: rasp-paper has more regret than never changing anything on all 9 domains,"
        " and more than the best peer of the domain on all 9 domains.",
    ]


def test_words_say_when_a_peer_ran_on_fewer_seeds():
    agents = {"static": [9, 9], "turbo": [3], "rasp": [2, 4]}
    (line,) = verdicts.summaries(everywhere(**agents))
    assert "beats the best peer, turbo (1 seed: 0.67 times its regret, lower on 9 of 9 domains)" in line
    assert "never changing anything (0.33 times" in line  # both seeds
    (line,) = verdicts.losses(everywhere(**{**agents, "turbo": [1]})[:3])
    assert line.endswith("the best peer of the domain on 1 LLM (turbo, 1 seed).")


def curves(**slopes):
    """One run an agent on each of the nine whose regret is its slope at every step."""
    return [r for name, slope in slopes.items() for r in everywhere(**{name: [slope * 100, slope * 100]})]


def test_the_first_picture_relates_cumulative_regret_to_that_of_doing_nothing_at_the_end():
    runs = [*curves(static=2.0, random=4.0, rasp=0.5), made("static", [0, 0], PAPER[9]), made("rasp", [1, 1], PAPER[9])]
    view = overview.overview(runs)
    assert (view.horizon, view.domains, view.seeds) == (100, SYNTHETIC, (2, 2))
    assert list(view.curves) == ["rasp", "static", "random"]  # the lowest first
    assert view.curves["random"] == pytest.approx(np.arange(1, 101) / 50)
    assert view.ends == pytest.approx({"rasp": 0.25, "static": 1.0, "random": 2.0})
    assert overview.paragraph(view) == (
        "After 100 steps RASP-Tuner has 0.25 times the regret of never changing a setting and random search 2.00 times:"
        " lower is better. Regret adds up how much worse each step was than the best possible settings. Each method"
        " tuned 9 simulated systems whose conditions change, with 2 random seeds; the numbers are geometric means over"
        " the systems."
    )


def test_the_first_picture_ends_at_the_numbers_of_the_table():
    rng = np.random.default_rng(0)
    runs = [made(a, rng.uniform(1, 9, size=3), d) for d in SYNTHETIC for a in ("static", "rasp", "tpe")]
    assert overview.overview(runs).ends == pytest.approx(metrics.geometric_means(runs, 100))


@pytest.mark.usefixtures("undrawn")
def test_there_is_no_picture_without_something_to_relate_to():
    assert overview.overview(curves(rasp=1.0)) is None
    assert overview.overview(curves(static=1.0)) is None
    assert overview.overview(everywhere(static=[0, 0], rasp=[1, 1])) is None
    assert "<svg" not in html_report.as_html(curves(rasp=1.0))


def test_the_first_picture_shows_few_peers_and_the_best_of_them():
    many = {f"agent_{i}": 1.0 + i for i in range(9)}
    view = overview.overview(curves(static=1.0, rasp=0.5, rasp_paper=3.0, ra_gd=0.1, random=9.0, **many))
    assert set(view.curves) == {"static", "rasp", "rasp-paper", "random", "agent-0", "agent-1", "agent-2"}


def test_the_svg_is_small_well_formed_and_its_labels_do_not_overlap():
    view = overview.overview(curves(static=1.0, rasp=0.99, rasp_paper=50.0, random=1.01, tpe=1.0, cma_es=40.0))
    text = regret_svg(view)
    assert len(text) < 20_000
    root = ElementTree.fromstring(text)  # noqa: S314
    labels = [t for t in root.iter("{http://www.w3.org/2000/svg}text") if float(t.get("x")) > 400]
    heights = sorted(float(t.get("y")) for t in labels if t.text != "100")
    assert len(heights) == 6
    assert min(np.diff(heights)) >= 17.9
    assert "paper's RASP 50.00" in {t.text for t in labels}  # beyond the axis, but named


@pytest.mark.usefixtures("undrawn")
def test_the_page_opens_with_one_picture_and_one_paragraph():
    page = html_report.as_html(curves(static=2.0, random=4.0, rasp=0.5))
    opening = page.split("<h1>")[1].split("<h2>")[0]
    assert re.fullmatch(
        r'[^<]*</h1><figure class="first"><svg.*</svg>\s*</figure><p class="lead">[^<]+</p>', opening, re.S
    )


@pytest.mark.usefixtures("undrawn")
def test_claims_that_were_not_measured_are_not_shown():
    runs = everywhere(static=[10.0, 11.0], rasp=[1.0, 2.0])
    shown = [row[0] for row in tables.claims_table(runs)[1]]
    assert "beats never changing anything on all nine tasks" in shown
    assert len(shown) < len(claims.findings(runs))
    for page in (html_report.as_html(runs), html_report.as_markdown(runs)):
        assert "not measured" not in page


@pytest.mark.usefixtures("undrawn")
def test_the_papers_constants_are_shown_where_its_agents_ran():
    assert "Hyperparameters" not in html_report.as_html(everywhere(static=[1.0], rasp=[1.0]))
    assert "Hyperparameters" in html_report.as_html(everywhere(static=[1.0], rasp_paper=[1.0]))


@pytest.mark.parametrize(("static", "best"), [([9, 9.1], "tpe"), ([1, 1.1], "static")])
def test_the_best_peer_is_neither_ours_nor_the_oracle_but_may_be_the_default(static, best):
    runs = everywhere(
        static=static, ra_gd=[0.1, 0.2], rasp_paper=[3, 3.1], cma_es=[5, 5.5], tpe=[4, 4.6], rasp=[2, 2.1]
    )
    tests = summary.best_peer_tests(runs, "rasp")
    assert {t["best_peer"] for t in tests} == {best}
    assert all(t["p_holm"] >= t["p"] for t in tests)


def test_peers_are_compared_on_the_seeds_they_share_with_ours():
    runs = [made("rasp", [1.0, 100.0], "D"), made("a", [2.0], "D"), made("b", [1.5, 70.0], "D")]
    (test,) = summary.best_peer_tests(runs, "rasp")
    assert test["best_peer"] == "b"  # a's 2 is twice ours on that seed
    assert (test["ours"], test["theirs"]) == pytest.approx((50.5, 35.75))


def test_a_peer_with_one_shared_seed_has_no_p():
    runs = [made("rasp", [2.0, 3.0], "D"), made("static", [9.0, 9.0], "D"), made("turbo", [1.0], "D")]
    (row,) = tables.best_peer_table(runs, 100, "rasp")[1]
    assert row == ["D", "turbo", "2.00", "1.00", "higher", "1", "-", "-"]


def test_the_page_of_results_tests_against_the_best_peer_at_both_horizons():
    agents = {"static": [9, 8.5], "turbo": [8], "rasp": [2, 3]}
    rows = [
        KeptRun("H1_Recurring_Regimes", agent, horizon, seed, "", 50, total, 0.0, 0.0, 0.0)
        for agent, totals in agents.items()
        for horizon in (100, 1000)
        for seed, total in enumerate(totals)
    ]
    made_of = result_figures.collected(rows, 2, len(rows), [])
    for horizon in (100, 1000):
        head, [row] = made_of[f"best-peer-{horizon}"]
        assert row == ["rasp", "H1_Recurring_Regimes", "static", "2.50", "8.75", "lower", "2", "0.076", "0.076"], head


def test_seeds_that_differ_by_rounding_alone_have_an_interval_of_zero():
    runs = [made("static", [3.0, 3.0 + 1e-13], PAPER[0]), made("rasp", [1.0, 2.0], PAPER[0])]
    assert tables.interval_table(runs, 100, PAPER)[1] == [["rasp", "1.50 ± 6.35"], ["static", "3.00 ± 0"]]


def test_summary_is_strict_json_with_nulls_for_what_is_unknown():
    facts = json.loads(summary.to_json(summary.summarise(everywhere(static=[10.0]))))
    row = facts["T100"]["regret"][0]
    assert row["ci95"] is None  # one seed has no interval
    assert row["ratio_to_static"] == 1.0
    assert facts["T100"]["geometric_mean"] == {"static": pytest.approx(1.0)}
    assert row["adaptation"] is None  # the static default is the best: there is no gap to close
    facts = json.loads(summary.to_json(summary.summarise(everywhere(static=[10.0, 10.0], rasp=[1.0, 9.0]))))
    rows = {row["agent"]: row["adaptation"] for row in facts["T100"]["regret"]}
    assert rows["static"] == {"reached": 0, "seeds": 2, "median_step": None}
    assert rows["rasp"] == {"reached": 1, "seeds": 2, "median_step": None}


def test_the_level_to_reach_is_the_best_agents_and_not_the_oracles():
    runs = everywhere(static=[10.0], cma_es=[5.0], ra_gd=[0.0])
    adapted = {r.agent: summary.adapts(r, runs) for r in runs}
    assert adapted == {"static": (0, 1, None), "cma-es": (1, 1, 10), "ra-gd": (1, 1, 10)}
    assert tables.adaptation_table(runs, 100, SYNTHETIC[:1])[1] == [
        ["ra-gd", "10 (1/1)"], ["cma-es", "10 (1/1)"], ["static", "- (0/1)"],
    ]  # fmt: skip
    assert tables.adaptation_table(runs[:1], 100, SYNTHETIC[:1])[0] == ["agent"]  # no gap, no column


class Page(HTMLParser):
    """What a browser would have to fetch, and whether tags match."""

    def __init__(self):
        super().__init__()
        self.fetched, self.open = [], []

    def handle_starttag(self, tag, attrs):
        self.fetched += [value for name, value in attrs if name in ("src", "href") and not value.startswith("data:")]
        if tag not in ("meta", "img", "br"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    out = tmp_path_factory.mktemp("bench")
    cells = list(plan([*PAPER[4:6], PAPER[9]], ["static", "random", "rasp-paper", "rasp-paper-no-memory"], 2, 30))
    run.run_plan(cells, out)
    return out


@pytest.fixture(scope="module")
def written(folder):
    """The page and the Markdown of these runs, with their pictures."""
    return html_report.write(folder)


@pytest.mark.slow
def test_the_page_is_whole_and_fetches_nothing(written):
    page, text = written
    parser = Page()
    parser.feed(page.read_text())
    assert parser.fetched == []
    assert parser.open == []
    assert page.read_text().count("data:image/png;base64,") >= 5
    assert "T = 30" in text.read_text()


@pytest.mark.slow
def test_step_times_of_the_runs_are_said_to_be_under_load(written):
    page, text = written
    assert page.read_text().count("under parallel load") == 2  # beside the figure and beside the numbers
    assert "under parallel load" in text.read_text().split("### All numbers")[1].split("|")[0]


@pytest.mark.usefixtures("undrawn")
def test_step_times_of_the_timing_pass_are_drawn_where_there_are_some(folder):
    times = {timing.DOMAIN: {"rasp": timing.StepTimes(500, 1.2, 1.5, 5.0)}}
    page = html_report.as_html(metrics.load(folder / "steps.csv"), (), times)
    drawn = page.split("Figure 3: step time")[1]
    assert f"On {timing.DOMAIN}, all agents in one process" in drawn[:100]
    assert page.count("under parallel load") == 1  # beside the numbers of the runs


@pytest.mark.usefixtures("undrawn")
def test_the_claim_about_step_time_is_read_from_the_timing_pass(tmp_path):
    run.run_plan(list(plan(PAPER[:1], ["static", "rasp-paper"], 1, 100)), tmp_path)
    step = {name: timing.StepTimes(500, ms, ms, ms) for name, ms in (("gp-ucb", 40.0), ("rasp-paper", 4.0))}
    timing.save(tmp_path, 500, {timing.DOMAIN: step})
    for path in html_report.write(tmp_path):
        assert "10.0 times lower: 4 against 40 ms" in path.read_text()


@pytest.mark.slow
def test_markdown_tables_are_square(written):
    _, text = written
    tables = re.findall(r"(?:^\|.*\|\n)+", text.read_text(), re.MULTILINE)
    assert tables
    for table in tables:
        assert len({line.count("|") for line in table.splitlines()}) == 1


@pytest.mark.usefixtures("undrawn")
def test_names_are_escaped():
    runs = [made("<script>alert(1)</script>", [1, 2], "5_Switching_LQR"), made("static", [1, 2], "5_Switching_LQR")]
    assert "<script>alert" not in html_report.as_html(runs)


@pytest.mark.usefixtures("undrawn")
def test_settings_go_into_a_table_of_their_own_and_memory_growth_too(tmp_path):
    names = ["static", "rasp-paper", "rasp-paper[top_k=1]"]
    run.run_plan(list(plan(SYNTHETIC, names, 1, 12)), tmp_path)
    memory.save(tmp_path, "D", 12, {"static": memory.MemoryGrowth(2, 12, 0.25)})
    page, text = html_report.write(tmp_path)
    assert "| top_k | 1 | 3 |" in text.read_text()
    assert 'alt="regret against each constant"' in page.read_text()
    assert "| static | 2 | 12 | 0.2 |" in text.read_text()
    assert "rasp-paper[" not in text.read_text()


def test_each_constant_has_a_panel_that_marks_the_papers_value():
    figure = figures.sensitivity({"top_k": [(1.0, 2.0), (3.0, 1.5)], "stay": [(0.5, 1.0)]}, {"top_k": 3})
    assert [axes.get_xlabel() for axes in figure.axes] == ["top_k", "stay"]
    marked = [[line.get_xydata().tolist() for line in axes.lines if line.get_marker() == "o"] for axes in figure.axes]
    assert marked == [[[[3.0, 1.5]]], []]


def test_an_agent_has_one_colour_whoever_stands_beside_it():
    many = figures.colours(["turbo", "tpe", "rasp", "mine"])
    assert {figures.colours([agent])[agent] for agent in ("turbo", "tpe", "rasp")} == {
        many[agent] for agent in ("turbo", "tpe", "rasp")
    }
    assert len(set(figures.colours(AGENTS).values())) == len(AGENTS)


def test_the_papers_four_keep_their_colours():
    """The paper's Figure 2: RASP-Tuner red, CMA-ES green, Bayesian optimization blue, random search grey."""
    four = figures.colours(AGENTS)
    wanted = {"rasp": "tab:red", "cma-es": "tab:green", "gp-ucb": "tab:blue", "random": "gray"}
    assert {agent: four[agent] for agent in wanted} == wanted


def test_loss_and_regret_have_a_band_over_seeds_that_stays_above_zero():
    runs = [made("rasp", [1.0, 9.0], PAPER[0]), made("static", [5.0], PAPER[0])]
    for axes, lowest in zip(figures.trajectories(runs, [PAPER[0]]).axes, (0.05**2 / (0.05 + 0.508), 0.0), strict=True):
        (band,) = axes.collections  # one seed has none
        heights = band.get_paths()[0].vertices[:, 1]
        assert heights.min() == pytest.approx(lowest, rel=0.01)  # a loss mirrors the upper half by factors
        assert heights.max() > axes.lines[0].get_ydata().max()


def test_losses_below_zero_have_a_band_too():
    (band,) = figures.trajectories([made("rasp", [-1.0, -9.0], PAPER[0])], [PAPER[0]]).axes[0].collections
    assert np.isfinite(band.get_paths()[0].vertices).all()


def test_agents_that_leave_the_picture_are_named():
    runs = [made("static", [5.0, 5.0], PAPER[0]), made("rasp", [1.0, 1.0], PAPER[0])]
    assert figures.trajectories(runs, [PAPER[0]]).axes[1].get_title(loc="right") == ""
    worse = [*runs, made("turbo", [40.0, 40.0], PAPER[0]), made("random", [15.5, 15.5], PAPER[0])]
    right = figures.trajectories(worse, [PAPER[0]]).axes[1]
    assert right.get_title(loc="right") == "beyond this axis: turbo (40.0)"
    assert right.get_ylim()[1] == pytest.approx(15.75)


def test_who_never_adapts_has_a_hatched_bar_of_full_length():
    steps = {PAPER[0]: {"rasp": 20.0, "random": None}, PAPER[1]: {"rasp": None}}
    first, second, *_ = figures.adaptation(steps, 100).axes
    bars = {label.get_text(): bar for label, bar in zip(first.get_yticklabels(), first.patches, strict=True)}
    assert (bars["rasp"].get_width(), bars["random"].get_width()) == (20.0, 100.0)
    assert (bool(bars["rasp"].get_hatch()), bool(bars["random"].get_hatch())) == (False, True)
    assert [text.get_text() for text in first.texts] == ["never", "20"]  # from below
    assert [text.get_text() for text in second.texts] == ["not run", "never"]


@pytest.mark.usefixtures("undrawn")
def test_the_page_draws_adaptation_where_there_is_a_gap_to_close(folder):
    picture = '<div class="wide"><img alt="steps to adapt by domain and agent"'
    assert picture in html_report.as_html(everywhere(static=[10.0, 11.0], rasp=[1.0, 2.0]))
    assert picture not in html_report.as_html(
        metrics.load(folder / "steps.csv")
    )  # the static default is the best there


@pytest.mark.slow
def test_pictures_show_few_agents_and_tables_all(folder):
    names = [f"agent-{i}" for i in range(20)]
    runs = everywhere(static=[10.0, 11.0], rasp=[1.0, 2.0], **{name: [9.0, 9.0 + i] for i, name in enumerate(names)})
    shown = {r.agent for r in html_report.drawn(runs)}
    assert shown == {"static", "rasp", *names[:6]}
    assert {r.agent for r in html_report.drawn(metrics.load(folder / "steps.csv"))} == {
        "static", "random", "rasp-paper", "rasp-paper-no-memory",
    }  # fmt: skip


def test_a_folder_without_results_is_said_so(tmp_path):
    with pytest.raises(InvalidValue, match="run `rasp bench"):
        html_report.write(tmp_path)


def test_every_agent_is_in_the_legend_wherever_it_ran():
    runs = [made("static", [1.0, 2.0], PAPER[0]), made("static", [1.0, 2.0], PAPER[1]), made("tpe", [1.0], PAPER[1])]
    (legend,) = figures.trajectories(runs, PAPER[:2]).legends
    assert [text.get_text() for text in legend.get_texts()] == ["static", "tpe"]


@pytest.mark.usefixtures("undrawn")
def test_one_agent_alone_has_a_page():
    assert "<h2>T = 100</h2>" in html_report.as_html(everywhere(rasp=[1.0, 2.0]))
    assert "<h2>T = 100</h2>" not in html_report.as_html(everywhere(static=[1.0, 2.0]))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["memory.json", "timing.json"])
def test_what_was_measured_beside_and_is_damaged_is_said_so(folder, tmp_path, name):
    (tmp_path / "steps.csv").write_bytes((folder / "steps.csv").read_bytes())
    (tmp_path / name).write_text('{"cut')
    with pytest.raises(InvalidValue, match=f"{name} is damaged.*measured anew"):
        html_report.write(tmp_path)
