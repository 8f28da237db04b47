"""Where parameters go: files, hooks, commands. What fails is said, and counts for nothing."""

import json
import os
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from rasp_tuner import Categorical, Float, Int
from rasp_tuner.errors import InvalidSpace, SinkFailed
from rasp_tuner.watch import watch
from rasp_tuner.watch.sinks import parse_sink

KNOBS = {"workers": Int(1, 64), "ratio": Float(0, 1), "codec": Categorical(["lz4", 'it\'s "odd"', "a b"])}
PARAMS = {"workers": 8, "ratio": 0.25, "codec": 'it\'s "odd"'}


def sink_of(folder, **spec):
    return parse_sink("toy", "s", spec, KNOBS, folder)


def test_a_file_of_json(tmp_path):
    sink_of(tmp_path, file="settings.json").deliver(PARAMS)
    assert json.loads((tmp_path / "settings.json").read_text()) == PARAMS
    assert [path.name for path in tmp_path.iterdir()] == ["settings.json"]  # no temporary file is left


def test_a_file_of_variables_is_read_by_a_shell(tmp_path):
    sink_of(tmp_path, file="app.env", format="env", prefix="APP_").deliver(PARAMS)
    script = f'. {tmp_path}/app.env && printf "%s|" "$APP_WORKERS" "$APP_RATIO" "$APP_CODEC"'
    assert subprocess.check_output(["/bin/sh", "-c", script], text=True) == '8|0.25|it\'s "odd"|'


def test_a_file_from_a_template_keeps_its_mode_and_other_braces(tmp_path):
    (tmp_path / "app.template").write_text("pool { size {workers}; keep {{workers}}; }\ncodec {codec}\n")
    target = tmp_path / "app.conf"
    target.write_text("old")
    target.chmod(0o600)
    sink = sink_of(tmp_path, file="app.conf", template="app.template")
    sink.deliver(PARAMS)
    assert target.read_text() == 'pool { size 8; keep {workers}; }\ncodec it\'s "odd"\n'
    assert target.stat().st_mode & 0o777 == 0o600
    assert sink.knobs == ("workers", "codec")


def test_readers_never_see_half_a_file(tmp_path):
    sink, path, seen, over = sink_of(tmp_path, file="s.json"), tmp_path / "s.json", [], threading.Event()
    sink.deliver(PARAMS)

    def read():
        while not over.is_set():
            seen.append(json.loads(path.read_text())["workers"])

    reader = threading.Thread(target=read)
    reader.start()
    for workers in range(1, 30):
        sink.deliver({**PARAMS, "workers": workers})
    over.set()
    reader.join()
    assert seen  # and all of it was JSON


class Hook:
    """A server that answers with the given statuses in turn, the last one for ever."""

    def __init__(self, *statuses):
        self.statuses, self.bodies, self.heads, self.paths = list(statuses), [], [], []
        hook = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self):
                hook.bodies.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
                hook.paths.append(self.path)
                hook.heads.append((self.command, dict(self.headers)))
                status = hook.statuses.pop(0) if len(hook.statuses) > 1 else hook.statuses[0]
                if status == 0:
                    time.sleep(0.5)
                    return
                self.send_response(status)
                self.send_header("Location", "/elsewhere")
                self.end_headers()
                self.wfile.write(b"said so")

            do_PUT = do_POST

            def log_message(self, *_):
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/settings"
        threading.Thread(target=self.server.serve_forever, args=(0.02,), daemon=True).start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.server.shutdown()
        self.server.server_close()


def test_a_hook_gets_json_and_a_token(tmp_path, monkeypatch):
    monkeypatch.setenv("HOOK_TOKEN", "secret")
    with Hook(204) as hook:
        sink = sink_of(tmp_path, url=hook.url, method="PUT", **{"token_env": "HOOK_TOKEN"})
        sink.deliver(PARAMS)
        assert "secret" not in sink.shown(PARAMS)
    assert hook.bodies == [{"study": "toy", "params": PARAMS}]
    [(method, headers)] = hook.heads
    assert (method, headers["Authorization"], headers["Content-Type"]) == ("PUT", "Bearer secret", "application/json")


