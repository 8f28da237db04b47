"""One process: measured, and ended with all that it started."""

import shutil
import subprocess
import sys
import time

import pytest
from tune_running import alive, wait_for

from rasp_tuner.errors import TuningStopped
from rasp_tuner.tune.process import leftovers, run_process

PYTHON = [sys.executable, "-I", "-S", "-c"]


def test_what_a_process_did_is_known():
    done = run_process(["sh", "-c", "echo out; echo err >&2; exit 3"])
    assert (done.stdout, done.stderr, done.exit_code, done.timed_out) == ("out\n", "err\n", 3, False)
    assert done.why_failed(None) == "exit code 3"


def test_cpu_time_is_that_of_the_children_and_sleeping_takes_none():
    burnt = "import time\nwhile time.process_time() < 0.2: pass"
    busy = run_process(["sh", "-c", f'{sys.executable} -I -S -c "{burnt}"; true'])
    assert 0.2 <= busy.cpu_s <= busy.wall_s + 0.1
    asleep = run_process(["sleep", "0.2"])
    assert asleep.wall_s >= 0.2
    assert asleep.cpu_s < 0.1


def test_peak_memory_is_that_of_the_command_and_not_of_the_tuner():
    small = run_process(["true"])
    large = run_process([*PYTHON, "x = b'a' * 90_000_000"])
    assert small.memory_mb < 20.0
    assert 90.0 < large.memory_mb < 150.0


@pytest.mark.parametrize("leader", ["trap '' TERM; sleep 600; sleep 600", "wait"])
def test_a_timeout_ends_the_whole_group_even_what_ignores_it(tmp_path, leader):
    note = tmp_path / "pid"
    script = f"(trap '' TERM; echo $BASHPID > {note}; sleep 600; sleep 600) & {leader}"
    began = time.monotonic()
    done = run_process(["bash", "-c", script], limit_s=0.6)
    assert time.monotonic() - began < 120.0  # its programs would sleep for ten minutes
    assert done.timed_out
    assert done.why_failed(0.6) == "timed out after 0.6 s"
    wait_for(lambda: not alive(int(note.read_text())), 60.0)


# a program that detaches as daemons do: a session of its own, no parent, and here without its environment
DETACHED = (
    "setsid env -i sh -c 'echo $$ > {note}; exec sleep 600' > /dev/null 2>&1 < /dev/null &"
    " while [ ! -s {note} ]; do sleep 0.01; done"
)
LINUX = pytest.mark.skipif(sys.platform != "linux", reason="only Linux can adopt processes that detach")


@LINUX
@pytest.mark.parametrize("end", ["exit 0", "exit 3", "exec sleep 600"])
def test_what_detaches_is_ended_with_its_run(tmp_path, end):
    note = tmp_path / "pid"
    done = run_process(["sh", "-c", f"{DETACHED.format(note=note)}; {end}"], limit_s=1.5)
    assert done.timed_out == (end == "exec sleep 600")
    assert done.left_behind == (0 if done.timed_out else 1)
    assert not alive(int(note.read_text()))


def test_children_of_a_run_that_was_fine_are_ended_and_counted(tmp_path):
    note = tmp_path / "pid"
    done = run_process(["sh", "-c", f"sleep 600 & echo $! > {note}; sleep 600 & exit 0"])
    assert (done.exit_code, done.left_behind) == (0, 2)
    assert done.wall_s < 60.0
    wait_for(lambda: not alive(int(note.read_text())), 60.0)


@LINUX
def test_a_killed_tuner_leaves_nothing_running(tmp_path):
    note = tmp_path / "pid"
    code = f"from rasp_tuner.tune.process import run_process\nrun_process(['sh', '-c', 'echo $$ > {note}; sleep 600'])"
    with subprocess.Popen([sys.executable, "-c", code]) as tuner:
        wait_for(lambda: note.exists() and note.read_text().strip())
        tuner.kill()
    wait_for(lambda: not alive(int(note.read_text())), 60.0)


def test_a_signal_is_named_and_a_closed_pipe_is_no_error():
    done = run_process(["sh", "-c", "kill -SEGV $$"])
    assert done.why_failed(None) == "ended by signal 11 (SIGSEGV)"
    cut = run_process(["sh", "-c", "yes | head -1"])
    assert (cut.exit_code, cut.stdout, cut.stderr) == (0, "y\n", "")


def test_a_run_has_the_environment_that_it_was_given():
    done = run_process(["env"], env={"LANG": "C", "PATH": "/usr/bin:/bin", "TEXT": "a=b c"})
    assert {"LANG=C", "PATH=/usr/bin:/bin", "TEXT=a=b c"} <= set(done.stdout.splitlines())
    with pytest.raises(TuningStopped, match="code 0"):
        run_process(["echo", "a\0b"])


def test_of_an_endless_output_the_end_is_kept(tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path / "none"))  # nowhere to put a file
    script = "import sys\nfor _ in range(300): sys.stdout.write('x' * 1_000_000)\nprint('last')"
    done = run_process([*PYTHON, script])
    assert len(done.stdout) <= 1_000_000
    assert done.stdout.endswith("last\n")


def test_a_program_that_is_not_there_is_an_error_that_names_it():
    with pytest.raises(TuningStopped, match="cannot start 'no-such-program'"):
        run_process(["no-such-program"])


def test_what_runs_on_after_a_kill_is_found():
    with subprocess.Popen([shutil.which("sleep"), "30"], env={"RASP_TUNE_STUDY": "orphan-test"}) as orphan:
        assert leftovers("orphan-test") == [orphan.pid]
        assert leftovers("orphan") == []
        orphan.kill()
