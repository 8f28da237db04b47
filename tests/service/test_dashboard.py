"""The page in a real browser against a real server process."""

import re

import pytest
from browsing import CONTRAST, Tab, press, scrolled_to_the_end
from serving import STUDY, Process, ask, plain_client, steps, tell, view

playwright = pytest.importorskip("playwright.sync_api", reason="no Playwright: pip install playwright")
expect = playwright.expect
expect.set_options(timeout=90_000)  # a busy machine is no failure

HOSTILE = "<img src=x onerror=window.hacked=1>"
SCRIPT = "</script><script>window.hacked=1</script>"
QUOTED = "\"'><svg onload=window.hacked=1>"


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """A server with three studies: "web" has learned, "fresh" has not, "evil" has hostile names."""
    server = Process(tmp_path_factory.mktemp("dashboard") / "data")
    with plain_client(server.url) as client:
        client.post("/v1/studies", json=STUDY).raise_for_status()
        steps(client, 60)
        client.post("/v1/studies", json={**STUDY, "name": "fresh"}).raise_for_status()
        learn_evil(client)
    yield server
    server.stop()


@pytest.fixture
def client(server):
    with plain_client(server.url) as client:
        yield client


@pytest.fixture
def tab(browser, server):
    tabs = []

    def make(url=server.url, **settings):
        tabs.append(Tab(browser, url, **settings))
        return tabs[-1]

    yield make
    for made in tabs:
        made.page.unroute_all(behavior="wait")  # pages ask again and again: no answer may be under way at the end
        made.context.close()


def learn_evil(client):
    study = {
        "name": "evil",
        "space": {
            HOSTILE: {"type": "float", "low": 0, "high": 1},
            SCRIPT: {"type": "categorical", "choices": [QUOTED, "plain"]},
        },
        "metrics": {HOSTILE: "min", QUOTED: "max"},
        "context": [SCRIPT],
    }
    client.post("/v1/studies", json=study).raise_for_status()
    for i in range(8):
        asked = client.post("/v1/studies/evil/ask", json={"context": {SCRIPT: i % 2}}).json()
        body = {"id": asked["id"], "metrics": {HOSTILE: 1.0 + i, QUOTED: 2.0 * i}}
        client.post("/v1/studies/evil/tell", json=body).raise_for_status()
    asked = client.post("/v1/studies/evil/ask", json={"context": {SCRIPT: 1}}).json()
    client.post("/v1/studies/evil/tell_failed", json={"id": asked["id"], "reason": HOSTILE}).raise_for_status()


@pytest.mark.slow
def test_a_study_opens_without_errors_and_without_third_parties(tab):
    opened = tab()
    page = opened.open("/")
    page.wait_for_load_state("networkidle")
    page.get_by_role("link", name="web", exact=True).click()
    expect(page.locator("#health")).to_have_text("Live")
    expect(page.locator("h1")).to_have_text("web")
    scrolled_to_the_end(page)
    titles = page.locator("figure.plot h3").all_text_contents()
    assert titles == [
        "p99_ms",
        "Gain over the default",
        "Situations over time",
        "Novelty and events",
        "pool",
        "t",
        "Calibration",
    ]
    opened.is_clean()


def test_every_chart_says_its_numbers_in_words(tab, client):
    page = tab().open("/studies/web")
    said = "all => all.map((a) => document.getElementById(a.getAttribute('aria-describedby')).textContent)"
    page.wait_for_function(  # each is drawn when its data have come
        f"() => ({said})([...document.querySelectorAll('.canvas[role=img]')]).filter(w => /[0-9]/.test(w)).length > 6"
    )
    words = page.locator(".canvas[role=img]").evaluate_all(said)
    assert len(words) == 7
    history = client.get("/v1/studies/web/history").json()
    assert f"p99_ms over {history['steps']} steps" in words[0]
    assert "2 situations" in words[2]


