"""Suggestions do not depend on the number of BLAS threads; the thread count is the caller's again afterwards."""

import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

import rasp_tuner
from rasp_tuner import Float, Int, Tuner
from rasp_tuner.base.threads import BLAS_THREADS, OneThread, ProcessCount, ThreadCount, one_thread
from rasp_tuner.files import snapshot

SPACES = {
    "smooth": "{f'x{i}': Float(0, 1) for i in range(64)}",
    "discrete": "{f'x{i}': Int(0, 4) for i in range(20)} | {f'c{i}': Categorical([0, 1, 2, 3]) for i in range(20)}",
    "mixed": "{f'x{i}': Float(0, 1) for i in range(12)} | {f'c{i}': Categorical([0, 1, 2, 3]) for i in range(8)}",
}
RUN = """
import hashlib, numpy as np
from rasp_tuner import Categorical, Float, Int, Tuner
tuner = Tuner({space}, {{"loss": "min"}}, context=3)
rng = np.random.default_rng(0)
for step in range({steps}):
    context = rng.normal(size=3)
    s = tuner.ask(context)
    tuner.tell(s.id, {{"loss": sum((x - 0.3 - 0.1 * context[0]) ** 2 for x in s.params.values()) + 0.1 * rng.normal()}})
print(hashlib.sha256(tuner.to_bytes()).hexdigest())
"""
COUNT = """
import os, threading, numpy, threadpoolctl
from rasp_tuner.base.threads import one_thread
def count():
    return [library["num_threads"] for library in threadpoolctl.threadpool_info() if library["user_api"] == "blas"][0]
def in_child():
    child = os.fork()
    if child == 0:
        print(count(), flush=True)
        os._exit(0)
    os.waitpid(child, 0)
"""


def run(code, threads):
    path = str(Path(rasp_tuner.__file__).parents[1])
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": str(threads), "PYTHONPATH": path}
    command = [sys.executable, "-W", "ignore::DeprecationWarning", "-c", code]  # of a fork beside threads
    result = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert (result.returncode, result.stderr) == (0, "")
    return result.stdout.split()


class FakeBlas:
    """A thread count, of the process or of each thread."""

    def __init__(self, threads, local=False):
        self.start, self.held, self.calls = threads, threading.local() if local else type("", (), {})(), []

    def get(self):
        threads = getattr(self.held, "threads", self.start)
        time.sleep(1e-4)  # another thread's turn
        return threads

    def set(self, threads):
        self.calls.append(threads)
        self.held.threads = threads


def in_a_thread(work):
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()


@pytest.mark.parametrize(
    ("space", "steps"),
    [
        ("mixed", 12),
        pytest.param("smooth", 40, marks=pytest.mark.slow),
        pytest.param("discrete", 70, marks=pytest.mark.slow),
    ],
)
def test_the_number_of_blas_threads_changes_no_bit(space, steps):
    code = RUN.format(space=SPACES[space], steps=steps)
    assert run(code, 1) == run(code, 4)


def test_a_shield_alone_turns_contexts_the_same_way():
    code = "from rasp_tuner import ContextShield; print(ContextShield([(0, 1)] * 300, key='k' * 16)([0.3] * 300))"
    assert run(code, 1) == run(code, 2)


def test_the_snapshot_says_on_how_many_threads():
    header, _ = snapshot.decode(Tuner({"x": Float(0, 1)}, {"loss": "min"}).to_bytes())
    assert header["numerics"] == {"blas_threads": BLAS_THREADS}


def test_numpys_blas_runs_on_one_thread_inside_and_as_before_outside():
    code = COUNT + "print(count())\nwith one_thread():\n print(count())\nprint(count())"
    assert run(code, 2) == ["2", "1", "2"]


@pytest.mark.parametrize(("knob", "native", "inside"), [("Int(0, 3)", "1", "1"), ("Float(0, 1)", "0", "1")])
def test_a_step_that_uses_blas_has_it_on_one_thread(knob, native, inside):
    """Of a compiled step nothing is asked: it uses none."""
    code = f"""{COUNT}
os.environ["RASP_NATIVE"] = "{native}"
from rasp_tuner import Float, Int, Tuner
class Told(dict):
    def __getitem__(self, name):
        print(count())
        return super().__getitem__(name)
tuner = Tuner({{"x": {knob}}}, {{"loss": "min"}})
for loss in (1.0, 2.0):
    tuner.tell(tuner.ask().id, Told(loss=loss))
print(count())
"""
    assert set(run(code, 2)[:-1]) == {inside}
    assert run(code, 2)[-1] == "2"


