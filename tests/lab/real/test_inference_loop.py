"""The inference loop of src/rasp_lab/real with a model that is a formula: latency, limits, failed programs, batches."""

import doctest

import numpy as np
import pytest

from rasp_lab.real import harness, inference_loop, llm_windows
from rasp_lab.real.batch_arrays import batch_arrays
from rasp_lab.real.continuous_batching import Request, Scheduler, serve
from rasp_lab.real.inference_loop import FIRST_TOKEN_MS, REQUESTS, InferenceLoop
from rasp_lab.real.system import RunFailed

STEPS = 8


class FakeModel:
    """An iteration takes a millisecond, more with many tokens. Programs of two warps and large tiles do not run."""

    def __init__(self):
        self.now, self.compiled, self.warm = 0.0, [], 0

    def compile(self, programs):
        self.compiled += programs
        return [(100.0 + params["tile_q"], None) for params in programs]

    def fault(self, params):
        return "out of shared memory" if params["kv_block"] == 128 and params["stages"] == 4 else None

    def warm_up(self):
        self.warm += 1

    def step(self, chunks, params):
        assert not self.fault(params), "a program was launched that does not run"
        self.now += 0.001 + 2e-6 * sum(chunk.count for chunk in chunks) * (1.0 + 8.0 / params["tile_q"])


@pytest.fixture
def model():
    return FakeModel()


@pytest.fixture
def system(tmp_path, model):
    found = InferenceLoop(tmp_path, model)
    found._clock = lambda: model.now
    with found:
        yield found


def piece(system, kind="code, busy", seed=0):
    return system.work(kind, np.random.default_rng(seed))


def test_the_cost_is_the_mean_time_from_arrival_to_the_last_token(system, model, monkeypatch):
    requests = [Request(0.0, 1000, 2), Request(1.0, 500, 1), Request(100.0, 100, 1)]
    monkeypatch.setattr(system, "requests", lambda _: requests)
    began = model.now
    # 1000 tokens: 1 + 2.25 ms. One token and 500 tokens together: 1 + 1.12725 ms. Then nothing, then 100 tokens.
    last = [5.37725, 4.37725, 1.225]
    assert system.run(system.default, piece(system)) == pytest.approx(sum(last) / 3)
    answers = system.serve(system.default, piece(system))
    assert [answer.first_token_ms for answer in answers] == pytest.approx([3.25, *last[1:]])
    assert [answer.last_token_ms for answer in answers] == pytest.approx(last)
    assert system.latency(system.default, piece(system))[1] == pytest.approx(3.25 + 0.8 * 1.12725)  # 90% of three
    assert model.now - began == pytest.approx(3 * (5.37725 + 1.225) / 1000.0)


def test_late_first_tokens_fail_and_cost_more(system, monkeypatch):
    work = piece(system, "conversation, busy")
    latency, first = system.latency(system.default, work)
    monkeypatch.setitem(FIRST_TOKEN_MS, work.kind, first / 2.0)
    with pytest.raises(RunFailed, match=f"10% of first tokens came after {first:.0f} ms, the limit is") as failure:
        system.run(system.default, work)
    assert failure.value.cost_ms == pytest.approx(2.0 * latency)
    monkeypatch.setitem(FIRST_TOKEN_MS, work.kind, first * 1.0001)
    assert system.run(system.default, work) == pytest.approx(latency)


def test_a_program_that_cannot_run_is_a_failed_run_and_the_default_does_the_work(system, model, monkeypatch):
    work = piece(system)
    default = system.run(system.default, work)
    bad = {**system.default, "kv_block": 128, "stages": 4}
    with pytest.raises(RunFailed, match="out of shared memory") as failure:
        system.run(bad, work)
    assert failure.value.cost_ms == pytest.approx(default)

    step = model.step

    def out_of_memory(chunks, params):
        if params["prefill_chunk"] == 8192:
            raise MemoryError("CUDA out of memory")
        step(chunks, params)

    monkeypatch.setattr(model, "step", out_of_memory)
    with pytest.raises(RunFailed, match="CUDA out of memory") as failure:
        system.run({**system.default, "prefill_chunk": 8192}, work)
    assert failure.value.cost_ms == pytest.approx(default)


def test_every_program_is_compiled_once_and_charged_to_who_uses_it(system, model):
    names = [tuple(params[name] for name in ("kv_block", "tile_q", "warps", "stages")) for params in model.compiled]
    assert len(set(names)) == len(names) == 4 * 42
    assert system.built({**system.default, "max_batch": 8}) == ("16-64-4-2", 164.0)
    assert system.built({**system.default, "stages": 1}) == ("16-64-4-1", 164.0)
    assert model.warm == 1


def test_a_default_that_cannot_run_is_said_at_once(tmp_path, monkeypatch):
    monkeypatch.setattr(FakeModel, "fault", lambda *_: "no memory")
    with pytest.raises(RuntimeError, match="the default cannot run on this GPU: no memory"):
        InferenceLoop(tmp_path, FakeModel()).__enter__()


