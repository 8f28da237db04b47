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
    small = run_process(["true"], exact_memory=True)
    large = run_process([*PYTHON, "x = b'a' * 90_000_000"], exact_memory=True)
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


def test_a_signal_is_named():
    done = run_process(["sh", "-c", "kill -SEGV $$"])
    assert done.why_failed(None) == "ended by signal 11 (SIGSEGV)"
    seen = run_process(["sh", "-c", "kill -SEGV $$"], exact_memory=True)
    assert seen.why_failed(None) == done.why_failed(None)


def test_an_endless_output_is_kept_from_its_end_only():
    done = run_process([*PYTHON, "print('x' * 3_000_000); print('last')"])
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
