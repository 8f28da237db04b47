"""The reliability scripts at small sizes: the promises hold, and planted faults are seen."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from rasp_lab.reliability.clock_jumps import LIBRARIES

SLOW = "ready again in under 2 s"  # belongs to a machine that has nothing else to do


def later(*values):
    return pytest.param(*values, marks=pytest.mark.nightly)


def script(name, *words):
    """What a script printed as JSON, and the promises it found broken."""
    command = [sys.executable, "-m", f"rasp_lab.reliability.{name}", "--json", *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert done.stdout, done.stderr[-2000:]
    told = json.loads(done.stdout)
    assert done.returncode == (1 if told["broken"] else 0)
    return told, set(told["broken"]) - {SLOW}


@pytest.mark.slow
def test_kills_lose_nothing():
    told, broken = script("kill", "--kills", 2, "--load", 0.4)
    assert not broken, told
    assert told["tells acknowledged"] > 0


@pytest.mark.slow
@pytest.mark.parametrize(
    ("plant", "promise"),
    [
        later("commit-after-ack", "no acknowledged tell is lost"),
        ("drop-wal", "no acknowledged tell is lost"),
        later("double-apply", "none is applied twice"),
        later("replay-twice", "the state is that of a replay of the log"),
    ],
)
def test_a_planted_fault_is_seen(plant, promise):
    # a kill under load may come when nothing is in flight
    kills = 8 if plant == "commit-after-ack" else 1
    _, broken = script("kill", "--forked", "--kills", kills, "--load", 0.4, "--plant", plant)
    assert promise in broken


@pytest.mark.usefixtures("postgres")  # skipped where there is none
@pytest.mark.nightly
def test_several_servers_lose_nothing_when_one_is_killed():
    # one kill; test_leases.py has each of the other ways alone
    told, broken = script("many_servers", "--rounds", 1, "--ways", "kill", "--lease", 1, "--studies", 2, "--load", 0.4)
    assert not broken, told
    assert told["kill: rounds"] == 1


@pytest.mark.nightly
def test_restarts_change_nothing():
    told, broken = script("restart", "--steps", 30, "--restarts", 3)
    assert not broken, told
    assert told["restarts, clean"] == 2


@pytest.mark.slow
def test_bad_requests_change_nothing():
    told, broken = script("fuzz", "--bad", 400, "--schema", 0)
    assert not broken, told
    assert told["answered 4xx"] + told["closed"] == 400


@pytest.mark.slow
def test_a_full_disk_acknowledges_nothing():
    told, broken = script("disk", "--way", "limit")
    assert not broken, told


def test_concurrent_clients_are_counted_exactly():
    told, broken = script("concurrent_clients", "--clients", 8, "--rounds", 10)
    assert not broken, told


@pytest.mark.skipif(not list(Path("/usr/lib").glob(LIBRARIES)), reason="no libfaketime: Debian's package faketime")
@pytest.mark.nightly
def test_jumps_of_the_clock_lose_nothing():
    told, broken = script("clock_jumps", "--jumps", 6, "--clients", 2)
    assert not broken, told
    assert told["tells acknowledged"] > 0


@pytest.mark.slow
def test_what_the_outbox_has_flushed_is_there_once():
    told, broken = script("outbox_kills", "--kills", 2, "--clients", 2)
    assert not broken, told
    assert told["of which called sent by flush"] > 0
    assert told["kills of a client"] == 1


@pytest.mark.slow
def test_a_live_watch_survives_faults():
    told, broken = script("watch_faults", "--rounds", 3)
    assert not broken, told
    assert told["steps measured"] >= 6
