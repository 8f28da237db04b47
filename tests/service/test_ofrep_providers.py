"""OpenFeature's own providers, unmodified, against `rasp serve` in a process of its own."""

import functools
import json
import re
import subprocess
import threading
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from importlib.metadata import version
from pathlib import Path

import httpx
import npm_packages
import pytest
import readme_example
from openfeature import api
from openfeature.contrib.provider.ofrep import OFREPProvider
from openfeature.evaluation_context import EvaluationContext
from openfeature.exception import ErrorCode
from openfeature.flag_evaluation import Reason
from readme_example import KNOBS, TODAY, recommended
from serving import Process

from rasp_tuner.client import Client

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    process = Process(tmp_path_factory.mktemp("ofrep") / "data", "--flag-lease", "600")
    yield process
    process.stop()


@pytest.fixture
def served(server):
    """A server with the README's study, "cache", which knows nothing yet."""
    with Client(server.url, timeout=20) as client:
        study = client.create("cache", KNOBS, {"p99_ms": "min"}, ["qps"], TODAY)
        yield server
        study.delete()
    api.clear_providers()


def host(name="host-7", **attributes):
    return EvaluationContext(name, attributes)


def test_the_block_in_the_docs_learns_the_readmes_example_as_natively(server, capsys):
    page = (ROOT / "docs" / "OPENFEATURE.md").read_text()
    blocks = re.findall(r"^```python\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    [block] = [block for block in blocks if "OFREPProvider" in block]
    exec(compile(block.replace("http://127.0.0.1:8321", server.url), "docs/OPENFEATURE.md", "exec"), {})  # noqa: S102
    assert capsys.readouterr().out.split() == ["40", "4"]
    api.clear_providers()
    assert readme_example.served(server.url) == readme_example.native(96)
    with Client(server.url, timeout=20) as client:
        client.study("cache").delete()


def test_the_page_names_the_versions_that_are_tested():
    page = (ROOT / "docs" / "OPENFEATURE.md").read_text()
    for package in ("openfeature-sdk", "openfeature-provider-ofrep"):
        assert f"{package} {version(package)}" in page
    for example, packages in {
        "openfeature": ("@openfeature/server-sdk", "@openfeature/ofrep-provider"),
        "openfeature_web": ("@openfeature/web-sdk", "@openfeature/ofrep-web-provider"),
    }.items():
        pinned = json.loads((ROOT / "examples" / example / "package.json").read_text())["dependencies"]
        for package in packages:
            assert f"{package} {pinned[package]}" in page


def test_the_python_provider_gets_typed_knobs_and_typed_errors_and_a_kill_loses_no_lease(served):
    api.set_provider_and_wait(OFREPProvider(served.url))
    flags = api.get_client()
    cache = flags.get_float_details("cache.cache_gb", 0.0, host(qps=900))
    timeout = flags.get_float_details("cache.timeout_s", 0.0, host(qps=900))
    assert (cache.value, timeout.value, cache.variant, timeout.variant) == (8.0, 1.0, "s0", "s0")
    assert (cache.reason, cache.flag_metadata["study"]) == (Reason.DEFAULT, "cache")
    assert cache.flag_metadata["expiresAt"] - cache.flag_metadata["leaseUntil"] == pytest.approx(3600 - 600)
    served.kill()
    dead = flags.get_float_details("cache.cache_gb", 7.5, host(qps=900))
    assert (dead.value, dead.reason, dead.error_code) == (7.5, Reason.ERROR, ErrorCode.GENERAL)
    served.start()
    assert flags.get_float_details("cache.cache_gb", 0.0, host(qps=900)) == cache
    wrong = {
        ErrorCode.FLAG_NOT_FOUND: flags.get_float_details("cash", 7.5, host(qps=900)),
        ErrorCode.TYPE_MISMATCH: flags.get_integer_details("cache.cache_gb", 7, host(qps=900)),
        ErrorCode.INVALID_CONTEXT: flags.get_float_details("cache.cache_gb", 7.5, host("host-8")),
    }
    for code, details in wrong.items():
        assert (details.error_code, details.reason) == (code, Reason.ERROR)
        assert details.value in (7, 7.5)
        assert details.error_message


def test_through_a_provider_from_npm_it_is_learned_too(served):
    words = ["node", str(npm_packages.installed("openfeature") / "ofrep.mjs"), served.url]
    result = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
    assert result.returncode == 0, result.stderr
    assert recommended(served.url) == [40, 4]
    looks = json.loads(result.stdout)
    assert looks.pop("bulk") == {"keys": ["cache", "cache.cache_gb", "cache.timeout_s"], "statuses": [200, 304]}
    whole = looks["object"]
    assert whole["variant"] == looks["number"]["variant"] == looks["again"]["variant"] == "s96"
    assert whole["value"] == {"cache_gb": looks["number"]["value"], "timeout_s": looks["again"]["value"]}
    assert whole["reason"] in ("SPLIT", "TARGETING_MATCH")
    assert whole["flagMetadata"]["study"] == "cache"
    codes = {name: look.get("errorCode") for name, look in looks.items()}
    assert codes == {
        "object": None,
        "number": None,
        "again": None,
        "wrongType": "TYPE_MISMATCH",
        "noFlag": "FLAG_NOT_FOUND",
        "noContext": "INVALID_CONTEXT",
        "noServer": "GENERAL",
    }
    assert [looks[name]["value"] for name in ("wrongType", "noFlag", "noContext", "noServer")] == ["none", 8, 8, 8]


@pytest.fixture
def site():
    """The address of a site of its own, which shows the example for browsers."""

    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, *_):
            pass

    files = functools.partial(Quiet, directory=npm_packages.installed("openfeature_web"))
    with ThreadingHTTPServer(("127.0.0.1", 0), files) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