def test_the_page_follows_a_tell_and_keeps_what_is_open(tab, client):
    page = tab().open("/studies/web")
    expect(page.locator("#health")).to_have_text("Live")
    newest = page.locator("tr.suggestion").first
    press(newest.get_by_role("button", name="Why"))
    open_words = page.locator("tr.words:not([hidden])")
    expect(open_words).to_contain_text("Chosen because")
    before, said = view(client)["learned"], open_words.inner_text()
    line = page.locator("figure.plot path.line").first
    path = line.get_attribute("d")
    suggestion = ask(client)
    expect(page.locator("tr.suggestion").first).to_contain_text("pending")
    tell(client, suggestion["id"], 77.25)
    learned = page.locator(".stats div", has_text="Learned").locator("dd")
    expect(learned).to_have_text(str(before + 1))
    expect(page.locator("tr.suggestion").first).to_contain_text("77.25")
    line.scroll_into_view_if_needed()  # out of sight it is not drawn
    expect(line).not_to_have_attribute("d", path)
    assert open_words.inner_text() == said


def test_the_page_says_what_the_budget_is_and_how_metrics_are_compared(tab, client):
    opened = tab()
    page = opened.open("/studies/web")
    number = r"[0-9][0-9.,]*"
    line = rf"^Exploring may cost 2% more .*: {number} lost and {number} surely won back, {number} may still be lost\.$"
    expect(page.locator("#budget")).to_have_text(re.compile(line))
    scale = view(client)["scales"]["p99_ms"]
    by = "factors" if scale == "log" else "differences"
    expect(page.locator("#scales")).to_have_text(f"Compared by {by}, on a {scale} scale: p99_ms.")
    press(page.locator("tr.suggestion").first.get_by_role("button", name="Why"))
    expect(page.locator("tr.words:not([hidden])")).to_contain_text("Chosen because")
    press(page.locator("details.definition summary"))
    expect(page.locator("details.definition")).to_contain_text("at most 2% above the default")
    expect(page.locator("details.definition")).to_contain_text("scale auto")
    opened.is_clean()
    bare = tab()
    expect(bare.open("/studies/evil").locator("#budget")).to_have_text(
        "No budget: suggestions may cost more than the default."
    )
    bare.is_clean()


def test_the_table_shows_what_ran(tab, client):
    suggestion = ask(client)
    told = {"id": suggestion["id"], "metrics": {"p99_ms": 78.25}, "params": {"pool": 1, "t": 9.75}}
    client.post("/v1/studies/web/tell", json=told).raise_for_status()
    page = tab().open("/studies/web")
    newest = page.locator("tr.suggestion").first
    expect(newest).to_contain_text("9.75")
    expect(newest).to_contain_text("78.25")
    press(newest.get_by_role("button", name="Why"))
    words = page.locator("tr.words:not([hidden])")
    expect(words).to_contain_text("with other settings: pool=1, t=9.75.")
    expect(words).to_contain_text("Suggested, but not run: pool ")


def test_a_tell_between_the_first_look_and_the_live_stream_is_not_missed(tab, client):
    def meanwhile(route):
        tell(client, ask(client)["id"], 61.25)
        route.continue_()

    opened = tab()
    opened.page.route("**/live", meanwhile)
    page = opened.open("/studies/web")
    expect(page.locator("tr.suggestion").first).to_contain_text("61.25")


def test_nothing_is_drawn_while_nothing_happens(tab):
    page = tab().open("/studies/web")
    expect(page.locator("#health")).to_have_text("Live")
    page.wait_for_timeout(1_500)
    page.evaluate(
        "() => { window.changes = 0; new MutationObserver((all) => (window.changes += all.length))"
        ".observe(document.querySelector('.charts'), { subtree: true, childList: true, attributes: true }); }"
    )
    page.wait_for_timeout(1_200)
    assert page.evaluate("window.changes") == 0


def test_pointing_at_a_chart_reads_the_values_of_that_step(tab, client):
    page = tab().open("/studies/web")
    figure = page.locator("figure.plot").first
    expect(figure.locator("path.line")).to_be_visible()
    step = client.get("/v1/studies/web/history").json()["steps"] - 1
    expect(figure.locator(".readout")).to_contain_text(f"step{step}")
    figure.locator(".canvas").focus()
    page.keyboard.press("Home")
    series = client.get("/v1/studies/web/history?points=400").json()["series"]["metric:p99_ms"]
    expect(figure.locator(".readout")).to_contain_text("step0")
    expect(figure.locator(".readout b").nth(2)).to_have_text(f"{series['mean'][0]:g}")  # after step and time
    expect(page.locator("figure.plot", has_text="Situations over time").locator(".readout")).to_contain_text(
        "step0"
    )  # one cursor
    box = figure.locator(".canvas").bounding_box()
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + 60)
    middle = int(figure.locator(".readout b").first.inner_text())
    assert abs(middle - step / 2) < step / 10


