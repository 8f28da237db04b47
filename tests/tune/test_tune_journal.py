"""The journal: what is acknowledged is on disk, and a study goes on after Ctrl-C, kill -9 and a full disk."""

import errno
import json
import os
import signal
import subprocess
import sys

import pytest
from tune_running import AWK, OPTIONS, alive, entries, rasp, start, wait_for

from rasp_tuner.errors import JournalError, TuningStopped
from rasp_tuner.study_file.journal import Journal

DEFINITION = {"name": "a", "knobs": {"x": 1}}
RUN = {"kind": "run", "metrics": {"m": 1.0}}


@pytest.fixture
def folder(tmp_path):
    with Journal(tmp_path, DEFINITION) as journal:
        for step in range(3):
            journal.append({**RUN, "step": step})
    return tmp_path


def test_what_was_appended_is_there_again(folder):
    with Journal(folder, DEFINITION) as journal:
        assert [entry["step"] for entry in journal.of_kind("run")] == [0, 1, 2]
        assert journal.dropped == 0


@pytest.mark.parametrize("torn", [b'{"kind": "run", "st', b'{"kind": "run"}', b"\0\0\0\0\n", b'{"kind": "run", "st\n'])
def test_a_torn_last_line_is_dropped_and_the_next_one_is_whole(folder, torn):
    path = folder / "journal.jsonl"
    whole = path.read_bytes()
    path.write_bytes(whole + torn)
    with Journal(folder, DEFINITION) as journal:
        assert journal.dropped == len(torn)
        journal.append({**RUN, "step": 3})
    assert path.read_bytes().startswith(whole)
    assert [entry["step"] for entry in entries(folder, "run")] == [0, 1, 2, 3]


def test_every_cut_of_the_file_leaves_all_whole_lines(folder):
    path = folder / "journal.jsonl"
    data = path.read_bytes()
    head = data.index(b"\n") + 1
    for cut in range(head, len(data) + 1):
        path.write_bytes(data[:cut])
        with Journal(folder, DEFINITION) as journal:
            assert len(journal.of_kind("run")) == data[head:cut].count(b"\n")


def test_a_damaged_line_in_the_middle_is_not_passed_over(folder):
    path = folder / "journal.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([lines[0], b"garbage\n", *lines[1:]]))
    with pytest.raises(JournalError, match=r"line 2 of .* is damaged"):
        Journal(folder, DEFINITION)


def test_another_definition_is_refused_with_what_differs_and_fresh_keeps_the_old_one(folder):
    changed = {"name": "a", "knobs": {"x": 2}}
    with pytest.raises(TuningStopped, match=r"(?s)knobs\.x: was 1, is 2.*--fresh"):
        Journal(folder, changed)
    with Journal(folder, changed, fresh=True) as journal:
        assert journal.of_kind("run") == []
    assert len((folder / "journal.1.jsonl").read_text().splitlines()) == 4


def test_a_first_try_that_measured_nothing_may_be_changed(tmp_path):
    with Journal(tmp_path, DEFINITION) as journal:
        journal.append({"kind": "run", "metrics": None})
    with Journal(tmp_path, {"name": "b"}) as journal:
        assert journal.entries == [{"kind": "study", "version": 1, "definition": {"name": "b"}}]


def test_two_at_once_are_refused(folder):
    with Journal(folder, DEFINITION), pytest.raises(TuningStopped, match="another rasp tune is at work"):
        Journal(folder, DEFINITION)


def test_a_full_disk_leaves_the_journal_as_it_was_and_says_how_to_go_on(folder, monkeypatch):
    path = folder / "journal.jsonl"
    before = path.read_bytes()
    write = os.write

    def half(file, data):
        if len(data) > 10:
            return write(file, data[:10])
        raise OSError(errno.ENOSPC, "No space left on device")

    with Journal(folder, DEFINITION) as journal:
        monkeypatch.setattr(os, "write", half)
        with pytest.raises(JournalError, match=r"No space left.*3 runs are in it.*Free some space.*same command"):
            journal.append({**RUN, "step": 3, "long": "x" * 100})
        monkeypatch.undo()
        assert path.read_bytes() == before
        journal.append({**RUN, "step": 3})
    assert len(entries(folder, "run")) == 4


