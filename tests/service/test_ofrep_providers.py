"""OpenFeature's own providers, unmodified, against `rasp serve` in a process of its own."""

import hashlib
import json
import math
import re
import shutil
import subprocess
from importlib.metadata import version
from pathlib import Path

import pytest
from openfeature import api
from openfeature.contrib.provider.ofrep import OFREPProvider
from openfeature.evaluation_context import EvaluationContext
from openfeature.exception import ErrorCode
from openfeature.flag_evaluation import Reason
from serving import Process

from rasp_tuner import Float, Tuner
from rasp_tuner.client import Client

ROOT = Path(__file__).parents[2]
KNOBS = {"cache_gb": Float(1, 64, log=True), "timeout_s": Float(0.1, 10, log=True)}
TODAY = {"cache_gb": 8.0, "timeout_s": 1.0}
INSTALL_S = 120


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    process = Process(tmp_path_factory.mktemp("ofrep") / "data", "--flag-lease", "600")
    yield process
    process.stop()
    process.process.stderr.close()


@pytest.fixture
def served(server):
    """A server with the README's study, "cache", which knows nothing yet."""
    with Client(server.url, timeout=20) as client:
        study = client.create("cache", KNOBS, {"p99_ms": "min"}, ["qps"], TODAY)
        yield server
        study.delete()
    api.clear_providers()


def latency(params, qps):
    return 20 + 10 * math.log(params["cache_gb"] / (40 if qps == 900 else 4)) ** 2


def load(hour):
    return 900 if hour % 24 >= 12 else 100


def native(hours):
    """What the README's loop suggests."""
    tuner, seen = Tuner(KNOBS, {"p99_ms": "min"}, ["qps"], TODAY), []
    for hour in range(hours):
        suggestion = tuner.ask({"qps": load(hour)})
        seen.append(suggestion.params)
        tuner.tell(suggestion.id, {"p99_ms": latency(suggestion.params, load(hour))})
    return seen


def recommended(url):
    with Client(url, timeout=20) as client:
        study = client.study("cache")
        return [round(study.recommend({"qps": qps})["cache_gb"]) for qps in (900, 100)]


def host(name="host-7", **attributes):
    return EvaluationContext(name, attributes)


def test_the_block_in_the_docs_learns_the_readmes_example_as_natively(server, capsys):
    page = (ROOT / "docs" / "OPENFEATURE.md").read_text()
    blocks = re.findall(r"^```python\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    [block] = [block for block in blocks if "OFREPProvider" in block]
    exec(compile(block.replace("http://127.0.0.1:8321", server.url), "docs/OPENFEATURE.md", "exec"), {})  # noqa: S102
    assert capsys.readouterr().out.split() == ["40", "4"]
    api.clear_providers()
    with Client(server.url, timeout=20) as client:
        study = client.study("cache")
        assert [made["params"] for made in reversed(study.suggestions(200))] == native(96)
        study.delete()


def test_the_page_names_the_versions_that_are_tested():
    page = (ROOT / "docs" / "OPENFEATURE.md").read_text()
    for package in ("openfeature-sdk", "openfeature-provider-ofrep"):
        assert f"{package} {version(package)}" in page
    pinned = json.loads((ROOT / "examples" / "openfeature" / "package.json").read_text())["dependencies"]
    for package in ("@openfeature/server-sdk", "@openfeature/ofrep-provider"):
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
    folder = npm_packages()
    words = ["node", str(folder / "ofrep.mjs"), served.url]
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


def npm_packages():
    """A folder under out/ with the example and its packages, or a skip that says why there are none."""
    if shutil.which("npm") is None or shutil.which("node") is None:
        pytest.skip("no npm: the provider for JavaScript is not tested here")
    example = ROOT / "examples" / "openfeature"
    pinned = example / "package-lock.json"
    folder = ROOT / "out" / f"npm-openfeature-{hashlib.sha256(pinned.read_bytes()).hexdigest()[:12]}"
    folder.mkdir(parents=True, exist_ok=True)
    for file in ("package.json", "package-lock.json", "ofrep.mjs"):
        shutil.copy(example / file, folder)
    if not (folder / "node_modules" / ".package-lock.json").exists():
        words = ["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--prefix", str(folder)]
        try:
            done = subprocess.run(words, capture_output=True, text=True, timeout=INSTALL_S, check=False)
        except subprocess.TimeoutExpired:
            pytest.skip(f"npm did not install the provider for JavaScript in {INSTALL_S} s")
        if done.returncode != 0:
            pytest.skip(f"npm could not install the provider for JavaScript: {done.stderr[-200:]}")
    return folder