def test_every_chart_gives_its_numbers_as_csv(tab, client):
    opened = tab()
    page = opened.open("/studies/web")
    expect(page.locator("figure.plot path.line").first).to_be_visible()
    steps_told = client.get("/v1/studies/web/history?points=400").json()["series"]["metric:p99_ms"]
    with page.expect_download() as saved:
        press(page.get_by_role("button", name="CSV of p99_ms"))
    rows = saved.value.path().read_text().splitlines()
    assert saved.value.suggested_filename == "p99_ms.csv"
    assert rows[0] == "step,time,p99_ms,p99_ms min,p99_ms max,default,default min,default max"
    assert len(rows) == 1 + len(steps_told["step"])
    step, time_, mean = rows[1].split(",")[:3]
    assert (int(step), float(mean)) == (0, steps_told["mean"][0])
    assert time_.endswith("Z")
    assert page.get_by_role("button", name=re.compile("^CSV of ")).count() == page.locator("figure.plot").count()
    for button in page.get_by_role("button", name=re.compile("^CSV of ")).all()[1:]:
        with page.expect_download() as saved:
            press(button)
        assert len(saved.value.path().read_text().splitlines()) > 1
    opened.is_clean()


def test_the_page_says_which_situations_returned(tab, client):
    page = tab().open("/studies/web")
    rows = page.locator(".visits tbody tr")
    expect(rows).to_have_count(2)
    known = client.get("/v1/studies/web/history").json()["situations"]
    for row, one in zip(rows.all(), known, strict=True):
        expect(row.locator("td").first).to_have_text(str(one["visits"]))
    expect(page.locator(".back")).to_contain_text("is back. Seen ")
    scrolled_to_the_end(page)
    expect(page.locator("figure.plot text.tick", has_text="returned")).to_have_count(1)
    empty = tab().open("/studies/evil")  # nine steps that alternate
    expect(empty.locator("#health")).to_have_text("Live")
    expect(empty.locator(".back")).to_be_hidden()


def test_names_cannot_become_formulas_in_a_csv(tab):
    page = tab().open("/studies/web")
    table = {"columns": ["=1+1", 'a"b', "x,y"], "rows": [[-1, None, "@z"]]}
    made = page.evaluate("async (table) => (await import('/static/csv.js')).csv(table)", table)
    assert made == '\'=1+1,"a""b","x,y"\r\n-1,,\'@z'


@pytest.mark.parametrize(("low", "high"), [(21.0, 95.0), (6.0, 19.0), (17.0, 7700.0), (2.1, 2.9), (0.9, 1.1)])
def test_a_logarithmic_axis_has_two_ticks_at_least(tab, low, high):
    page = tab().open("/studies/web")
    found = page.evaluate(
        "async ([low, high]) => (await import('/static/numbers.js')).logTicks(low, high, 4)", [low, high]
    )
    assert 2 <= len(found) <= 8
    assert all(low * 0.99 <= x <= high * 1.01 for x in found)


@pytest.mark.parametrize(("low", "high"), [(9.0, 97.0), (0.0, 1.0), (-3.0, 140.0), (20.1, 20.9), (1e6, 1.9e6)])
def test_an_axis_has_two_ticks_at_least(tab, low, high):
    page = tab().open("/studies/web")
    found = page.evaluate("async (ends) => (await import('/static/numbers.js')).ticks(...ends, 2)", [low, high])
    assert 2 <= len(found["at"]) <= 6
    assert all(low <= x <= high for x in found["at"])


