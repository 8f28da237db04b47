"""`rasp watch` after any end: nothing acknowledged is lost, and good parameters are in place."""

import json
import os
import signal
import subprocess
import sys

import pytest
from watch_running import rasp, wait_for, write_study

from rasp_tuner import Tuner
from rasp_tuner.errors import JournalError, TuningStopped
from rasp_tuner.study_file.caller import StudyCaller
from rasp_tuner.study_file.journal import Journal
from rasp_tuner.watch import memory, watch


def start(world, *words):
    """As from a terminal: tests that run in the background inherit that Ctrl-C is ignored."""
    command = ["/usr/bin/env", "--default-signal=INT,HUP", sys.executable, "-m", "rasp_tuner", "watch", "study.toml"]
    return subprocess.Popen(
        [*command, "--out", str(world.out), *words], cwd=world.folder, stderr=subprocess.PIPE, text=True
    )


def steps_so_far(world):
    path = world.out / "journal.jsonl"
    if not path.exists():
        return []
    data = path.read_bytes()
    lines = data[: data.rfind(b"\n") + 1].splitlines()
    return [entry for line in lines if (entry := json.loads(line))["kind"] == "step"]


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM, signal.SIGHUP])
def test_a_watch_that_is_stopped_goes_on(world, how):
    write_study(world, window=0.05)
    process = start(world)
    wait_for(lambda: len(steps_so_far(world)) >= 5)
    known = steps_so_far(world)
    process.send_signal(how)
    _, said = process.communicate(timeout=30)
    assert process.returncode == (-9 if how == signal.SIGKILL else 0), said
    after = steps_so_far(world)
    assert after[: len(known)] == known
    if how != signal.SIGKILL:
        assert "Traceback" not in said
        assert "the same command goes on" in said
        assert {"x": world.x} == world.status()["last_good"]
        assert Tuner.load(world.out / "tuner.rasp").learned == len(after)
    done = rasp("study.toml", "--out", world.out, "--steps", 2, cwd=world.folder)
    assert f"going on after {len(after)} steps" in done.stderr or done.stderr == ""  # pytest may own the log
    assert steps_so_far(world)[: len(after)] == after
    assert len(steps_so_far(world)) == len(after) + 2


def test_a_killed_watch_knows_what_an_undisturbed_one_knows(world):
    """The journal and nothing else makes the tuner."""
    watch(world.study(), steps=12, folder=world.out)
    with Journal(world.out, world.study().to_json(), caller=StudyCaller("rasp watch")) as journal:
        replayed = memory.WatchMemory(world.study(), journal)
    saved = Tuner.load(world.out / "tuner.rasp")
    assert replayed.tuner.learned == saved.learned
    for load in (1.0, 5.0):
        assert replayed.tuner.recommend({"load": load}) == saved.recommend({"load": load})
    assert replayed.state.good == world.status()["last_good"]


def test_checkpoints_keep_the_journal_short_and_forget_nothing(world, monkeypatch):
    watch(world.study(), steps=12, folder=world.out / "whole")
    whole = json.loads((world.out / "whole" / "status.json").read_text())
    (world.folder / "settings.json").unlink()
    monkeypatch.setattr(memory, "CHECKPOINT_EVERY", 5)
    world.out.mkdir(exist_ok=True)
    (world.out / ".0123456789abcdef.tmp").touch()  # of one that was killed while it wrote a file
    for _ in range(6):
        watch(world.study(), steps=2, folder=world.out)
    assert world.status()["steps"] == 12
    assert len((world.out / "journal.jsonl").read_text().splitlines()) < 12
    assert (world.out / "journal.old.jsonl").exists()
    assert not list(world.out.glob(".*.tmp"))
    [kept] = world.out.glob("tuner-*.rasp")
    assert Tuner.load(world.out / "tuner.rasp").learned == Tuner.load(world.out / "whole" / "tuner.rasp").learned
    assert world.status()["steps"] == whole["steps"]
    kept.unlink()
    with pytest.raises(JournalError, match=r"cannot be read: .*Put the file back, or start over with --fresh"):
        watch(world.study(), steps=1, folder=world.out)


def test_a_shadow_after_live_knows_what_was_left_in_place(world):
    watch(world.study(), steps=20, folder=world.out)
    left = world.x
    assert left != 15
    watch(world.study(), mode="shadow", steps=1, folder=world.out)
    assert world.entries()[-1]["params"] == {"x": left}


def test_two_at_once_are_refused(world):
    with (
        Journal(world.out, world.study().to_json(), caller=StudyCaller("rasp watch")),
        pytest.raises(TuningStopped, match=r"another rasp watch is at work .*give this one another name or --out"),
    ):
        watch(world.study(), steps=1, folder=world.out)


def test_fresh_does_not_take_the_journal_from_one_that_is_at_work(world):
    with Journal(world.out, world.study().to_json(), caller=StudyCaller("rasp watch")) as journal:
        with pytest.raises(TuningStopped, match="another rasp watch is at work"):
            watch(world.study(), steps=1, folder=world.out, fresh=True)
        journal.append({"kind": "unknown"})
        assert world.entries("unknown")
    watch(world.study(), steps=1, folder=world.out, fresh=True)
    assert (world.out / "journal.1.jsonl").exists()


def test_a_journal_that_is_deleted_under_it_ends_it(world):
    """What is written to a file without a name is lost."""
    study = world.study()
    watch(study, steps=4, folder=world.out)
    asked = []

    def load():
        asked.append(1)
        if len(asked) == 4:
            (world.out / "journal.jsonl").unlink()
        return 1.0

    world.prometheus.answers["load"] = load
    with pytest.raises(JournalError, match="was deleted while it was in use"):
        watch(study, steps=9, folder=world.out)
    assert {"x": world.x} == world.status()["last_good"]


def test_a_journal_that_begins_anew_stays_locked(tmp_path):
    with Journal(tmp_path, {"name": "a"}) as journal:
        journal.append({"kind": "step", "metrics": {}})
        journal.restart([{"kind": "checkpoint", "state": {}}])
        with pytest.raises(TuningStopped, match="is at work"):
            Journal(tmp_path, {"name": "a"})
        journal.append({"kind": "step", "metrics": {}})
    with Journal(tmp_path, {"name": "a"}) as journal:
        assert [entry["kind"] for entry in journal.entries] == ["study", "checkpoint", "step"]
    assert len((tmp_path / "journal.old.jsonl").read_text().splitlines()) == 2


def test_a_full_disk_ends_it_with_good_parameters_in_place(world, monkeypatch):
    study = world.study()
    watch(study, steps=4, folder=world.out)
    known = world.entries()
    append = Journal.append

    applied = []

    def full(self, entry):
        """From the first suggestion on, nothing more can be written."""
        if entry["kind"] == "step" or applied:
            raise JournalError("cannot write to the journal: No space left on device")
        applied.append(entry)
        append(self, entry)

    monkeypatch.setattr(Journal, "append", full)
    world.prometheus.answers["loss"] = lambda: 1.0 if world.x == 7 else 9.0
    with pytest.raises(JournalError, match="No space left"):
        watch(study, steps=2, folder=world.out)
    assert applied
    assert world.entries() == known
    assert {"x": world.x} == world.status()["last_good"]


def test_ctrl_c_during_a_long_window_ends_it_at_once(world):
    write_study(world, window=60)
    process = start(world)
    wait_for(lambda: (world.folder / "settings.json").exists())
    os.kill(process.pid, signal.SIGINT)
    process.communicate(timeout=10)
    assert process.returncode == 130
    assert world.x == 15
