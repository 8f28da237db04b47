"""The reliability scripts at small sizes: the promises hold, and planted faults are seen."""

import json
import subprocess
import sys

import pytest

SLOW = "ready again in under 2 s"  # belongs to a machine that has nothing else to do


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
        ("commit-after-ack", "no acknowledged tell is lost"),
        ("drop-wal", "no acknowledged tell is lost"),
        ("double-apply", "none is applied twice"),
        ("replay-twice", "the state is that of a replay of the log"),
    ],
)
def test_a_planted_fault_is_seen(plant, promise):
    # one kill under load may come when nothing is in flight
    kills = 4 if plant == "commit-after-ack" else 2
    _, broken = script("kill", "--kills", kills, "--load", 0.4, "--plant", plant)
    assert promise in broken


@pytest.mark.slow
@pytest.mark.usefixtures("postgres")  # skipped where there is none
def test_several_servers_lose_nothing_when_one_is_killed():
    # one kill; test_leases.py has each of the other ways alone
    told, broken = script("many_servers", "--rounds", 1, "--ways", "kill", "--lease", 1, "--studies", 2, "--load", 0.4)
    assert not broken, told
    assert told["kill: rounds"] == 1


@pytest.mark.slow
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
