"""RaspStrategy in Kernel Tuner: with its C backend, and with its simulation of kernels that were measured before."""

import json
import shutil
import sys
from importlib import import_module
from importlib.util import find_spec

import numpy as np
import pytest
from page_blocks import block

from rasp_tuner import InvalidSpace, MissingExtra, Tuner

# Kernel Tuner takes seconds to be imported, so that no worker does before its first test
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        find_spec("kernel_tuner") is None, reason="an extra of its own: pip install 'rasp-tuner[kernel-tuner]'"
    ),
    pytest.mark.filterwarnings("ignore:Kernel .* lists do not match:UserWarning"),  # it counts one argument in ()
]
ADAPTER = "rasp_tuner.integrations.kernel_tuner"
PARAMS = {"block_size_x": [16, 32, 64, 128, 256], "unroll": [1, 2, 4], "layout": ["row", "column"], "fixed": [7]}


def new_strategy(*words, **settings):
    return import_module(ADAPTER).RaspStrategy(*words, **settings)


def time_of(size, block_size_x, unroll, layout, fixed):
    del fixed
    return 1 + abs(block_size_x / 16 - size / 1024) + abs(unroll - 2) + (layout == "row")


def valid(config):
    return config["block_size_x"] * config["unroll"] <= 512


def configs(params=PARAMS):
    every = [{}]
    for name, values in params.items():
        every = [{**config, name: value} for config in every for value in values]
    return [config for config in every if valid(config)]


def simulate(folder, size, strategy, broken=(), params=PARAMS, time_of=time_of, **options):
    """What `tune_kernel` gives on a device that was measured before: here, by a formula."""
    entries = {}
    for config in configs(params):
        key = ",".join(str(value) for value in config.values())
        time = "RuntimeFailedConfig" if config["block_size_x"] in broken else time_of(size, **config)
        timings = dict.fromkeys(("compile_time", "verification_time", "benchmark_time"), 0)
        timings |= {"strategy_time": 0, "framework_time": 0, "timestamp": "2026-01-01 00:00:00+00:00"}
        entries[key] = {**config, "time": time, "times": [time], **timings}
    head = {"device_name": "Simulated", "kernel_name": "k", "problem_size": [size], "tune_params_keys": list(params)}
    head |= {"tune_params": params, "objective": "time", "schema_version": "1.0.0", "cache": entries}
    file = folder / f"{size}.json"
    file.write_text(json.dumps(head))
    return import_module("kernel_tuner").tune_kernel(
        "k", "void k() {}", (size,), [], params, lang="C", cache=str(file), simulation_mode=True, quiet=True,
        strategy=strategy, restrictions=["block_size_x * unroll <= 512"], **options,
    )  # fmt: skip


