"""`rasp mcp` by the official client: a real process that talks to a real `rasp serve`, with the rights of keys."""

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mcp_agent import agent, by_process, in_memory, mcp
from typer.testing import CliRunner

from rasp_tuner import Categorical, Float, Int, Metric
from rasp_tuner.cli import app
from rasp_tuner.client import Client
from tests.service.serving import Process, plain_client, wait_for

ROOT = Path(__file__).parents[2]
BUSY = {"qps": 900.0}
DEFAULT = {"cache_gb": 8.0, "codec": "c0"}
READING = ["list_studies", "show_study", "list_suggestions", "explain", "recommend", "what_if", "list_waiting"]
CHANGING = ["approve", "refuse", "freeze", "unfreeze", "back_to_default"]


@pytest.fixture(scope="module")
def service(tmp_path_factory):
    """A server with keys, and three studies: one that has learned, two that wait for their first ask."""
    server = Process(tmp_path_factory.mktemp("mcp"))
    create = ["keys", "create", "--data", str(server.data), "--json"]
    server.keys = {}
    for name, words in {
        "admin": ["--scope", "admin"],
        "reader": ["--scope", "read"],
        "other": ["--scope", "admin", "--study", "other"],
    }.items():
        made = json.loads(CliRunner().invoke(app, [*create, *words]).stdout)
        server.keys[name], server.keys[f"{name} id"] = made["key"], made["id"]
    headers = {"Authorization": f"Bearer {server.keys['other']}"}  # it looks for new keys once a second
    with plain_client(server.url, headers=headers) as other:
        wait_for(lambda: other.get("/v1/studies").status_code == 200, "the key")
    with Client(server.url, server.keys["admin"], timeout=20) as client:
        space = {"cache_gb": Float(1, 64, log=True), "codec": Categorical([f"c{i}" for i in range(400)])}
        metrics = {"rps": "max", "mb": Metric("min", max=9000.0)}
        for name in ("checkout", "other", "third"):
            study = client.create(name, space, metrics, ["qps"], DEFAULT)
        study = client.study("checkout")
        for step in range(30):
            s = study.ask({"qps": 900.0 if step % 10 < 5 else 100.0})
            if step == 7:
                study.tell_failed(s.id, "out of memory")
            else:
                study.tell(s.id, {"rps": 100.0 - abs(s.params["cache_gb"] - 30.0), "mb": 90.0 * s.params["cache_gb"]})
        yield server
    server.kill()


@pytest.fixture(scope="module")
def admin(service, tmp_path_factory):
    errors = tmp_path_factory.mktemp("mcp-errors") / "stderr"
    with errors.open("w") as file, agent(by_process(service.url, service.keys["admin"], (), file)) as found:
        yield found
    said = errors.read_text()
    assert said.count("\n") == 1, said  # the line that says what it serves, and no traceback
    assert service.keys["admin"] not in said


@pytest.fixture(scope="module")
def reader(service):
    with agent(in_memory(service.url, service.keys["reader"])) as found:
        yield found


@pytest.fixture
def study(service):
    with Client(service.url, service.keys["admin"], timeout=20) as client:
        yield client.study("checkout")


def test_old_and_new_versions_of_the_protocol_are_spoken(admin, reader):
    assert (admin.session.protocol_version, reader.session.protocol_version) == ("2025-11-25", "2026-07-28")


def test_tools_say_what_they_take_and_change(admin):
    tools = {tool.name: tool for tool in admin.list_tools().tools}
    assert list(tools) == READING + CHANGING
    for name, tool in tools.items():
        assert len(tool.description) > 30
        assert tool.input_schema["additionalProperties"] is False
        hints = tool.annotations
        assert hints.read_only_hint == (name in READING)
        assert not hints.destructive_hint
        assert hints.idempotent_hint
        assert not hints.open_world_hint
        assert ("scope admin" in tool.description) == (name in CHANGING)
    assert tools["approve"].input_schema["required"] == ["study", "waiting"]
    assert tools["what_if"].input_schema["properties"]["study"]["type"] == "string"


def test_studies_come_in_pages(admin):
    first = admin.ok("list_studies", limit=2)
    assert [row["name"] for row in first["studies"]] == ["checkout", "other"]
    assert (first["total"], first["next_offset"]) == (3, 2)
    last = admin.ok("list_studies", limit=2, offset=2)
    assert [row["name"] for row in last["studies"]] == ["third"]
    assert last["next_offset"] is None
    assert admin.ok("list_studies", find="OTH")["total"] == 1


