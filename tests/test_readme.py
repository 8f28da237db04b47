"""The README: short, its example runs as printed, and its numbers are those that its command prints."""

import os
import re
import runpy
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()


def test_it_has_at_most_700_words_and_every_link_leads_somewhere():
    assert len(README.split()) <= 700
    for link in re.findall(r"\]\(([^)#]+)[^)]*\)|src=\"([^\"]+)\"", README):
        assert (ROOT / (link[0] or link[1])).exists(), link


@pytest.mark.slow
def test_the_example_ends_with_a_verdict(tmp_path):
    [code] = [block for block in re.findall(r"```python\n(.*?)```", README, re.DOTALL) if "def measure(" in block]
    assert len([line for line in code.splitlines() if line.strip()]) <= 10
    code = f"import time\ntime.perf_counter = time.process_time\n{code}"  # whatever else runs here
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), os.environ.get("PYTHONPATH", "")])}
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, env=env, capture_output=True, text=True, check=True
    )
    assert re.match(
        r"measure: faster by [\d.]+% \([\d.]+ to [\d.]+%\); size within its limit in 20 of 20 runs\n", done.stdout
    )


def test_the_second_example_runs():
    [code] = [block for block in re.findall(r"```python\n(.*?)```", README, re.DOTALL) if "tuner.ask(" in block]
    scope: dict = {}
    exec(compile(code, "README.md", "exec"), scope)  # noqa: S102 - our own page
    assert scope["tuner"].learned == 1


@pytest.fixture(scope="module")
def tool():
    """What the command is made of; a study is played once for the numbers and for the picture."""
    made = runpy.run_path(str(ROOT / "tools" / "readme_numbers.py"))
    made["numbers"].__globals__["play"] = made["play"] = cache(made["play"])
    return made


@pytest.mark.nightly
def test_the_numbers_are_those_of_the_command(tool):
    found = tool["numbers"]()
    told = " ".join(README.split())
    saved = re.match(r"saved \d+% \(\d+ to \d+%\)", found["saved"])[0]
    assert f"p99 {saved}" in told
    by_night, by_day = re.findall(r"p99_ms (\d+)% better", found["situations"])
    assert f"{by_night}% less at 100 requests a second, {by_day}% at 900" in told
    assert f"{found['claims where nothing helps']} claim a gain" in told
    assert f"p99 was {found['first day'].lstrip('-')} below the default's" in told


@pytest.mark.nightly
def test_the_picture_is_what_the_command_draws(tool):
    _, came, usual = tool["play"](holdout=0.1)
    drawn = tool["picture"](came, usual, "A simulated service, tuned while it runs: p99 against its default")
    assert (ROOT / "docs" / "images" / "study.svg").read_text() == drawn