def test_the_work_follows_the_table(system):
    windows = llm_windows.read_windows()
    for kind in system.kinds:
        trace, _, load = kind.partition(", ")
        seen = set()
        for seed in range(30):
            work = piece(system, kind, seed)
            requests = system.requests(work)
            low, high = inference_loop.LOADS[load]
            rate = (len(requests) - 1) / (requests[-1].arrival_ms / 1000.0)
            assert low <= work.context["requests_s"] <= high
            assert rate == pytest.approx(work.context["requests_s"])
            sizes = [(request.prompt, request.answer) for request in requests]
            (window,) = [w for w in windows if [r[1:] for r in w.served[: REQUESTS[load]]] == sizes]
            assert window.trace == trace
            assert work.context["prompt_tokens"] == pytest.approx(np.mean([r[1] for r in window.lately]))
            assert work.context["answer_tokens"] == pytest.approx(np.mean([r[2] for r in window.lately]))
            seen.add(work.context["prompt_tokens"])
        assert len(seen) > 10


def test_every_setting_serves_every_piece_of_work(system):
    for name, knob in system.space.items():
        for unit in (0.0, 1.0):
            params = {**system.default, name: knob.from_unit(unit)}
            for kind in system.kinds:
                assert len(system.serve(params, piece(system, kind))) == REQUESTS[kind.partition(", ")[2]]


def test_agents_are_measured_on_it(system, monkeypatch):
    monkeypatch.setattr(harness, "PAIRS", 1)
    rows = harness.measure(system, STEPS, 1)
    for agent in harness.AGENTS:
        assert sum((row.phase, row.agent) == ("tune", agent) for row in rows) == STEPS
    assert {row.params for row in rows if row.phase == "build" and row.agent == "static"} == {"16-64-4-2"}
    costs = {(row.phase, row.step, row.kind, row.agent): row.cost_ms for row in rows}
    again = {key: cost for key, cost in costs.items() if key[-1] == "static-again"}
    assert all(costs[(*key[:-1], "static")] == pytest.approx(cost, rel=2e-3) for key, cost in again.items())


def test_the_check_says_times_faults_and_limits(tmp_path, monkeypatch):
    monkeypatch.setattr(inference_loop, "PIECES", 2)
    said, model = [], FakeModel()
    system = InferenceLoop(tmp_path, model)
    system._clock = lambda: model.now
    assert inference_loop.check(system, said.append) == 0
    text = "\n".join(said)
    assert "  16-64-4-2: 164 ms, right" in text
    assert "  128-64-4-4: 164 ms, out of shared memory" in text
    assert "  {'prefill_chunk': 256}: " in text
    assert "limits of this GPU, for FIRST_TOKEN_MS: {'conversation, calm': " in text
    monkeypatch.setattr(FakeModel, "fault", lambda *_: "wrong result")
    assert inference_loop.check(InferenceLoop(tmp_path, FakeModel()), said.append) == 1


def test_without_a_gpu_the_check_says_so_in_a_sentence(monkeypatch, capsys):
    monkeypatch.setattr(InferenceLoop, "missing", classmethod(lambda _: "a GPU"))
    assert inference_loop.main() == 1
    assert capsys.readouterr().err == "The inference loop cannot run here: it needs a GPU.\n"


def test_batches_as_arrays_are_what_the_chunks_say():
    """Token by token, against the meaning of each field."""
    block, tile_tokens, longest = 4, 3, 40
    scheduler = Scheduler(3, 11, block, 30)
    table = np.full((3, longest // block), 99, dtype=np.int32)
    ticks = iter(range(1000))
    mixed = 0

    def step(chunks):
        nonlocal mixed
        for chunk in chunks:
            table[chunk.of.slot, : len(chunk.of.blocks)] = chunk.of.blocks
        made = batch_arrays(chunks, table, block, tile_tokens, longest)
        tokens = [(chunk.of, chunk.first + i) for chunk in chunks for i in range(chunk.count)]
        assert made.known.tolist() == [of.slot * longest + at for of, at in tokens]
        assert made.places.tolist() == [of.blocks[at // block] * block + at % block for of, at in tokens]
        ends = np.cumsum([chunk.count for chunk in chunks])
        gives = [(int(end) - 1, chunk) for end, chunk in zip(ends, chunks, strict=True) if chunk.gives_token]
        assert made.last.tolist() == [row for row, _ in gives]
        assert made.next.tolist() == [c.of.slot * longest + c.of.request.prompt + c.of.answered for _, c in gives]
        covered = []
        for start, left, position, slot in made.tiles.tolist():
            covered += range(start, start + min(left, tile_tokens))
            of, at = tokens[start]
            assert (of.slot, at) == (slot, position)
            assert tokens[start + left - 1][0] is of
            assert start + left == len(tokens) or tokens[start + left][0] is not of
        assert covered == list(range(len(tokens)))
        assert np.array_equal(np.split(made.packed(), np.cumsum(made.sizes())[:-1])[1], made.known)
        mixed += len({chunk.count for chunk in chunks}) > 1

    serve([Request(float(i), 1 + 7 * i % 25, 1 + i % 5) for i in range(12)], scheduler, step, lambda: next(ticks))
    assert mixed > 5


def test_doctests():
    assert doctest.testmod(inference_loop).failed == 0