@pytest.mark.skipif(shutil.which("gcc") is None, reason="the kernel of the page is C")
def test_the_ten_lines_of_the_page(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # where Kernel Tuner compiles
    names = {}
    exec(block("KERNEL_TUNER.md"), names)  # noqa: S102
    assert capsys.readouterr().out.splitlines() == ["1024 first 5.0 best 1.0", "2048 first 1.25 best 1.25"]
    assert names["strategy"].tuner.learned == 16


def test_all_that_runs_is_valid_runs_once_and_is_learned(tmp_path):
    strategy = new_strategy(seed=0)
    results, env = simulate(tmp_path, 4096, strategy)
    ran = [tuple(result[name] for name in PARAMS) for result in results]
    assert sorted(map(str, ran)) == sorted(str(tuple(config.values())) for config in configs())
    assert strategy.tuner.learned == len(ran)
    assert env["best_config"]["time"] == 1
    assert {row["context"]["log2_size_x"] for row in strategy.tuner.history()} == {12.0}
    told = {tuple(row["params"].values()): row["metrics"]["time"] for row in strategy.tuner.history()}
    assert told == {config[:3]: time_of(4096, *config) for config in ran}


def test_another_shape_starts_from_what_was_learned(tmp_path):
    strategy, limit = new_strategy(seed=0), {"max_fevals": 12}
    for size in (2048, 4096):
        results, _ = simulate(tmp_path, size, strategy, strategy_options=limit)
        assert len(results) == 12
    strategy.tuner.save(tmp_path / "kernel.rasp")
    again = new_strategy(tuner=Tuner.load(tmp_path / "kernel.rasp"))
    results, _ = simulate(tmp_path, 4000, again, strategy_options=limit)
    assert results[0]["time"] == min(time_of(4000, **config) for config in configs())
    assert again.tuner.learned == 36


def test_what_shapes_have_in_common_does_not_hide_what_is_special_about_one(tmp_path):
    """A memory of five shapes alone ends at 2.3 times the least of 480 times, though a hundred configurations ran."""
    params = {
        "block_size_x": [16, 24, 32, 48, 64, 96, 128, 192, 256, 384],
        "unroll": [1, 2, 3, 4, 6, 8],
        "layout": ["row", "column"],
        "vector": [1, 2, 4, 8],
    }

    def rugged(size, block_size_x, unroll, layout, vector):
        own = np.random.default_rng([size, block_size_x, unroll, layout == "row", vector]).normal()
        common = (1.0 + abs(np.log2(block_size_x / 48))) * (1.5 if layout == "row" else 1.0)
        return float(common * np.exp(0.5 * own))

    strategy = new_strategy(seed=0)
    for size in (1024, 2048, 4096, 8192, 16384):
        simulate(tmp_path, size, strategy, params=params, time_of=rugged, strategy_options={"max_fevals": 60})
    results, _ = simulate(tmp_path, 700, strategy, params=params, time_of=rugged, strategy_options={"max_fevals": 60})
    least = min(rugged(700, **config) for config in configs(params))
    assert min(result["time"] for result in results) == least
    assert strategy.tuner.learned == 360


@pytest.mark.parametrize("seed", range(4))
def test_the_best_known_runs_first(tmp_path, seed):
    strategy, limit = new_strategy(seed=seed), {"max_fevals": 6}
    for size in (1024, 4096):
        simulate(tmp_path, size, strategy, strategy_options=limit)
    best = strategy.tuner.recommend(
        dict.fromkeys(import_module(ADAPTER).SIZES, 0.0) | {"device": "Simulated", "log2_size_x": 12.0}
    )
    results, _ = simulate(tmp_path, 4096, strategy, strategy_options={"max_fevals": 1})
    assert {name: results[0][name] for name in best} == best


def test_the_default_runs_first_and_failures_are_learned(tmp_path):
    strategy = new_strategy(default={"block_size_x": 256, "layout": "row"}, seed=0)
    results, env = simulate(tmp_path, 4096, strategy, broken=[256], strategy_options={"max_fevals": 8})
    assert (results[0]["block_size_x"], results[0]["layout"]) == (256, "row")
    assert type(results[0]["__error__"]).__name__ == "RuntimeFailedConfig"
    assert strategy.tuner.history()[0]["failed"]
    assert env["best_config"]["block_size_x"] != 256


@pytest.mark.skipif(shutil.which("gcc") is None, reason="the kernel is C")
def test_a_time_that_is_no_number_is_a_failure_and_one_configuration_is_no_error(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # Kernel Tuner compiles in the current folder
    source = "#include <math.h>\nfloat k() { return block_size_x == 16 ? NAN : block_size_x == 32 ? INFINITY : 1.0f; }"
    tune, options = import_module("kernel_tuner").tune_kernel, {"lang": "C", "iterations": 1, "quiet": True}
    strategy = new_strategy(seed=0)
    results, env = tune("k", source, 64, [], {"block_size_x": [16, 32, 64]}, strategy=strategy, **options)
    assert len(results) == 3
    assert sum(row["failed"] for row in strategy.tuner.history()) == 2
    assert env["best_config"]["block_size_x"] == 64
    results, _ = tune("k", source, 64, [], {"block_size_x": [64]}, strategy=new_strategy(), **options)
    assert [one["time"] for one in results] == [1.0]


def test_more_context_and_what_does_not_fit(tmp_path):
    strategy, limit = new_strategy({"dtype": "category"}, seed=0), {"max_fevals": 2}
    strategy.also = {"dtype": "half"}
    simulate(tmp_path, 4096, strategy, strategy_options=limit)
    assert set(strategy.tuner.history()[0]["context"]) == {
        "device", "log2_size_x", "log2_size_y", "log2_size_z", "dtype"
    }  # fmt: skip
    other = new_strategy(tuner=strategy.tuner)
    with pytest.raises(InvalidSpace, match="another context"):
        simulate(tmp_path, 4096, other, strategy_options=limit)
    with pytest.raises(InvalidSpace, match="objective must be one metric"):
        simulate(tmp_path, 4096, new_strategy(), objective=["time", "energy"], objective_higher_is_better=[False] * 2)


def test_without_kernel_tuner_the_error_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "kernel_tuner.strategies.common", None)
    monkeypatch.delitem(sys.modules, ADAPTER, raising=False)
    with pytest.raises(MissingExtra, match=r"rasp-tuner\[kernel-tuner\]"):
        import_module(ADAPTER)