def test_the_table_recommends_only_what_is_shown_to_matter(tab, client):
    page = tab().open("/studies/web")
    rows = page.locator("section", has=page.locator("#recommended")).locator("tbody tr")
    known = client.get("/v1/studies/web/situations").json()["situations"]
    expect(rows).to_have_count(len(known))
    for row, one in zip(rows.all(), known, strict=True):
        assert {**one["proven"], **one["unproven"]} == one["changed"]
        cells = row.locator("td").all_text_contents()
        assert all(name in cells[0] for name in one["proven"])
        assert not any(re.search(rf"\b{name} ", cells[0]) for name in one["unproven"])
        assert cells[2] == one["source"] or not one["source"]
        assert all(f"{name} (now " in cells[3] for name in one["unproven"])


def test_the_range_and_the_axis_are_picked_and_stay_in_the_address(tab):
    opened = tab()
    page = opened.open("/studies/web")
    figure = page.locator("figure.plot").first
    expect(figure.locator("path.line")).to_be_visible()
    last = figure.locator("text.tick").last
    expect(last).to_have_text(re.compile("^[0-9]+$"))
    page.get_by_text("Time", exact=True).click()
    expect(last).to_have_text(re.compile("^[0-9]{2}:[0-9]{2}"))
    with page.expect_request(lambda request: "/history?" in request.url and "&since=" in request.url):
        page.get_by_text("Last hour", exact=True).click()
    assert page.evaluate("location.hash") == "#range=hour&axis=time"
    opened.is_clean()
    page.reload()
    expect(page.get_by_label("Last hour")).to_be_checked()
    expect(figure.locator("text.tick").last).to_have_text(re.compile("^[0-9]{2}:[0-9]{2}"))


def test_values_far_from_all_others_do_not_set_the_axis_and_get_a_mark(tab):
    def far_off(route):
        answer = route.fetch()
        body = answer.json()
        series = body["series"]["metric:p99_ms"]
        for part in ("mean", "min", "max"):
            series[part][:5] = [1e6] * 5
        route.fulfill(json=body)

    opened = tab()
    opened.page.route("**/history*", far_off)
    page = opened.open("/studies/web")
    figure = page.locator("figure.plot").first
    figure.scroll_into_view_if_needed()  # it is drawn when it comes into sight
    expect(figure.locator("path.outside")).to_have_count(1)
    expect(figure.locator(".readout")).to_contain_text(re.compile(r"beyond the axis\d+"))
    marks = figure.locator("text.tick").all_text_contents()
    assert not any(text.endswith(("k", "M")) for text in marks)


def test_numbers_that_come_later_move_nothing_above_the_charts(tab):
    held = []
    opened = tab()
    opened.page.route("**/history*", lambda route: held.append(route))
    page = opened.open("/studies/web")
    expect(page.locator("tr.suggestion").first).to_be_visible()
    before = page.locator(".charts").bounding_box()
    for route in held:
        route.continue_()
    expect(page.locator(".gains b").first).to_have_text(re.compile("%"))
    assert page.locator(".charts").bounding_box()["y"] == before["y"]


def test_alerts_and_gains_are_said_in_words(tab):
    def alarming(route):
        body = route.fetch().json()
        body |= {"alerts": ["No snapshot since 3 h.", "23% of the latest runs failed."], "server": "http://b"}
        route.fulfill(json=body)

    opened = tab()
    opened.page.route(re.compile("/v1/studies/web$"), alarming)
    page = opened.open("/studies/web")
    expect(page.locator(".alerts li")).to_have_text(["No snapshot since 3 h.", "23% of the latest runs failed."])
    expect(page.locator(".place")).to_have_text("on http://b")
    expect(page.locator(".gains tbody tr")).to_contain_text("p99_ms")
    expect(page.locator(".gains td b").first).to_have_text(re.compile(r"^(saved|no saving) .*[%d]\)$"))
    expect(page.locator(".versus")).to_contain_text("by forecast of what the default would have given.")