@pytest.mark.parametrize("kind", [ProcessCount, ThreadCount])
def test_nested_use_restores_once(kind):
    blas = FakeBlas(4)
    pin = OneThread([kind(blas.get, blas.set)])
    with pin, pin:
        with pin:
            assert blas.get() == 1
        assert blas.get() == 1
    assert blas.calls == [1, 4]


@pytest.mark.parametrize("kind", [ProcessCount, ThreadCount])
def test_one_thread_already_is_left_alone(kind):
    blas = FakeBlas(1)
    with OneThread([kind(blas.get, blas.set)]):
        pass
    assert blas.calls == []


def test_an_error_inside_restores():
    blas = FakeBlas(4)
    pin = OneThread([ProcessCount(blas.get, blas.set)])

    @pin
    def fail():
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert blas.get() == 4


def test_without_a_blas_to_set_nothing_happens():
    with OneThread([]):
        pass


def test_a_shared_count_is_restored_by_the_last_thread_out():
    blas, came, may_go = FakeBlas(4), threading.Event(), threading.Event()
    pin = OneThread([ProcessCount(blas.get, blas.set)])

    def stay():
        with pin:
            came.set()
            may_go.wait(30)

    with pin:
        other = threading.Thread(target=stay)
        other.start()
        assert came.wait(30)
    assert blas.get() == 1  # the other is still inside
    may_go.set()
    other.join()
    assert blas.calls == [1, 4]


def test_counts_of_single_threads_are_each_set_and_restored():
    blas, seen = FakeBlas(4, local=True), []
    pin = OneThread([ThreadCount(blas.get, blas.set)])

    def other():
        blas.set(2)
        with pin:
            seen.append(blas.get())
        seen.append(blas.get())

    with pin:
        in_a_thread(other)
        seen.append(blas.get())
    assert [*seen, blas.get()] == [1, 2, 1, 4]


def test_the_last_thread_out_restores_numpys_blas_whoever_came_first():
    """threadpoolctl's own setter is deaf to every thread but the first that used it."""
    code = (
        COUNT
        + """
came, may_go, gone, done = (threading.Event() for _ in range(4))
def first():
    with one_thread():
        came.set()
        may_go.wait(30)
    gone.set()
    done.wait(30)
threading.Thread(target=first).start()
came.wait(30)
with one_thread():
    may_go.set()
    gone.wait(30)
    print(count())
print(count())
done.set()
"""
    )
    assert run(code, 2) == ["1", "2"]


def test_many_threads_at_once_leave_the_count_as_it_was():
    blas, wrong = FakeBlas(4), []
    pin = OneThread([ProcessCount(blas.get, blas.set)])

    def work():
        for _ in range(100):
            with pin:
                if blas.get() != 1:
                    wrong.append(blas.get())

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    assert blas.get() == 4


def test_the_child_of_a_fork_does_not_wait_for_threads_it_does_not_have():
    code = (
        COUNT
        + """
came, may_go = threading.Event(), threading.Event()
def other():
    with one_thread():
        came.set()
        may_go.wait(30)
thread = threading.Thread(target=other)
thread.start()
came.wait(30)
in_child()  # the other thread is inside, this one is not
with one_thread():
    in_child()
may_go.set()
thread.join()
print(count())
"""
    )
    assert run(code, 2) == ["2", "1", "2"]


def test_it_decorates():
    @one_thread()
    def add(a, b):
        """Their sum."""
        return a + b

    assert (add(1, b=2), add.__doc__) == (3, "Their sum.")


def test_threads_that_share_a_tuner_take_turns():
    """Without a lock of their own: two of five processes died of it before."""
    tuner = Tuner({"a": Float(1.0, 64.0, log=True), "n": Int(1, 32)}, {"ms": "min"}, 1, {"a": 4.0, "n": 4}, seed=0)
    failed: list[Exception] = []

    def client(number: int) -> None:
        try:
            for i in range(40):
                asked = tuner.ask([float(i % 2)])
                tuner.tell(asked.id, {"ms": 30.0 + abs(asked.params["n"] - 20) + 0.1 * (number + i) % 1.0})
                tuner.recommend([float(i % 2)])
        except Exception as reason:  # noqa: BLE001 - whatever it is
            failed.append(reason)

    threads = [threading.Thread(target=client, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []
    assert tuner.learned == 320