def params(folder):
    return [entry["params"] for entry in entries(folder, "run")]


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory):
    """What a study does that nobody disturbs."""
    place = tmp_path_factory.mktemp("whole")
    rasp(*OPTIONS, "--steps", 25, "--final", 3, "--", *AWK, cwd=place)
    return place / "rasp-tune" / "parabola"


def slow(words):
    """The same program, slow enough to be stopped in the middle."""
    return ["sh", "-c", 'sleep 0.05; exec "$@"', "sh", *words]


@pytest.mark.slow
@pytest.mark.parametrize("signals", [(signal.SIGKILL, signal.SIGKILL), (signal.SIGINT, signal.SIGTERM)])
def test_a_study_that_is_stopped_again_and_again_ends_as_if_it_was_not(tmp_path, uninterrupted, signals):
    place = tmp_path / "rasp-tune" / "parabola"
    words = [*OPTIONS, "--steps", 25, "--final", 3, "--", *slow(AWK)]
    known = []
    for how, target in zip(signals, (4, 11), strict=True):
        process = start(*words, cwd=tmp_path)
        wait_for(lambda target=target: (place / "journal.jsonl").exists() and len(entries_so_far(place)) >= target)
        acknowledged = entries_so_far(place)
        process.send_signal(how)
        out, err = process.communicate(timeout=30)
        assert process.returncode == (-9 if how == signal.SIGKILL else 130), err
        assert out == ""
        if how != signal.SIGKILL:
            assert "The same command goes on from there." in err
            assert "Traceback" not in err
            assert "Not finished" in (place / "report.html").read_text()
        after = entries_so_far(place)
        assert after[: len(acknowledged)] == acknowledged  # nothing acknowledged is lost
        assert known == after[: len(known)]
        known = after
    done = rasp(*words, cwd=tmp_path)
    assert f"going on with 'rasp-tune/parabola': {len(known)} runs are done" in done.stderr
    assert params(place) == params(uninterrupted)
    assert json.loads((place / "settings.json").read_text())["situations"][0]["use"] == {"x": 7}


def entries_so_far(folder):
    """The runs in a journal that is being written."""
    lines = (folder / "journal.jsonl").read_bytes()
    return [
        entry for line in lines[: lines.rfind(b"\n") + 1].splitlines() if (entry := json.loads(line))["kind"] == "run"
    ]


def test_ctrl_c_ends_the_running_command_too(tmp_path):
    note = tmp_path / "pid"
    command = ["sh", "-c", f"echo $$ > {note}; sleep 60; echo {{x}}"]
    process = start("--knob", "x=int:0..20", "--", *command, cwd=tmp_path)
    wait_for(lambda: note.exists() and note.read_text().strip())
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=30)
    assert process.returncode == 130
    wait_for(lambda: not alive(int(note.read_text())))


@pytest.mark.slow
def test_a_file_size_limit_is_a_full_disk_and_the_study_goes_on_without_it(tmp_path, uninterrupted):
    words = [sys.executable, "-m", "rasp_tuner", "tune", *OPTIONS, "--steps", "25", "--final", "3", "--", *AWK]
    limited = ["bash", "-c", 'ulimit -f 3; exec "$@"', "bash", *words]
    stopped = subprocess.run(limited, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    assert stopped.returncode == 1
    assert "File too large. Nothing acknowledged is lost" in stopped.stderr
    assert "then the same command goes on" in stopped.stderr
    assert "Traceback" not in stopped.stderr
    place = tmp_path / "rasp-tune" / "parabola"
    assert 3 <= len(entries(place, "run")) < 25
    rasp(*words[4:], cwd=tmp_path)
    assert params(place) == params(uninterrupted)


@pytest.mark.slow
def test_a_finished_study_answers_at_once_and_more_steps_continue_it(tmp_path, uninterrupted):
    assert len(params(uninterrupted)) == 25
    again = rasp(*OPTIONS, "--steps", 25, "--final", 3, "--", *AWK, cwd=uninterrupted.parents[1])
    assert len(params(uninterrupted)) == 25
    assert len(entries(uninterrupted, "final")) == 3
    assert "lower by" in again.stdout
    rasp(*OPTIONS, "--steps", 30, "--final", 3, "--out", tmp_path / "more", "--", *AWK, cwd=tmp_path)
    assert params(tmp_path / "more")[:25] == params(uninterrupted)