def test_a_hook_is_tried_again_where_that_may_help(tmp_path):
    with Hook(503, 0, 200) as hook:
        sink_of(tmp_path, url=hook.url, timeout=0.2).deliver(PARAMS)
    assert len(hook.bodies) == 3


@pytest.mark.parametrize(("status", "tries"), [(400, 1), (302, 1), (500, 2)])
def test_a_hook_that_refuses(tmp_path, status, tries):
    with (
        Hook(status) as hook,
        pytest.raises(SinkFailed, match=rf"sink 's': POST http.* is answered {status} \(said so"),
    ):
        sink_of(tmp_path, url=hook.url, retries=1).deliver(PARAMS)
    assert len(hook.bodies) == tries


def test_a_hook_is_called_at_its_very_address(tmp_path):
    """A slash at its end counts: without it some servers answer with a redirect."""
    with Hook(200) as hook:
        sink_of(tmp_path, url=f"{hook.url}/").deliver(PARAMS)
    assert hook.paths == ["/settings/"]


def test_a_hook_that_is_not_there(tmp_path):
    with Hook(200) as hook:
        url = hook.url
    with pytest.raises(SinkFailed, match=r"has no answer: .*refused in 2 tries"):
        sink_of(tmp_path, url=url, retries=1, timeout=0.5).deliver(PARAMS)


def test_a_command_gets_words_and_variables_and_no_shell_reads_them(tmp_path):
    code = "import os, sys; open('said', 'w').write(os.environ['CODEC'] + '|' + '|'.join(sys.argv[1:]))"
    words = [sys.executable, "-c", code, "-w", "{workers}", "; rm -r {ratio}"]
    sink_of(tmp_path, command=words, env={"CODEC": "{codec}"}).deliver(PARAMS)
    assert (tmp_path / "said").read_text() == 'it\'s "odd"|-w|8|; rm -r 0.25'


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["sh", "-c", "echo no such pool; exit 3"], "exits with 3: no such pool"),
        (["sh", "-c", "sleep 60"], r"took longer than 0\.2 s and was ended"),
        (["/nowhere/app"], "cannot start /nowhere/app"),
    ],
)
def test_a_command_that_fails(tmp_path, words, said):
    with pytest.raises(SinkFailed, match=f"sink 's': .*{said}"):
        sink_of(tmp_path, command=words, timeout=0.2).deliver(PARAMS)


def test_a_command_that_says_much_does_not_fill_the_disk(tmp_path, monkeypatch):
    kept = []
    truncate = os.ftruncate
    monkeypatch.setattr(os, "ftruncate", lambda file, size: (kept.append(file), truncate(file, size)))
    words = ["sh", "-c", "head -c 30000000 /dev/zero; sleep 0.2; echo the end of {workers}; exit 3"]
    with pytest.raises(SinkFailed, match=r"exits with 3: the end of 8$"):
        sink_of(tmp_path, command=words).deliver(PARAMS)
    assert kept


def test_a_command_may_leave_a_daemon_behind(tmp_path):
    """Waiting for it would be a timeout, which is an error."""
    sink_of(tmp_path, command=["sh", "-c", "sleep 30 & echo started"], timeout=20).deliver(PARAMS)


def test_a_sink_that_fails_is_no_step_and_the_parameters_stay(world, caplog):
    sinks = {
        "settings": {"file": "settings.json"},
        "reload": {"command": ["sh", "-c", "test ! -e broken || { echo it is broken; exit 1; }"]},
    }
    study = world.study(sinks=sinks, holdout=0)
    watch(study, steps=3, folder=world.out)
    known, before, seen = world.entries(), world.x, []
    world.prometheus.answers["load"] = lambda: seen.append(world.x) or 1.0  # asked when a step begins
    (world.folder / "broken").touch()
    assert watch(study, steps=3, folder=world.out).measured == 0
    assert world.entries() == known
    assert [*seen, world.x] == [before] * 4  # the first sink got back what it had
    assert "step not counted, nothing learned: sink 'reload': " in caplog.text
    assert f"exits with 1: it is broken. The parameters stay at x={before}" in caplog.text
    (world.folder / "broken").unlink()
    assert watch(study, steps=1, folder=world.out).measured == 1


