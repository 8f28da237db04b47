"""Small tables of the formats of the public suite."""

import csv
import gzip
import itertools

import numpy as np
import pytest

from rasp_lab.public import kernels, protocols, public_page, serving, tables

SYSTEMS = ("one", "two")
MODELS = ("a/small", "b/large", "b/larger")
GPUS = ("G1", "G2")
COLUMNS = ("context", "model", "gpu", "isl", "osl", "concurrency", "backend", "precision", "mode", "tp", "dp", "moe_tp")
COLUMNS += ("moe_ep", *(f"{pool}_{name}" for pool in serving.POOLS for name in ("workers", *serving.SPLITS)))
COLUMNS += ("gpus", "ttft_ms", "tpot_ms", "tokens_s_gpu")


def write_serving(place):
    """Three models at two loads. More GPUs are quicker, trtllm is the best; one cell was measured twice."""
    place.mkdir()
    rows = []
    for i, model in enumerate(MODELS):
        for load in (4, 64):
            context = {"model": model, "gpu": "h100", "isl": 1024, "osl": 128, "concurrency": load, "mode": "agg"}
            for backend, tp in itertools.product(("trtllm", "vllm"), (1, 2, 4, 8)):
                ms = (i + 1) * (load**0.5) * (1.0 if backend == "trtllm" else 1.5) / tp**0.5
                split = {"backend": backend, "precision": "fp8", "tp": tp, "moe_tp": 1, "moe_ep": 1, "gpus": tp}
                rows.append({**context, **split, "ttft_ms": 20 * ms, "tpot_ms": ms, "tokens_s_gpu": 1000 / ms / tp})
            apart = {"mode": "disagg", "backend": "trtllm", "prefill_tp": 4, "decode_tp": 8, "gpus": ""}
            rows.append({**context, **apart, "ttft_ms": 9 * ms, "tpot_ms": 3 * ms, "tokens_s_gpu": ""})
    rows.append({**rows[0], "tpot_ms": 3 * rows[0]["tpot_ms"]})
    rows.append({**rows[0], "isl": 2048})  # too few configurations for a context
    with gzip.open(place / "measured.csv.gz", "wt", newline="") as lines:
        writer = csv.DictWriter(lines, COLUMNS, restval="")
        writer.writeheader()
        writer.writerows(rows)


def write_kernel(place):
    place.mkdir()
    tiles = [(1, 0), (2, 0), (2, 1)]
    every = itertools.product((8, 16, 32), (32,), tiles, tiles)
    settings = np.array([(x, y, a, b, s, t) for x, y, (a, s), (b, t) in every])
    knobs = ["block_size_x", "block_size_y", "tile_size_x", "tile_size_y", "tile_stride_x", "tile_stride_y"]
    time = 10.0 + np.abs(np.log2(settings[:, 0])[None] - [[3], [4]]) + settings[:, 2] + 0.1 * settings[:, 3]
    np.savez(
        place / "dedispersion.npz", knobs=knobs, settings=settings, gpus=GPUS, time_ms=time, eval_s=np.ones_like(time)
    )
    spaces = ["gpu,cutoff50_evals,cutoff95_evals", "G1,2,10", "G2,2,12"]
    (place / "spaces.csv").write_text("\n".join(spaces) + "\n")


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Two systems with four switches, a back end of three, and an option with three values; 30 of 144 rows measured."""
    rng = np.random.default_rng(1)
    (tmp_path / "dlisa").mkdir()
    for system in SYSTEMS:
        grid = np.array(list(itertools.product(*[(0, 1)] * 4, range(3), range(3))))[rng.permutation(144)[:30]]
        settings = np.column_stack([grid[:, :4], np.eye(3)[grid[:, 4]], grid[:, 5]]).astype(np.float32)
        settings[7] = settings[3]
        first = np.arange(30)
        first[7] = 3
        effects = rng.normal(size=(3, 8))
        value = np.exp(settings @ effects.T).T.astype(np.float32)
        value[:, 7] *= 0.5
        np.savez(
            tmp_path / "dlisa" / f"{system}.npz", options=[f"o{i}" for i in range(8)], settings=settings,
            workloads=["a", "b", "c"], value=value, unit="s", direction="min", first=first, default=7,
        )  # fmt: skip
    printed = ["system,workload,direction,state,optimum,best_fixed,DLiSA-0.3_mean"]
    printed += [f"{system},a,min,{state},1,1.1,1.2" for system in SYSTEMS for state in ("right", "mixed")]
    (tmp_path / "dlisa" / "printed.csv").write_text("\n".join(printed) + "\n")
    (tmp_path / "poppler").mkdir()
    settings = np.array([[1, 0], [0, 0], [0, 1], [1, 1]])
    np.savez(
        tmp_path / "poppler" / "poppler.npz", options=["format", "j"], settings=settings, format_names=["png", "tiff"],
        inputs=np.arange(30), time_s=np.exp(rng.normal(size=(30, 1)) - [0.0, 0.0, 0.0, 1.0]),
        size_b=np.full((30, 4), 100.0),
    )  # fmt: skip
    (tmp_path / "sqlite_queries").mkdir()
    distinct, setting = np.array([[0, 0], [1, 0], [1, 1]]), np.array([0, 1, 2, 0, 1])
    time = np.ones((4, 5, 2)) + setting[None, :, None]
    failed = np.zeros((4, 5), dtype=bool)
    failed[0, 2] = True
    time[0, 2] = 0.01
    np.savez(
        tmp_path / "sqlite_queries" / "sqlite.npz", options=["x", "y"], distinct=distinct, setting=setting, time_s=time,
        failed=failed, queries=["q1", "q2"], inputs=[0.1, 1.0, 2.0, 3.0],
    )  # fmt: skip
    write_serving(tmp_path / "llm_serving")
    write_kernel(tmp_path / "kernel_hub")
    for module in (protocols, public_page):
        monkeypatch.setattr(module, "SYSTEMS", SYSTEMS)
    for name, sets in (("serving", MODELS), ("kernels", GPUS)):
        monkeypatch.setitem(protocols.SETS, name, sets)
    monkeypatch.setattr(serving, "MODELS", MODELS)
    monkeypatch.setattr(kernels, "GPUS", GPUS)
    monkeypatch.setattr(kernels, "BEFORE", 4)
    monkeypatch.setattr(protocols, "MEASUREMENTS", 8)
    monkeypatch.setattr(protocols, "AFTER", (2, 4, 8))
    for name in ("find", "online"):
        monkeypatch.setitem(protocols.SETS, name, SYSTEMS)
    for cached in (tables.dlisa, tables.sqlite, tables.poppler, tables.printed, serving.serving, kernels.kernel):
        cached.cache_clear()
    return tmp_path