def test_a_study_is_shown_whole_and_bounded(admin, study):
    shown = admin.ok("show_study", study="checkout")
    view = study.view()
    for name in ("asks", "tells", "failures", "learned", "metrics", "context", "default", "alerts", "health"):
        assert shown[name] == view[name], name
    assert shown["space"]["cache_gb"] == view["space"]["cache_gb"]
    assert len(shown["space"]["codec"]["choices"]) == 50
    assert shown["space"]["codec"]["more_choices"] == 350
    assert shown["budget_words"].startswith("Exploring may cost 2.0% more")
    assert len(shown["events"]) <= 20
    assert {"at", "step", "kind"} <= set(shown["events"][0])
    assert shown["last_event_at"].endswith("Z")


def test_a_suggestion_is_explained_in_the_metrics_own_sign(admin, study):
    newest = admin.ok("list_suggestions", study="checkout", limit=3)["suggestions"]
    assert [one["id"] for one in newest] == ["s29", "s28", "s27"]
    told = admin.ok("explain", study="checkout", suggestion="s29")
    known = study.explain("s29")
    assert told["words"] == str(known)
    assert told["metrics"] == newest[0]["metrics"]
    assert told["better"] is None or 0.0 <= told["better"] <= 1.0
    assert told["expected"] is None or told["expected"] == pytest.approx(-known.predicted, rel=1e-5)
    failed = admin.ok("explain", study="checkout", suggestion="s7")
    assert (failed["status"], failed["failure"], failed["metrics"]) == ("failed", "out of memory", None)


def test_what_if_and_recommend_give_what_the_study_says_and_change_nothing(admin, study):
    before, wanted = study.view(), study.what_if(BUSY, {"cache_gb": 20.0})
    found = admin.ok("what_if", study="checkout", context=BUSY, params={"cache_gb": 20.0})
    assert found["words"] == str(wanted)
    assert found["given"]["params"] == {"cache_gb": 20.0, "codec": "c0"}
    assert found["given"]["metrics"]["rps"]["mean"] == pytest.approx(wanted.given.metrics["rps"].mean, rel=1e-5)
    assert found["given"]["margins"]["mb"]["limit"] == 9000.0
    best = admin.ok("recommend", study="checkout", context=BUSY)
    assert best["params"] == study.recommend(BUSY) == wanted.recommended.params
    assert best["is_default"] == (best["params"] == DEFAULT)
    assert admin.ok("what_if", study="checkout", context=[900.0])["given"]["params"] == best["params"]
    assert study.view() == before


def test_freezing_changes_what_an_ask_gets_and_says_who_did_it(admin, service):
    with Client(service.url, service.keys["admin"], timeout=20) as client:
        third = client.study("third")
        assert admin.ok("back_to_default", study="third")["serves"] == "default"
        assert third.ask(BUSY).params == DEFAULT
        state = admin.ok("freeze", study="third")
        assert (state["serves"], state["frozen"]) == ("recommendation", True)
        assert state["switched"]["by"] == service.keys["admin id"]
        assert admin.ok("freeze", study="third") == state
        assert admin.ok("unfreeze", study="third")["serves"] == "suggestions"
        assert third.view()["frozen"] is False


def test_what_waits_for_a_person_is_shown_and_decided(admin, service):
    with Client(service.url, service.keys["admin"], timeout=20) as client:
        study = client.create("careful", {"n": Int(1, 64)}, {"ms": "min"}, None, {"n": 8}, approve_s=3600.0)
        for _ in range(4):
            study.tell(study.ask().id, {"ms": 10.0})
        (one,) = admin.ok("list_waiting", study="careful")["waiting"]
        assert one["changes"] == {"n": [8, one["params"]["n"]]}
        assert one["runs"] == {"n": 8}
        assert one["words"].startswith("Runs n=")
        done = admin.ok("refuse", study="careful", waiting=one["id"], hours=2.0)
        assert done == {"study": "careful", "waiting": one["id"], "status": "refused"}
        study.tell(study.ask().id, {"ms": 10.0})
        (other,) = admin.ok("list_waiting", study="careful")["waiting"]
        assert admin.ok("show_study", study="careful")["waiting"] == 1
        assert admin.ok("approve", study="careful", waiting=other["id"])["status"] == "approved"
        assert study.ask().params == other["params"]
        study.delete()


