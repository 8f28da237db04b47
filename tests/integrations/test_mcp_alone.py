"""`rasp mcp` where no service answers, or nobody reads: it says so, and lives on or ends."""

import functools
import os
import subprocess
import sys
import threading
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from importlib import import_module

import pytest
from mcp_agent import agent, in_memory
from typer.testing import CliRunner

from rasp_tuner import MissingExtra
from rasp_tuner.cli import app
from rasp_tuner.service.storage.store import sqlite_url
from tests.service.serving import free_port, running


def test_a_dead_server_is_said_and_its_return_noticed(tmp_path):
    port = free_port()
    with agent(in_memory(f"http://127.0.0.1:{port}", None, timeout=0.5)) as found:
        for tool in ("show_study", "freeze"):
            said = found.error(tool, study="web")
            assert f"`rasp serve` must run at http://127.0.0.1:{port}" in said
        with running(sqlite_url(tmp_path), port=port):
            assert found.ok("list_studies")["total"] == 0


def test_a_server_that_is_none_of_ours_is_said(tmp_path):
    (tmp_path / "v1").mkdir()
    (tmp_path / "v1" / "studies").write_text('{"studies": [{"name": 3}], "total": 1}')
    handler = functools.partial(QuietHandler, directory=tmp_path)
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as other:
        threading.Thread(target=other.serve_forever, daemon=True).start()
        with agent(in_memory(f"http://127.0.0.1:{other.server_port}", None)) as found:
            assert "cannot read what" in found.call_tool("list_studies", {}).content[0].text
            assert "is it a RASP server?" in found.error("show_study", study="web")
        other.shutdown()


class QuietHandler(SimpleHTTPRequestHandler):
    def log_message(self, *_):
        """Nothing."""


def test_it_ends_quietly_when_nobody_reads():
    words = [sys.executable, "-W", "error", "-m", "rasp_tuner", "mcp"]
    ping = '{"jsonrpc":"2.0","id":1,"method":"ping"}\n'
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run(words, input=ping, stdout=writing, stderr=subprocess.PIPE, text=True, timeout=60, check=False)
    os.close(writing)
    assert done.returncode == 0, done.stderr
    assert done.stderr.splitlines()[1:] == ["whoever started this reads no more: it ends"]


def test_a_key_that_is_not_there_and_a_url_that_is_none_are_said_in_one_line():
    for words, said in ((["--url", "ftp://x"], "rasp: url must look like http://127.0.0.1:8321, got 'ftp://x'\n"),):
        result = CliRunner().invoke(app, ["mcp", *words])
        assert (result.exit_code, result.stdout) == (1, "")
        assert result.stderr.endswith(said)


def test_without_mcp_the_error_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "mcp", None)
    monkeypatch.delitem(sys.modules, "rasp_tuner.integrations.mcp_server")
    with pytest.raises(MissingExtra, match=r"pip install 'rasp-tuner\[mcp\]'"):
        import_module("rasp_tuner.integrations.mcp_server")