def test_the_page_says_what_edges_gained(tab, client):
    page = tab().open("/studies/web")
    expect(page.locator(".glance")).to_be_visible()
    expect(page.locator(".edge")).to_be_hidden()
    client.post("/v1/studies", json={**STUDY, "name": "edges"}).raise_for_status()
    one = {"contexts": [{"qps": 5.0}], "policy": "1a", "leaf": 0}
    runs = [
        {"params": {"pool": 8, "t": 1.0}, "count": 100, "setting": 1, "probability": 0.1, "p99_ms": 10.0},
        {"params": {"pool": 4, "t": 1.0}, "count": 900, "setting": 0, "probability": 0.9, "p99_ms": 8.0},
    ]
    for run in runs:
        mean = run.pop("p99_ms")
        run |= {**one, "metrics": {"p99_ms": {"sum": run["count"] * mean, "squares": run["count"] * (mean**2 + 1)}}}
    body = {"source": "a", "sequence": 0, "sums": runs}
    client.post("/v1/studies/edges/tells", json=body).raise_for_status()
    said = tab().open("/studies/edges").locator(".edge")
    expect(said).to_contain_text("in 1,000 runs at edges, measured against 100 of the default.")
    expect(said).to_have_attribute("data-verdict", "good")
    client.delete("/v1/studies/edges").raise_for_status()


def test_the_first_questions_of_an_operator_are_answered_at_the_top(tab, client):
    def calm(route):  # whatever other tests did to the study
        route.fulfill(json=route.fetch().json() | {"alerts": []})

    opened = tab()
    opened.page.route(re.compile("/v1/studies/web$"), calm)
    page = opened.open("/studies/web")
    answers = page.locator(".glance dd")
    expect(answers.nth(0)).to_contain_text("runs of the default")
    expect(answers.nth(1)).to_contain_text("by forecast of what the default would have given.")
    expect(answers.nth(3)).to_contain_text("This machine, without a key (")
    asked = ask(client)
    pool = asked["params"]["pool"]
    expect(answers.nth(2)).to_contain_text("Not answered yet: 1." if pool == 8 else f"pool {pool} (default 8)")
    tell(client, asked["id"])
    expect(answers.nth(2)).to_contain_text("All are answered.")
    limited = {**STUDY, "name": "limited", "metrics": {"cost": "min", "p99_ms": {"max": 3.0}}}
    client.post("/v1/studies", json=limited).raise_for_status()
    for _ in range(12):
        told = {"id": ask(client, study="limited")["id"], "metrics": {"p99_ms": 9.0, "cost": 1.0}}
        client.post("/v1/studies/limited/tell", json=told).raise_for_status()
    over = tab().open("/studies/limited").locator(".glance dd").first
    expect(over).to_have_text("No: in more than one of ten of the latest runs p99_ms broke its limit.")
    client.delete("/v1/studies/limited").raise_for_status()


def test_the_list_is_sorted_and_turned_by_the_server(tab):
    asked = []

    def many(route):
        body = route.fetch().json()
        asked.append(route.request.url.partition("?")[2])
        route.fulfill(json={**body, "total": 10_000})

    opened = tab()
    opened.page.route("**/v1/studies?*", many)
    page = opened.open("/")
    expect(page.locator(".pager")).to_contain_text("1 to 50 of 10,000")
    expect(page.locator(".studies li").first.locator(".gain")).to_have_text(
        re.compile("(% (better|worse)|not clear yet)$")
    )
    page.get_by_label("Order").select_option("Worst gain first")
    page.get_by_role("button", name="Next").click()
    page.get_by_label("Find a study").fill("we")
    expect(page.locator(".studies li")).to_have_count(1)
    page.unroute_all(behavior="wait")
    assert asked[0] == "limit=50&offset=0&sort=recent&find="
    assert "limit=50&offset=0&sort=gain&find=" in asked
    assert "limit=50&offset=50&sort=gain&find=" in asked
    assert asked[-1] == "limit=50&offset=0&sort=gain&find=we"


def test_printing_draws_every_chart_in_light_colours(tab):
    page = tab(color_scheme="dark").open("/studies/web")
    expect(page.locator("#health")).to_have_text("Live")
    page.emulate_media(media="print", color_scheme="dark")
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    drawn = page.locator("figure.plot svg").evaluate_all(
        "all => all.map((svg) => svg.querySelectorAll('path, circle').length > 0)"
    )
    assert drawn == [True] * 7
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    expect(page.locator("#freeze")).to_be_hidden()