@pytest.mark.parametrize(
    ("tool", "arguments", "said"),
    [
        ("show_study", {"study": "nope"}, "no study 'nope'; list_studies shows them."),
        ("freeze", {"study": "nope"}, "no study 'nope'; list_studies shows them."),
        ("freeze", {"study": "third/export"}, "no study 'third/export'; list_studies shows them."),
        ("show_study", {}, "the argument study is missing."),
        ("show_study", {"study": 3}, "study: it must be a valid string; got 3."),
        ("show_study", {"study": "checkout", "name": "x"}, "there is no argument name; there are study."),
        ("show_study", {"study": "x" * 65}, "study: String should have at most 64 characters; got 'xxx"),
        ("list_studies", {"limit": 101}, "limit: it must be less than or equal to 100; got 101."),
        (
            "list_studies",
            {"sort": "age"},
            "sort: it must be 'name', 'recent', 'alerts', 'gain' or 'learned'; got 'age'.",
        ),
        ("explain", {"study": "checkout", "suggestion": "s999"}, "no suggestion 's999' was handed out in this study"),
        ("explain", {"study": "checkout", "suggestion": "../x"}, "no suggestion '../x' was handed out in this study"),
        ("recommend", {"study": "checkout", "context": {"qps": [1]}}, "context.qps: it must be a valid number or "),
        (
            "recommend",
            {"study": "checkout", "context": {"qps": "x"}},
            "context['qps'] must be a finite number, got 'x'.",
        ),
        ("recommend", {"study": "checkout", "context": {"load": 1}}, "context "),
        ("recommend", {"study": "checkout"}, "context "),
        ("what_if", {"study": "checkout", "context": BUSY, "params": {"codec": "zip"}}, "params['codec']: "),
        ("what_if", {"study": "checkout", "context": BUSY, "params": {"gb": 1}}, "params "),
    ],
)
def test_bad_input_is_a_tool_error_with_a_plain_sentence(admin, tool, arguments, said):
    assert admin.error(tool, **arguments).startswith(said)


def test_an_unknown_tool_is_a_protocol_error(reader):
    with pytest.raises(mcp.MCPError, match="no tool 'delete_everything' here") as caught:
        reader.call_tool("delete_everything", {})
    assert caught.value.code == -32602
    assert reader.ok("list_studies")["total"] == 3


def test_the_rights_are_those_of_the_key(reader, service):
    assert reader.ok("show_study", study="checkout")["serves"] == "suggestions"
    for tool in ("freeze", "back_to_default"):
        said = reader.error(tool, study="third")
        assert said.startswith(f"{tool} needs a key with the right 'admin' for this")
        assert "this key may not admin study 'third'" in said
    with agent(in_memory(service.url, service.keys["other"])) as bound:
        assert [row["name"] for row in bound.ok("list_studies")["studies"]] == ["other"]
        assert "'read'" in bound.error("show_study", study="checkout")
        assert bound.ok("unfreeze", study="other")["frozen"] is False
    for key in (None, "rasp_00000000_" + "0" * 48):
        with agent(in_memory(service.url, key)) as stranger:
            assert "this needs a key" in stranger.error("list_studies")
            assert "'admin'" in stranger.error("freeze", study="third")


def test_read_only_offers_no_tool_that_changes(service):
    with agent(in_memory(service.url, service.keys["admin"], read_only=True)) as careful:
        assert [tool.name for tool in careful.list_tools().tools] == READING
        with pytest.raises(mcp.MCPError, match="no tool 'freeze' here"):
            careful.call_tool("freeze", {"study": "third"})


def test_long_contexts_and_reasons_are_cut(admin, service):
    with Client(service.url, service.keys["admin"], timeout=20) as client:
        wide = client.create("wide", {"x": Float(0, 1)}, {"ms": "min"}, 200, {"x": 0.5})
        wide.tell_failed(wide.ask([1.0] * 200).id, "no " * 600)
        shown = admin.ok("list_suggestions", study="wide")["suggestions"][0]
        assert shown["context"] == [1.0] * 64 + ["... 136 more"]
        assert len(shown["failure"]) == 303
        assert admin.ok("explain", study="wide", suggestion="s0")["failure"] == shown["failure"]
        wide.delete()


def test_a_study_of_many_long_choices_is_shown_all_the_same(admin, service):
    with Client(service.url, service.keys["admin"], timeout=20) as client:
        space = {f"k{i:02}": Categorical([f"{j:03}" + "z" * 650 for j in range(20)]) for i in range(64)}
        large = client.create("large", space, {"ms": "min"}, None)
        large.ask()
        shown = admin.ok("show_study", study="large")
        assert len(json.dumps(shown)) < 200_000
        assert len(shown["space"]["k00"]["choices"]) + shown["space"]["k00"]["more_choices"] == 20
        assert len(shown["default"]["k63"]) == 303
        assert len(admin.ok("explain", study="large", suggestion="s0")["params"]["k00"]) == 303
        told = admin.ok("what_if", study="large")
        assert len(json.dumps(told)) < 80_000
        assert len(told["words"]) == 8_003
        large.delete()


