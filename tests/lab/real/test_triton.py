"""The Triton systems of src/rasp_lab/real without a GPU: what agents are charged for, failed programs, batches."""

import doctest
import json

import numpy as np
import pytest

from rasp_lab.real import harness, llm_batches, page, triton_system
from rasp_lab.real.__main__ import main
from rasp_lab.real.inference_loop import InferenceLoop
from rasp_lab.real.system import RunFailed, Work
from rasp_lab.real.systems import ON_GPU, load
from rasp_lab.real.triton_system import LAUNCHES, Attention, Matmul, read_batches

STEPS = 25


class FakeGpu:
    """Times by a formula. Half of the programs with two warps do not compile; large ones do not fit the memory."""

    def __init__(self):
        self.compiled = []

    def compile(self, programs):
        self.compiled += programs
        return [(self.compiling(params), "not compiled" if self.broken(params) else None) for params in programs]

    def fault(self, params):
        return "out of shared memory" if params["tile_k"] * params["stages"] > 300 else None

    def time(self, params, shape, launches):
        assert not self.broken(params), "a program was launched that does not compile"
        assert not self.fault(params), "a program was launched that does not fit"
        rows = shape["requests"] * shape["queries"] if "requests" in shape else shape["tokens"]
        tile = params.get("tile_q") or params["tile_m"]
        waste = -(-rows // tile) * tile / rows
        return launches * 1e-3 * rows * waste * (1.0 + 1.0 / params["tile_k"] + 0.1 * abs(params["stages"] - 5))

    @staticmethod
    def broken(params):
        return params["warps"] == 2 and params.get("tile_q", 64) < 64

    @staticmethod
    def compiling(params):
        return 100.0 + params.get("tile_q", 0)


@pytest.fixture(scope="module")
def system(tmp_path_factory):
    with Attention(tmp_path_factory.mktemp("triton"), FakeGpu()) as found:
        yield found


@pytest.fixture(scope="module")
def rows(system):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(harness, "PAIRS", 2)
        return harness.measure(system, STEPS, 1)


def contexts(system, seed=1):
    return [work.context for work in system.sequence(STEPS, seed)]


def tuning(rows, agent, phase="tune"):
    return [row for row in rows if (row.phase, row.agent) == (phase, agent)]


def test_every_agent_does_all_the_work(rows):
    assert {row.agent for row in rows if row.phase == "tune"} == {*harness.AGENTS, *harness.PEERS}
    assert all(len(tuning(rows, agent)) == STEPS for agent in (*harness.AGENTS, *harness.PEERS))


def test_the_autotuner_pays_for_its_search_once_for_each_new_shape(system, rows):
    seen = set()
    for row, context in zip(tuning(rows, "autotune"), contexts(system), strict=True):
        costs = [
            system._launcher.time(params, context, LAUNCHES)
            for params in system.candidates
            if not system._launcher.fault(params)
        ]
        new = tuple(context.values()) not in seen
        seen.add(tuple(context.values()))
        assert row.cost_ms == pytest.approx(min(costs) + new * sum(costs), rel=1e-3)
        assert not row.failed
    assert 1 < len(seen) < STEPS


def test_every_agent_pays_once_for_every_program_that_it_uses(system, rows):
    for agent in (*harness.AGENTS, *harness.PEERS):
        builds = tuning(rows, agent, "build")
        used = {tuple(json.loads(row.params)) if row.params else tuple(system.default.values()) for row in rows
                if row.agent == agent and row.phase == "tune"}  # fmt: skip
        if agent == "autotune":
            used = {tuple(params.values()) for params in system.candidates}
        if any(row.failed for row in tuning(rows, agent)):
            used.add(tuple(system.default.values()))  # did the work instead
        assert sorted(row.params for row in builds) == sorted("-".join(map(str, values)) for values in used)
        assert all(row.cost_ms == 100.0 + int(row.params.partition("-")[0]) for row in builds)


def test_a_program_that_cannot_run_is_a_failed_run_and_the_default_does_the_work(system, rows):
    shape = {"requests": 2, "queries": 1, "keys": 1024}
    work = Work("decode, code", {name: float(size) for name, size in shape.items()}, 0)
    for bad, words in (({"tile_q": 16, "warps": 2}, "not compiled"), ({"stages": 7}, "shared memory")):
        with pytest.raises(RunFailed, match=words) as failure:
            system.run({**system.default, **bad}, work)
        assert failure.value.cost_ms == system._launcher.time(system.default, shape, LAUNCHES)
    failed = [row for row in rows if row.failed]
    assert "random" in {row.agent for row in failed}
    default = {(row.phase, row.step, row.kind): row.cost_ms for row in rows if row.agent == "static"}
    assert all(row.cost_ms == default[row.phase, row.step, row.kind] for row in failed)


def test_who_fails_pays_for_the_default_too(system, monkeypatch):
    monkeypatch.setattr(harness, "PAIRS", 0)
    monkeypatch.setattr(harness, "AGENTS", ("static",))
    monkeypatch.setattr(Attention, "best_fixed", lambda self: {**self.default, "stages": 7})
    rows = harness.measure(system, 2, 1)
    assert [row.failed for row in tuning(rows, "best-fixed")] == [1, 1]
    assert {row.params for row in tuning(rows, "best-fixed", "build")} == {"128-64-4-7", "128-64-4-3"}


def test_a_default_that_cannot_run_is_said_at_once(tmp_path):
    class Broken(FakeGpu):
        def fault(self, params):
            return f"no memory for {params}"

    with pytest.raises(RuntimeError, match="the default cannot run on this GPU: no memory for"):
        Attention(tmp_path, Broken()).__enter__()


def test_the_best_fixed_tile_is_the_best_of_all(system):
    def total(params):
        return sum(batch.share * system._launcher.time(params, system.shape(batch), 1) for batch in read_batches())

    runs = [params for params in system.legal() if system._programs.faults["-".join(map(str, params.values()))] is None]
    assert len(runs) > 50
    assert total(system.best_fixed()) == pytest.approx(min(map(total, runs)))


def test_a_program_is_compiled_once_in_a_process(tmp_path, monkeypatch):
    gpu = FakeGpu()
    monkeypatch.setattr(triton_system, "KNOWN", {})
    monkeypatch.setattr(Attention, "_gpu", lambda _: gpu)
    for _ in range(2):
        with Attention(tmp_path) as system:
            assert len(gpu.compiled) == len(list(system.legal()))


@pytest.mark.parametrize("kind", [Matmul, Attention])
def test_candidates_and_defaults_keep_the_constraints(kind, tmp_path):
    system = kind(tmp_path, FakeGpu())
    legal = list(system.legal())
    assert all(params in legal for params in (system.default, *system.candidates))
    assert system.default in system.candidates
    assert len(legal) < np.prod([knob.levels for knob in system.space.values()])


@pytest.mark.parametrize("kind", [Matmul, Attention])
def test_the_work_is_drawn_from_the_table(kind, tmp_path):
    system = kind(tmp_path, FakeGpu())
    batches = read_batches()
    for name in kind.kinds:
        own = [batch for batch in batches if batch.kind == name]
        assert len(own) == llm_batches.KEPT
        assert sum(batch.share for batch in own) == pytest.approx(1.0)
        drawn = system.work(name, np.random.default_rng(0))
        assert set(drawn.context) == set(kind.context)
        assert drawn.context in [system.shape(batch) for batch in own]


def test_the_table_is_made_from_traces(tmp_path, monkeypatch):
    assert doctest.testmod(llm_batches).failed == 0
    head = "TIMESTAMP,ContextTokens,GeneratedTokens\n"
    for name in llm_batches.TRACES.values():
        (tmp_path / name).write_text(head + "2023-11-16 18:17:03.9799600,4808,3\n2023-11-16 18:17:09.0319600,9000,1\n")
    monkeypatch.setattr(llm_batches, "TABLE", tmp_path / "table.csv")
    llm_batches.main(tmp_path)
    comment, *lines = (tmp_path / "table.csv").read_text().splitlines()
    assert "CC-BY-4.0" in comment
    assert lines[:4] == [
        "phase,trace,requests,queries,keys,count",
        "prefill,conversation,1,6144,6144,1",
        "prefill,conversation,1,8192,8192,1",
        "decode,conversation,1,1,6144,2",
    ]


def test_without_a_gpu_the_command_says_so_in_a_sentence(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(triton_system.TritonKernel, "missing", classmethod(lambda _: "a GPU"))
    assert main(["triton", "--out", str(tmp_path / "out"), "--docs", str(tmp_path)]) == 1
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err == "Triton kernels cannot be measured here: they need a GPU.\n"
    assert list(tmp_path.iterdir()) == []


def test_the_command_measures_keeps_and_shows_the_runs_and_goes_on_where_it_stopped(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(triton_system, "KNOWN", {})
    for name, value in (("missing", lambda _: None), ("version", lambda _: "Triton 3, a GPU")):
        monkeypatch.setattr(triton_system.TritonKernel, name, classmethod(value))
    monkeypatch.setattr(triton_system.TritonKernel, "_gpu", lambda _: FakeGpu())
    monkeypatch.setattr(harness, "PAIRS", 1)
    monkeypatch.setattr("rasp_lab.real.__main__.KEPT", tmp_path / "kept")
    command = ["triton", "--steps", "3", "--seeds", "1", "--out", str(tmp_path / "out"), "--docs", str(tmp_path)]
    assert main([*command, "--system", "triton-matmul"]) == 0
    assert "Not measured yet: `python -m rasp_lab.real triton`." in (tmp_path / "REAL.md").read_text()
    assert "measured before" not in capsys.readouterr().out
    assert main([*command, "--system", "triton-matmul", "--system", "triton-attention"]) == 0
    assert "triton-matmul, seed 1: measured before" in capsys.readouterr().out
    files = ["triton-attention-1.csv.gz", "triton-matmul-1.csv.gz"]
    assert sorted(file.name for file in (tmp_path / "kept").iterdir()) == files
    made = (tmp_path / "REAL.md").read_text()
    assert made.count("Not measured yet: `python -m rasp_lab.real triton`.") == 1  # the inference loop


def test_the_page_has_what_was_measured_and_says_what_was_not(system, rows, tmp_path):
    file = tmp_path / "triton-attention-1.csv.gz"
    harness.write(file, rows, "Triton 3, a GPU, Python 3, 2 cores, load 1.0 a core")
    page.write({"triton-attention": [file]}, tmp_path, "head")
    made = (tmp_path / "REAL.md").read_text()
    builds = [row.cost_ms for row in tuning(rows, "autotune", "build")]
    assert len(builds) == len(system.candidates)
    own, default = (sum(row.cost_ms for row in rows if row.agent == agent and row.phase != "final")
                    for agent in ("autotune", "static"))  # fmt: skip
    compiling = (tmp_path / page.FOLDER / "compiling.csv").read_text()
    assert f"\nTriton attention,Triton's autotuner,{sum(builds) / 1000.0:.1f},{own / default:.2f}\n" in compiling
    assert "\nTriton attention,best fixed tile," in (tmp_path / page.FOLDER / "agents.csv").read_text()
    assert made.count("Not measured yet: `python -m rasp_lab.real triton`.") == 2  # matmul and inference loop
    left_out = "SQLite, PostgreSQL, Blosc2, Uvicorn and Starlette, Redis, DuckDB, Triton matmul, Inference loop"
    assert f"Not measured yet: {left_out}." in made


def test_the_names_on_a_gpu_are_systems():
    assert [load(name) for name in ON_GPU] == [Matmul, Attention, InferenceLoop]