def test_freezing_asks_first_and_reaches_the_server(tab, client):
    opened = tab()
    page = opened.open("/studies/web")
    page.locator("#freeze").click()
    expect(page.get_by_role("dialog")).to_contain_text("Freeze web?")
    page.get_by_role("button", name="Cancel").click()
    assert not view(client)["frozen"]
    page.locator("#freeze").click()
    page.get_by_role("dialog").get_by_role("button", name="Freeze").click()
    expect(page.locator(".study-head .badge")).to_have_text("Frozen")
    expect(page.locator("#say")).to_have_text("The study was frozen")
    expect(page.locator(".who")).to_contain_text("by local")
    assert view(client)["frozen"]
    page.locator("#back").click()
    page.get_by_role("dialog").get_by_role("button", name="Back to the default").click()
    expect(page.locator(".study-head .badge")).to_have_text("Frozen at the default")
    expect(page.locator(".who")).to_have_text(re.compile("^sent back to the default (just now|[0-9]+ s ago) by local$"))
    expect(page.locator("#back")).to_be_hidden()
    assert view(client)["serves"] == "default"
    client.post("/v1/studies/web/unfreeze", json={})  # by someone else: the page hears of it
    expect(page.locator("#freeze")).to_have_text("Freeze")
    opened.is_clean()


def test_the_keyboard_reaches_freeze_and_shows_where_it_is(tab, client):
    page = tab().open("/studies/web")
    page.keyboard.press("Tab")
    expect(page.locator(":focus")).to_have_text("Skip to content")
    for _ in range(6):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.id") == "freeze":
            break
    expect(page.locator("#freeze")).to_be_focused()
    assert page.locator("#freeze").evaluate("(it) => getComputedStyle(it).outlineStyle") == "solid"
    page.keyboard.press("Enter")
    page.keyboard.press("Tab")  # from Cancel to Freeze
    page.keyboard.press("Enter")
    expect(page.locator(".study-head .badge")).to_have_text("Frozen")
    expect(page.locator("#freeze")).to_be_focused()
    client.post("/v1/studies/web/unfreeze", json={})


def test_hostile_names_are_shown_as_text(tab):
    opened = tab()
    page = opened.open("/")
    expect(page.locator(".studies li", has_text="evil")).to_contain_text(HOSTILE)
    page.wait_for_load_state("networkidle")
    page = opened.open("/studies/evil")
    scrolled_to_the_end(page)
    text = page.locator("main").text_content()
    for name in (HOSTILE, SCRIPT, QUOTED):
        assert name in text
    assert f"Reason told: {HOSTILE}" in text
    assert page.evaluate("window.hacked") is None
    assert page.locator("main img, main script, main svg[onload]").count() == 0
    opened.is_clean()


@pytest.mark.parametrize("path", ["/", "/studies/web", "/studies/fresh", "/studies/evil"])
def test_a_phone_scrolls_only_down(tab, path):
    page = tab(viewport={"width": 360, "height": 740}).open(path)
    if path in ("/studies/web", "/studies/evil"):
        scrolled_to_the_end(page)
    if path != "/":
        page.locator("#freeze").click()
        box = page.get_by_role("dialog").bounding_box()
        assert box["x"] >= 0
        assert box["x"] + box["width"] <= 360
    assert page.evaluate("document.documentElement.scrollWidth") <= 360


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_can_be_read_in_both_schemes(tab, scheme):
    opened = tab(color_scheme=scheme)
    for path in ("/", "/studies/fresh", "/studies/web"):
        page = opened.open(path)
        expect(page.locator("#health")).to_have_text("Live")
        if path == "/studies/web":
            scrolled_to_the_end(page)
        ratio, text = page.evaluate(CONTRAST)
        assert ratio >= 4.5, f"{text!r} on {path} has a contrast of {ratio:.2f}"
    dark = page.evaluate("getComputedStyle(document.body).backgroundColor") != "rgb(255, 255, 255)"
    assert dark == (scheme == "dark")