def test_bad_parameters_do_not_stay_while_others_are_refused(world):
    """A service that from now on takes the default alone, while something bad is in place."""
    refuse = "test ! -e strict || test {x} = 15"
    study = world.study(sinks={"check": {"command": ["sh", "-c", refuse]}, "s": {"file": "settings.json"}}, holdout=0)
    asked = []

    def loss():
        asked.append(world.x)
        if world.x != 15:
            (world.folder / "strict").touch()
        return 1.0 if world.x == 15 else 99.0

    world.prometheus.answers["loss"] = loss
    seen = []
    world.prometheus.answers["load"] = lambda: seen.append(world.x) or 1.0
    watch(study, steps=8, folder=world.out)
    bad = next(x for x in asked if x != 15)
    assert bad in seen
    assert seen[-1] == 15


def test_where_putting_back_fails_too_nobody_knows_what_runs(world, caplog):
    sinks = {
        "first": {"command": ["sh", "-c", "test ! -e stuck && echo {x} > x"]},
        "second": {"command": ["sh", "-c", "test ! -e broken || { touch stuck; exit 1; }"]},
    }
    world.prometheus.answers["loss"] = 3.0
    study = world.study(sinks=sinks, holdout=0)
    watch(study, steps=1, folder=world.out)
    (world.folder / "broken").touch()
    assert watch(study, steps=1, folder=world.out).measured == 0
    assert "failed, too: sink 'first': " in caplog.text
    assert "What runs now is not known" in caplog.text
    assert world.status()["parameters"] is None
    assert watch(study, mode="shadow", steps=1, folder=world.out).measured == 0  # it cannot say what it would watch
    assert "nobody knows which parameters run" in caplog.text
    for name in ("broken", "stuck"):
        (world.folder / name).unlink()
    assert watch(study, steps=1, folder=world.out).measured == 1


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_that_may_not_be_written_to(tmp_path):
    tmp_path.chmod(0o500)
    sink = sink_of(tmp_path, file="s.json")
    with pytest.raises(SinkFailed, match="may it be written to"):
        sink.deliver(PARAMS)
    assert sink.problems()


def test_a_folder_that_is_not_there(tmp_path):
    sink = sink_of(tmp_path, file="nowhere/s.json")
    with pytest.raises(SinkFailed, match="is the folder there"):
        sink.deliver(PARAMS)
    assert "create it" in sink.problems()[0]


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ({}, "must have one of file, url, command, got nothing"),
        ({"file": "a", "url": "http://b"}, "must have one of"),
        ({"file": 5}, "file must be a text"),
        ({"file": "a", "format": "xml"}, "format must be one of json, env, template"),
        ({"file": "a", "template": "nowhere"}, "template cannot be read"),
        ({"file": "a", "prefix": "A_"}, "goes with format env"),
        ({"file": "a", "colour": "red"}, "has no field 'colour'; it takes file, template, format, prefix, modes"),
        ({"file": "a", "modes": ["shadow"]}, "modes must be of canary, live"),
        ({"file": "a", "modes": 5}, "modes must be of canary, live"),
        ({"url": "ftp://host"}, "url must be an address"),
        ({"url": "http://user:pass@host"}, "must not hold a password"),
        ({"url": "http://host", "method": "GET"}, "method must be one of POST, PUT, PATCH"),
        ({"url": "http://host", "headers": {"a": 1}}, "headers must be a table of texts"),
        ({"url": "http://host", "retries": -1}, "retries must be a whole number"),
        ({"command": []}, "command must be words"),
        ({"command": ["app", "{nothing}"]}, "there is no such knob"),
        ({"command": ["app"], "env": {"A": 1}}, "env must be a table of texts"),
    ],
)
def test_a_sink_that_makes_no_sense(tmp_path, spec, words):
    with pytest.raises(InvalidSpace, match=words):
        sink_of(tmp_path, **spec)