def test_only_protocol_on_stdout_whatever_comes_in(service):
    """Lines that are no JSON, or no request; a NaN; then the end of the input."""
    call = '{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"%s","arguments":%s}}'
    hello = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "raw", "version": "1"}}
    lines = [
        json.dumps({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello}),
        '{"jsonrpc":"2.0","method":"notifications/initialized"}',
        "not json",
        '{"jsonrpc":"2.0","id":',
        "[]",
        call % (2, "recommend", '{"study":"checkout","context":{"qps":NaN}}'),
        call % (3, "what_if", '{"study":"checkout","context":{"qps":1.0},"params":{"cache_gb":Infinity}}'),
        call % (4, "recommend", '{"study":"checkout","context":{"qps":"\\ud800\\u0000"}}'),
        call % (5, "list_studies", "{}"),
    ]
    words = [sys.executable, "-W", "error", "-m", "rasp_tuner", "mcp", "--url", service.url]
    env = {**os.environ, "RASP_KEY": service.keys["reader"]}
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    process = subprocess.Popen(words, env=env, text=True, **pipes)
    process.stdin.write("\n".join(lines) + "\n")
    process.stdin.flush()
    answers = {}
    while 5 not in answers:
        one = json.loads(process.stdout.readline())
        assert one["jsonrpc"] == "2.0"
        answers[one.get("id")] = one
    process.send_signal(signal.SIGINT)  # although its input is still open
    rest, said = process.communicate(timeout=20)
    assert rest == ""
    assert "Traceback" not in said
    assert answers[1]["result"]["serverInfo"]["name"] == "rasp-tuner"
    for id, field in ((2, "context.qps"), (3, "params.cache_gb")):
        result = answers[id]["result"]
        assert result["isError"] is True
        assert field in result["content"][0]["text"]
    assert answers.get(4) is None or "error" in answers[4] or answers[4]["result"]["isError"]
    assert answers[5]["result"]["structuredContent"]["total"] == 3


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 10**20) | st.floats() | st.text(max_size=5) | st.just("checkout"),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5) | st.just("qps"), inner, max_size=3)
    ),
    max_leaves=6,
)
NAMES = ["study", "context", "params", "suggestion", "limit", "offset", "find", "sort", "waiting", "hours"]
ARGUMENTS = st.dictionaries(st.sampled_from(NAMES), JSON, max_size=3)


@settings(max_examples=40)
@given(tool=st.sampled_from(READING + CHANGING), extra=ARGUMENTS, known=st.booleans())
def test_whatever_the_arguments_the_answer_is_typed(reader, tool, extra, known):
    arguments = {"study": "checkout", **extra} if known and tool != "list_studies" else extra
    result = reader.call_tool(tool, arguments)
    text = result.content[0].text
    assert "cannot read" not in text
    assert result.is_error or tool in READING
    assert not result.is_error or (len(text) < 1_500 and text.endswith("."))


def test_the_ten_lines_in_the_docs_run(service, capsys, monkeypatch):
    [snippet] = re.findall(r"^```python\n(.*?)^```", (ROOT / "docs" / "MCP.md").read_text(), re.MULTILINE | re.DOTALL)
    words = f'command={sys.executable!r}, args=["-m", "rasp_tuner", "mcp", "--url", {service.url!r}]'
    snippet, replaced = re.subn(r'command="rasp", args=\[.*?\]', lambda _: words, snippet)
    assert replaced == 1
    monkeypatch.setenv("RASP_KEY", service.keys["reader"])
    exec(compile(snippet, "docs/MCP.md", "exec"), {"__name__": "__main__"})  # noqa: S102
    said = capsys.readouterr().out
    assert "These settings (cache_gb=20 codec=c0): rps " in said


def test_what_was_measured_is_told(service, admin):
    with Client(service.url, service.keys["admin"], timeout=20) as client:
        study = client.create("measured", {"x": Float(0, 1)}, {"ms": "min"}, default={"x": 0.9})
        assert "Not measured" in admin.ok("show_study", study="measured")["savings_words"]
        for _ in range(30):
            s = study.ask()
            study.tell(s.id, {"ms": 1.0 + s.params["x"]}, control={"ms": 1.9})
        shown = admin.ok("show_study", study="measured")
        assert shown["savings_words"] == shown["versus_default"]["words"]
        assert "measured against 29 controls" in shown["savings_words"]
        study.delete()