def test_an_empty_study_says_how_to_begin_and_then_draws(tab, client):
    client.post("/v1/studies", json={**STUDY, "name": "first"}).raise_for_status()
    page = tab().open("/studies/first")
    expect(page.locator(".empty pre")).to_be_visible()
    expect(page.locator(".empty pre")).to_contain_text("/v1/studies/first/ask")
    expect(page.locator(".charts")).to_be_hidden()
    tell(client, ask(client, study="first")["id"], 3.5, study="first")
    expect(page.locator(".charts")).to_be_visible()
    expect(page.locator(".empty")).to_be_hidden()
    expect(page.locator("figure.plot .readout").first).to_contain_text("3.5")


@pytest.mark.slow
def test_a_study_that_is_not_there_or_goes_is_named(tab, client):
    page = tab().open("/studies/nothing")
    expect(page.locator("h1")).to_have_text("No such study")
    client.post("/v1/studies", json={**STUDY, "name": "brief"}).raise_for_status()
    opened = tab()
    opened.page.clock.install()
    page = opened.open("/")
    expect(page.get_by_role("link", name="brief")).to_be_visible()
    client.delete("/v1/studies/brief").raise_for_status()
    page.clock.fast_forward(3_000)  # the list asks again
    expect(page.get_by_role("link", name="brief")).to_have_count(0)


@pytest.mark.slow
def test_the_page_comes_back_by_itself_after_the_server_was_away(tab, tmp_path):
    server = Process(tmp_path / "data")
    with plain_client(server.url) as client:
        client.post("/v1/studies", json=STUDY).raise_for_status()
        steps(client, 5)
    opened = tab(server.url)
    opened.page.clock.install()
    page = opened.open("/studies/web")
    expect(page.locator("#health")).to_have_text("Live")
    server.kill()
    expect(page.locator("#health")).to_contain_text("Connection lost")
    expect(page.locator("#say")).to_contain_text("Connection lost")
    expect(page.locator("#age")).to_contain_text("numbers are from")
    expect(page.locator(".alerts")).to_contain_text("may be old")
    expect(page.locator("#freeze")).to_be_disabled()
    expect(page.locator("#back")).to_be_disabled()
    server.start()
    with plain_client(server.url) as client:
        steps(client, 3, start=5)
    page.clock.fast_forward(4_000)  # the longest it waits between two tries
    expect(page.locator("#health")).to_have_text("Live")
    expect(page.locator("#freeze")).to_be_enabled()
    expect(page.locator("#age")).to_have_text("")
    expect(page.locator(".stats dd").first).to_have_text("8")
    expect(page.locator("tr.suggestion").first).to_contain_text("s7")
    server.stop()


@pytest.mark.slow
def test_with_keys_the_page_asks_for_one_and_says_what_it_may_not(tab, tmp_path, make_key):
    reader, admin = (make_key(tmp_path / "data", scope) for scope in ("read", "admin"))
    server = Process(tmp_path / "data")
    headers = {"Authorization": f"Bearer {admin}"}
    with plain_client(server.url, headers=headers) as client:
        client.post("/v1/studies", json=STUDY).raise_for_status()
    page = tab(server.url).page
    page.goto(f"{server.url}/studies/web")
    page.get_by_label("API key").fill("rasp_00_00")
    page.get_by_role("button", name="Use key").click()
    expect(page.get_by_role("alert")).to_have_text("That key was not accepted.")
    page.get_by_label("API key").fill(reader)
    page.get_by_role("button", name="Use key").click()
    expect(page.locator("h1")).to_have_text("web")
    expect(page.locator("#health")).to_have_text("Live")
    page.locator("#freeze").click()
    page.get_by_role("dialog").get_by_role("button", name="Freeze").click()
    expect(page.get_by_role("alert")).to_contain_text("may not admin")
    assert page.evaluate("[localStorage.length, document.cookie]") == [0, ""]
    page.get_by_role("button", name="Cancel").click()
    page.get_by_role("button", name="Forget key").click()
    expect(page.get_by_label("API key")).to_be_visible()
    server.stop()


@pytest.fixture
def make_key():
    from rasp_tuner.service.auth import create_key
    from rasp_tuner.service.storage.store import Store, sqlite_url

    def make(data, scope):
        data.mkdir(exist_ok=True)
        store = Store(sqlite_url(data))
        key, _ = create_key(store, scope)
        store.close()
        return key

    return make
