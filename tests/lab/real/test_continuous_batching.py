"""The scheduler of an inference server: every request is served whole, and no block or budget is used twice."""

import doctest
from itertools import count

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rasp_lab.real import continuous_batching, llm_batches, llm_windows
from rasp_lab.real.continuous_batching import Request, Scheduler, serve

REQUESTS = st.lists(
    st.builds(Request, st.floats(0.0, 50.0), st.integers(1, 40), st.integers(1, 10)), min_size=1, max_size=25
)
SCHEDULERS = st.builds(
    Scheduler, st.integers(1, 8), st.integers(1, 64), st.sampled_from([1, 4, 16]), st.integers(50, 200)
)


class Watched:
    """A step that takes a millisecond and checks what it is given."""

    def __init__(self, scheduler):
        self.scheduler, self.pool = scheduler, scheduler.blocks
        self.now = 0.0
        self.worked, self.gave, self.began = {}, {}, []  # tokens and answers of each request; requests by admission

    def __call__(self, chunks):
        self.now += 0.001
        scheduler, running = self.scheduler, self.scheduler.running
        assert chunks, "an iteration without work"
        assert sum(chunk.count for chunk in chunks) <= scheduler.budget
        assert len({id(chunk.of) for chunk in chunks}) == len(chunks)
        assert len(running) <= scheduler.max_batch
        assert len({sequence.slot for sequence in running}) == len(running)
        assert all(0 <= sequence.slot < scheduler.max_batch for sequence in running)
        held = [block for sequence in running for block in sequence.blocks]
        assert len(set(held)) == len(held), "two sequences share a block"
        assert all(0 <= block < self.pool for block in held)
        assert len(held) + scheduler.free_blocks == self.pool, "a block is lost"
        for chunk in chunks:
            request = chunk.of.request
            if id(request) not in self.worked:
                self.began.append(request)
            done = self.worked.setdefault(id(request), 0)
            assert chunk.first == done
            assert chunk.count >= 1
            known = request.prompt + self.gave.get(id(request), 0)
            assert done + chunk.count <= known, "a token that is not there yet"
            assert chunk.gives_token == (done + chunk.count == known)
            assert done + chunk.count <= len(chunk.of.blocks) * scheduler.block
            self.worked[id(request)] += chunk.count
            self.gave[id(request)] = self.gave.get(id(request), 0) + chunk.gives_token

    def clock(self):
        return self.now


@given(REQUESTS, SCHEDULERS)
@settings(deadline=None)
def test_every_request_gets_its_tokens_and_everything_is_given_back(requests, scheduler):
    watched = Watched(scheduler)
    answers = serve(requests, scheduler, watched, watched.clock)
    assert len(answers) == len(requests)
    for request, answer in zip(requests, answers, strict=True):
        assert watched.gave[id(request)] == request.answer
        assert watched.worked[id(request)] == request.prompt + request.answer - 1  # the last one is not read again
        assert 0.0 < answer.first_token_ms <= answer.last_token_ms
        # Nobody starves: at worst all work that there is comes before, one token an iteration.
        work = sum(each.prompt + each.answer for each in requests)
        assert answer.last_token_ms <= 50.0 + work
    assert scheduler.free_blocks == scheduler.blocks
    assert not scheduler.running
    assert not scheduler.waiting


@given(REQUESTS, SCHEDULERS)
@settings(deadline=None)
def test_requests_are_admitted_in_the_order_of_their_arrival(requests, scheduler):
    watched = Watched(scheduler)
    serve(requests, scheduler, watched, watched.clock)
    assert [id(request) for request in watched.began] == [id(r) for r in sorted(requests, key=lambda r: r.arrival_ms)]


@given(REQUESTS)
@settings(deadline=None)
def test_the_same_requests_are_served_the_same_way(requests):
    def batches():
        found, now = [], count()
        serve(
            requests,
            Scheduler(4, 32, 4, 64),
            lambda chunks: found.append([(part.of.slot, part.of.blocks, part.first, part.count) for part in chunks]),
            lambda: next(now) / 1000.0,
        )
        return found

    assert batches() == batches()


