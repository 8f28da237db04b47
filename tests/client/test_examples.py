"""The examples run, and do what they say."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from rasp_tuner.client import Client

ROOT = Path(__file__).parents[2]


@pytest.mark.nightly
def test_the_shop_gets_faster_and_does_not_notice_an_outage():
    words = [sys.executable, str(ROOT / "examples" / "live_service.py"), "--days", "3", "--asks", "48"]
    result = subprocess.run(words, capture_output=True, text=True, timeout=120, check=False)
    assert result.returncode == 0, result.stderr
    days = re.findall(r"^ +\d+ +([\d.]+)% +([\d.]+)% +(\d+) of 48$", result.stdout, re.MULTILINE)
    assert [int(alone) for _, _, alone in days] == [0, 48, 0]
    first_settings, tuned, _ = map(float, days[2])
    assert tuned < first_settings / 3
    assert float(days[1][1]) < first_settings / 2  # without the server
    assert "96 asks, 96 tells, 48 observed while the server was down" in result.stdout


def python_blocks(file):
    return re.findall(r"^```python\n(.*?)^```", file.read_text(), re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("number", range(len(python_blocks(ROOT / "docs" / "CLIENT.md"))))
def test_the_code_in_the_docs_runs(server, number):
    with Client(server.url, timeout=20) as client:
        if any(view["name"] == "checkout" for view in client.studies()):
            client.study("checkout").delete()
        block = python_blocks(ROOT / "docs" / "CLIENT.md")
        code = block[0] if number == 0 else f"{block[0]}\n{block[number]}"  # the first makes the study
        code = code.replace("http://127.0.0.1:8321", server.url).replace("ask_deadline=0.05", "ask_deadline=5")
        exec(compile(f"{code}\nclient.close()", f"docs/CLIENT.md, block {number}", "exec"), {})  # noqa: S102
