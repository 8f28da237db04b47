"""`rasp watch` against a real Prometheus that scrapes a real process: the walk of docs/WATCH.md, sped up."""

import json
import re
import shutil
import socket
import subprocess
import sys
import urllib.request
from dataclasses import replace
from pathlib import Path

import pytest
from watch_running import rasp, wait_for

from rasp_tuner import Int
from rasp_tuner.errors import NoData, QueryFailed
from rasp_tuner.watch import build_study, read_study, watch
from rasp_tuner.watch.prometheus import Prometheus
from rasp_tuner.watch.sinks import parse_sink

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "watch"
PAGE = ROOT / "docs" / "WATCH.md"

pytestmark = pytest.mark.skipif(shutil.which("prometheus") is None, reason="no prometheus: install Debian's package")


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


class Running:
    """The example's toy service and a Prometheus, each a process of its own, and a folder with the example."""

    def __init__(self, folder):
        self.folder = folder
        shutil.copytree(EXAMPLE, folder, dirs_exist_ok=True, ignore=shutil.ignore_patterns("rasp-watch", "data", "__*"))
        toy, own = free_port(), free_port()
        self.url = f"http://127.0.0.1:{own}"
        words = [sys.executable, "toy_service.py", "--port", str(toy), "--period", "3"]
        self.toy = subprocess.Popen(words, cwd=folder, stdout=subprocess.DEVNULL)
        config = (folder / "prometheus.yml").read_text().replace("8400", str(toy)).replace("200ms", "50ms")
        config += f'      - targets: ["127.0.0.1:{self._serve_old_samples()}"]\n'
        (folder / "prometheus.yml").write_text(config)
        study = (folder / "study.toml").read_text()  # situations are too short here to leave out their last step
        (folder / "study.toml").write_text(study.replace('on_change = "skip"', 'on_change = "learn"'))
        self.prometheus = subprocess.Popen(
            [
                shutil.which("prometheus"),
                "--config.file=prometheus.yml",
                "--storage.tsdb.path=data",
                f"--web.listen-address=127.0.0.1:{own}",
            ],
            cwd=folder,
            stderr=subprocess.DEVNULL,
        )
        wait_for(self.is_scraped)

    def _serve_old_samples(self):
        """A second target, whose samples carry a time of their own: a minute ago."""
        port = free_port()
        code = (
            "import http.server, sys, time\n"
            "class H(http.server.BaseHTTPRequestHandler):\n"
            "    def do_GET(self):\n"
            "        self.send_response(200); self.end_headers()\n"
            "        self.wfile.write(f'old_gauge 5 {STAMP}\\n'.encode())\n"
            "    def log_message(self, *_): pass\n"
            "STAMP = int(time.time() * 1000) - 60_000\n"
            "http.server.HTTPServer(('127.0.0.1', int(sys.argv[1])), H).serve_forever()\n"
        )
        self.old = subprocess.Popen([sys.executable, "-c", code, str(port)])
        return port

    def is_scraped(self):
        try:
            return len(Prometheus(self.url).series("rate(toy_requests_total[250ms]) > 0 and on() old_gauge")) == 1
        except (NoData, QueryFailed):
            return False

    def speed_up(self):
        """The study of the example, with shorter times and nothing else changed."""
        path = self.folder / "study.toml"
        faster = path.read_text().replace('"0.5s"', '"0.15s"').replace('"1s"', '"0.3s"')
        path.write_text(faster.replace("min_samples = 3", "min_samples = 2"))

    def close(self):
        for process in (self.toy, self.old, self.prometheus):
            process.kill()
            process.wait()


@pytest.fixture(scope="module")
def running(tmp_path_factory):
    found = Running(tmp_path_factory.mktemp("toy"))
    found.speed_up()
    yield found
    found.close()