def test_answers_come_first_then_begun_prompts_then_new_ones():
    scheduler = Scheduler(3, 10, 4, 64)
    for prompt in (4, 30, 5):
        scheduler.add(Request(0.0, prompt, 3))
    planned = []
    for _ in range(5):
        chunks = scheduler.plan()
        planned.append([(chunk.of.request.prompt, chunk.first, chunk.count, chunk.gives_token) for chunk in chunks])
        scheduler.finish(chunks)
    assert planned == [
        [(4, 0, 4, True), (30, 0, 6, False)],
        [(4, 4, 1, True), (30, 6, 9, False)],
        [(4, 5, 1, True), (30, 15, 9, False)],
        [(30, 24, 6, True), (5, 0, 4, False)],
        [(30, 30, 1, True), (5, 4, 1, True)],
    ]


def test_a_request_waits_for_blocks_and_nobody_overtakes_it():
    scheduler = Scheduler(8, 100, 4, 10)
    for prompt in (20, 20, 1):  # 6 blocks, 6 blocks, 1 block
        scheduler.add(Request(0.0, prompt, 1))
    chunks = scheduler.plan()
    assert [chunk.of.request.prompt for chunk in chunks] == [20]
    scheduler.finish(chunks)
    assert [chunk.of.request.prompt for chunk in scheduler.plan()] == [20, 1]


def test_idle_time_is_skipped():
    watched = Watched(Scheduler(4, 100, 4, 64))
    found = serve([Request(1e6, 5, 2), Request(0.0, 5, 1)], watched.scheduler, watched, watched.clock)
    assert [(round(a.first_token_ms, 6), round(a.last_token_ms, 6)) for a in found] == [(1.0, 2.0), (1.0, 1.0)]
    assert watched.now == pytest.approx(0.003)


def test_impossible_settings_and_requests_are_refused():
    with pytest.raises(ValueError, match="budget must be at least 1, got 0"):
        Scheduler(1, 0, 4, 4)
    with pytest.raises(ValueError, match="prompt and answer must have at least 1 token, got 0 and 1"):
        Request(0.0, 0, 1)
    with pytest.raises(ValueError, match="5 blocks does not fit into a pool of 4 blocks"):
        Scheduler(1, 8, 4, 4).add(Request(0.0, 16, 1))


def test_the_table_of_windows():
    windows = llm_windows.read_windows()
    for trace in llm_batches.TRACES:
        assert sum(window.trace == trace for window in windows) == llm_windows.WINDOWS
    for window in windows:
        assert (len(window.lately), len(window.served)) == (llm_windows.LATELY, llm_windows.SERVED)
        arrivals, prompts, answers = zip(*window.requests, strict=True)
        assert arrivals[0] == 0.0
        assert list(arrivals) == sorted(arrivals)
        assert arrivals[-1] > 0.0
        assert 1 <= min(prompts) <= max(prompts) <= llm_windows.MOST_PROMPT
        assert 1 <= min(answers) <= max(answers) <= llm_windows.MOST_ANSWER


def test_the_table_is_made_from_traces(tmp_path, monkeypatch):
    rows = [f"2023-11-16 18:{i // 60:02}:{i % 60:02}.5000000,{5000 + i},{60 + i}\n" for i in range(100)]
    for name in llm_batches.TRACES.values():
        (tmp_path / name).write_text("TIMESTAMP,ContextTokens,GeneratedTokens\n" + "".join(rows))
    monkeypatch.setattr(llm_windows, "TABLE", tmp_path / "table.csv")
    llm_windows.main(tmp_path)
    lines = (tmp_path / "table.csv").read_text().splitlines()
    assert "CC-BY-4.0" in lines[0]
    assert lines[1:4] == [
        "trace,window,arrival_s,prompt,answer",
        "conversation,0,0,4096,60",
        "conversation,0,1,4096,61",
    ]
    assert len(llm_windows.read_windows()) == 2 * llm_windows.WINDOWS


@pytest.mark.parametrize("module", [continuous_batching, llm_windows])
def test_doctests(module):
    assert doctest.testmod(module).failed == 0