@pytest.fixture
def open_server(tmp_path, site):
    """A server that lets pages of this site evaluate flags."""
    process = Process(tmp_path / "data", "--allow-origin", site)
    yield process
    process.stop()


def test_in_a_browser_a_page_of_another_site_learns_it_through_the_web_sdk(browser, site, open_server):
    with Client(open_server.url, timeout=20) as client:
        client.create("cache", KNOBS, {"p99_ms": "min"}, ["qps"], TODAY, seed=0)
    page, said = browser.new_page(), []
    page.on("console", lambda line: said.append(line.text))
    page.goto(f"{site}/?server={open_server.url}")
    page.get_by_text("Done: 20 days.").wait_for(timeout=300_000)
    reasons = page.locator("tbody td:last-child").all_inner_texts()
    costs = [float(text) for text in page.locator("tbody td:nth-child(4)").all_inner_texts()]
    page.close()
    assert said == []
    assert readme_example.served(open_server.url) == []  # nothing was asked for: policies decided
    assert recommended(open_server.url) == pytest.approx([40, 4], rel=0.1)
    assert (reasons[0], set(reasons)) == ("DEFAULT", {"DEFAULT", "SPLIT", "TARGETING_MATCH"})
    assert sum(costs[-96:]) / 96 < 22.0 < sum(costs[:24]) / 24


def test_in_a_browser_a_page_of_a_site_that_was_not_named_gets_nothing(browser, site, served):
    page = browser.new_page()
    page.goto(f"{site}/?server={served.url}")
    page.get_by_text("Stopped: ").wait_for(timeout=60_000)
    page.close()
    assert readme_example.served(served.url) == []


def test_a_stop_reaches_the_python_provider_and_a_stopped_run_ends_its_lease(served):
    api.set_provider_and_wait(OFREPProvider(served.url))
    flags, track = api.get_client(), f"{served.url}/ofrep/v1/track"
    for details in ({"value": 100.0}, {"stopped": True}):
        flag = flags.get_object_details("cache", {}, host(qps=900))
        event = {"trackingEventName": "cache", "context": {"targetingKey": "host-7"}, "trackingEventDetails": details}
        if details.get("stopped"):
            stop = flag.flag_metadata["stop"]
            assert 100.0 < stop < 200.0
            details["value"] = stop
        httpx.post(track, json=event).raise_for_status()
    assert flags.get_object_details("cache", {}, host(qps=900)).variant == "s2"
    with Client(served.url, timeout=20) as client:
        assert [one.get("stopped") for one in client.study("cache").suggestions()][:3].count(True) == 1