@pytest.mark.slow
def test_from_shadow_to_live(running):
    """The commands on the page, each with a quarter of its steps; they take under two minutes there."""
    commands = [line.split()[2:] for line in re.findall(r"^rasp watch study.*$", PAGE.read_text(), re.MULTILINE)]
    assert commands[0] == ["study.toml", "--mode", "live", "--check"]
    check, shadow, canary, live = (
        [*(str(int(word) // 4) if word.isdigit() else word for word in words), "--prometheus", running.url]
        for words in commands
    )
    wait_for(lambda: rasp(*check, cwd=running.folder, code=None).exit_code == 0)  # a busy machine may miss scrapes
    checked = rasp(*check, cwd=running.folder, code=None)
    assert re.search(r"metric    latency_ms: [0-9.]+\n", checked.stdout)
    journal = running.folder / "rasp-watch" / "toy" / "journal.jsonl"
    status = running.folder / "rasp-watch" / "toy" / "status.json"

    def steps():
        entries = [json.loads(line) for line in journal.read_text().splitlines()]
        return [entry for entry in entries if entry["kind"] == "step"]

    rasp(*shadow, cwd=running.folder)
    assert not (running.folder / "settings.json").exists()
    assert json.loads(status.read_text())["gain"].startswith("cannot tell")
    rasp(*canary, cwd=running.folder)
    rasp(*live, cwd=running.folder)
    found = steps()
    modes = [entry["mode"] for entry in found]
    assert modes == sorted(modes, key=["shadow", "canary", "live"].index)
    counted = [modes.count(mode) for mode in ("shadow", "canary", "live")]  # a busy machine may miss scrapes
    assert all(0.5 * steps <= count <= steps for count, steps in zip(counted, (2, 5, 10), strict=True))
    assert all(15.0 < entry["metrics"]["latency_ms"] < 250.0 for entry in found)
    seen = [entry["metrics"]["memory_mb"] == 30.0 * entry["params"]["workers"] for entry in found]
    assert sum(seen) >= 0.7 * len(seen)  # what was handed over is what ran; a busy machine may delay a scrape
    assert {entry["context"]["load"] for entry in found} == {100.0, 900.0}
    tried = {entry["params"]["workers"] for entry in found}
    assert len(tried) > 3
    left = json.loads((running.folder / "settings.json").read_text())
    assert left == {"workers": 8}


@pytest.mark.slow
def test_a_ruinous_setting_is_ended_inside_its_window(running):
    """Two thousand workers are ten times as slow as the default: a look of a tenth of the window shows it."""
    latency = "sum(rate(toy_latency_seconds_sum[{window}])) / sum(rate(toy_latency_seconds_count[{window}]))"
    fields = {
        "name": "ended",
        "mode": "live",
        "settle": "0.3s",
        "window": "4s",
        "look_every": "0.3s",
        "missing": "wait",
        "wait": "10s",
        "prometheus": {"url": running.url},
        "knobs": {"workers": "cat:8,2000"},
        "default": {"workers": "8"},
        "metrics": {"latency_ms": {"query": f"1000 * {latency}"}},
        "sinks": {"settings": {"file": "ended.json"}, "toy": {"file": "settings.json"}},
    }
    out = running.folder / "ended"
    watch(build_study(fields, running.folder), steps=5, folder=out)
    entries = [json.loads(line) for line in (out / "journal.jsonl").read_text().splitlines()]
    bad = [entry for entry in entries if entry["kind"] == "step" and entry["params"]["workers"] == "2000"]
    assert bad
    assert all(entry["stopped"] < 2.0 for entry in bad)
    assert all(entry["metrics"]["latency_ms"] < 200.0 for entry in bad)  # a whole window of it has 300 and more
    assert json.loads((running.folder / "settings.json").read_text()) == {"workers": "8"}


def test_edges_of_a_real_server(running):
    prometheus = Prometheus(running.url, max_age_s=10.0)
    wait_for(lambda: prometheus.series("old_gauge"))  # a busy machine may miss scrapes
    with pytest.raises(NoData, match="gives no series"):
        prometheus.one("no_such_series")
    with pytest.raises(NoData, match=r"gives 2 series, such as up\{instance=.*sum\(\.\.\.\)"):
        prometheus.one("up")
    with pytest.raises(NoData, match="gives nan"):
        prometheus.one("vector(0) / 0")
    with pytest.raises(QueryFailed, match=r"refuses the query `sum\(`: bad_data: .*parse error"):
        prometheus.one("sum(")
    with pytest.raises(QueryFailed, match="gives a matrix"):
        prometheus.one("toy_load[1m]")
    assert prometheus.one("old_gauge").value == 5.0  # Prometheus itself takes it for new
    with pytest.raises(NoData, match=r"the newest sample is \d\d s old, max_age is 10 s"):
        prometheus.check_age("max(timestamp(old_gauge))")
    assert prometheus.one("scalar(vector(5))").labels == {}
    with pytest.raises(QueryFailed, match="is the address right"):
        Prometheus(f"{running.url}/nowhere").one("up")


def test_a_target_that_dies_and_comes_back(running, tmp_path):
    """Its series end at once; the parameters stay; nothing is learned until it is back."""
    study = read_study(running.folder / "study.toml")
    study = replace(study, prometheus=Prometheus(running.url, max_age_s=5.0), mode="live", wait_s=0.5)
    wait_for(lambda: watch(study, steps=1, folder=tmp_path).measured == 1)  # a busy machine may miss scrapes
    settings = (running.folder / "settings.json").read_text()
    running.toy.kill()
    running.toy.wait()
    wait_for(lambda: not Prometheus(running.url).series("toy_load"))
    assert watch(study, steps=1, folder=tmp_path).measured == 0
    assert (running.folder / "settings.json").read_text() == settings
    assert "gives no series" in json.loads((tmp_path / "status.json").read_text())["problem"]


def test_the_hook_of_the_toy_service(tmp_path):
    port = free_port()
    words = [sys.executable, str(EXAMPLE / "toy_service.py"), "--port", str(port)]
    with subprocess.Popen(words, cwd=tmp_path, stdout=subprocess.DEVNULL) as toy:
        try:
            spec = {"url": f"http://127.0.0.1:{port}/settings", "retries": 6}  # it may still be starting
            sink = parse_sink("toy", "hook", spec, {"workers": Int(1, 64)}, tmp_path)
            sink.deliver({"workers": 33})
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
                assert "toy_workers 33" in answer.read().decode()
        finally:
            toy.kill()


def test_the_study_on_the_page_is_the_example():
    [study] = re.findall(r"^```toml\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)[:1]
    assert study == (EXAMPLE / "study.toml").read_text()
