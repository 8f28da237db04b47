"""The compiled kernel's asking side says what the arrays version says, and refuses what it cannot be trusted with."""

import dataclasses
import os

import numpy as np
import pytest

from rasp_tuner.engine.kernel import belief as beliefs
from rasp_tuner.engine.kernel import build, native
from rasp_tuner.engine.kernel.believe import believe
from rasp_tuner.engine.kernel.choose import best, candidates, choose
from rasp_tuner.engine.kernel.learn import learn, start
from rasp_tuner.engine.kernel.native_batch import NativeBatch
from rasp_tuner.engine.kernel.predict import against, forecast, predict
from rasp_tuner.engine.kernel.state import Dims, State, blank

needs_library = pytest.mark.skipif(not native.available(), reason=f"native kernel: {native.why_not()}")
STEPS = 45


def default_of(dims: Dims) -> np.ndarray:
    return np.linspace(0.1, 0.6, dims.knobs)


def play(dims: Dims, size: int, steps: int, look=None) -> State:
    """Tuners that meet noisy bowls in changing contexts; `look` sees each belief before its sample is learnt."""
    rng = np.random.default_rng(dims.knobs + 10 * dims.context)
    state, default = blank(dims, size, start(dims)), default_of(dims)
    optimum, moves = rng.uniform(0.3, 0.7, (size, dims.knobs)), rng.normal(0.0, 0.1, (dims.context, dims.knobs))
    for step in range(steps):
        contexts = rng.normal(size=(size, dims.context)) * (1.0 if step % 2 else 0.1)
        belief = believe(dims, state, default, contexts)
        points = choose(dims, state, belief, default, rng.random((size, dims.knobs + candidates(dims))))[0]
        points = np.clip(points + rng.normal(0.0, 0.05, points.shape), 0.0, 1.0)
        y = ((points - optimum - contexts @ moves) ** 2).sum(axis=1) + rng.normal(0.0, 0.05, size)
        losses = np.concatenate([y[:, None], rng.normal(0.0, 0.1, (size, dims.columns - 1))], axis=1)
        total = (losses * state.weights).sum(axis=1)
        if look is not None:
            look(state, belief, contexts, points, total)
        logs = forecast(dims, state, belief, default, points, total)[2]
        learn(dims, state, belief, default, points, contexts, losses, np.zeros(size, dtype=bool), logs)
    return state


def same(got, wanted, scale=None) -> None:
    scale = np.abs(wanted).max() if scale is None else scale
    np.testing.assert_allclose(got, wanted, rtol=0.0, atol=1e-9 * scale + 1e-300)


@needs_library
@pytest.mark.parametrize(("d", "c", "k"), [(1, 0, 1), (2, 1, 2), (5, 3, 1), (3, 40, 3), (12, 2, 1)])
def test_compiled_answers_are_those_of_the_arrays(d: int, c: int, k: int):
    dims, size, rng = Dims(d, c, k), 3, np.random.default_rng(5)
    default, alike = default_of(dims), []

    def look(state: State, belief: beliefs.SlotBelief, contexts: np.ndarray, points: np.ndarray, y: np.ndarray) -> None:
        got = NativeBatch(dims, default, state).believe(contexts)
        for name in beliefs.shapes(dims):
            assert np.isfinite(getattr(got, name)).all(), name
        if state.steps[0] == 0:
            return
        unit = max(float(belief.a.max()), float(belief.spread.max()), float(np.abs(y).max()))
        for name in ("weights", "noises", "spread", "a", "moving", "kernels", "S", "G"):
            same(getattr(got, name), getattr(belief, name))
        for name in ("offset", "origin", "mean"):
            same(getattr(got, name), getattr(belief, name), unit)
        some = rng.random((size, 4, d))
        for mine, theirs in (
            (got.predict(some), predict(dims, state, belief, default, some)),
            (got.forecast(points, y), forecast(dims, state, belief, default, points, y)),
        ):
            same(mine[0], theirs[0], unit)
            same(mine[1], theirs[1], unit**2)
            for more, others in zip(mine[2:], theirs[2:], strict=True):
                same(more, others, 100.0)
        told = zip(got.versus_default(points), against(dims, state, belief, default, points), strict=True)
        for i, (mine, theirs) in enumerate(told):
            same(mine, theirs, unit**2 if i in (2, 4, 5) else unit)
        same(got.best(), best(dims, state, belief, default), 100.0)
        draws = rng.random((size, d + candidates(dims)))
        mine, theirs = got.choose(draws), choose(dims, state, belief, default, draws)
        np.testing.assert_array_equal(mine[1], theirs[1])
        alike.extend((np.abs(mine[0] - theirs[0]).max(axis=1) < 1e-6).tolist())

    play(dims, size, STEPS, look)
    assert all(alike)


@needs_library
def test_the_kernel_of_age_is_an_exponential_to_the_last_digits():
    """Compiled code has one of its own, which is vectorised."""
    dims, rng = Dims(2, 1, 1), np.random.default_rng(3)
    state, default = play(dims, 1, 12), default_of(dims)
    ages = np.concatenate(
        [rng.uniform(0.0, 60.0, 90), rng.uniform(0.0, 14_000.0, 97), [0.0, 1e-9, 14_160.0, 1e9, 1e300]]
    )
    state.count[:], state.last[0, : len(ages)], state.steps[:] = len(ages), -ages, 1.0
    state.counts[:], state.prompts[:], state.keys[:] = 1.0, state.prompts[:, :1], 0.0
    got = NativeBatch(dims, default, state).believe(np.zeros((1, 1))).kernels[0, 1, : len(ages)]
    np.testing.assert_allclose(got, np.exp(-ages / 20.0), rtol=4.5e-16, atol=4e-308)


@needs_library
def test_some_rows_answer_as_each_tuner_alone():
    dims, rng = Dims(3, 2, 1), np.random.default_rng(1)
    state, default = play(dims, 4, 12), default_of(dims)
    rows = rng.integers(0, 4, 50)
    contexts, draws = rng.normal(size=(50, 2)), rng.random((50, 3 + candidates(dims)))
    whole = NativeBatch(dims, default, state).believe(contexts, rows)
    chosen = whole.choose(draws)
    for i, row in enumerate(rows):
        one = state.map(lambda array, row=row: array[row : row + 1].copy())
        alone = NativeBatch(dims, default, one).believe(contexts[i : i + 1])
        np.testing.assert_array_equal(alone.buffer[0], whole.buffer[i])
        for mine, theirs in zip(alone.choose(draws[i : i + 1]), chosen, strict=True):
            np.testing.assert_array_equal(mine[0], theirs[i])


@needs_library
def test_what_would_read_foreign_memory_is_refused():
    dims = Dims(2, 1, 1)
    state, default = blank(dims, 2, start(dims)), default_of(dims)
    contexts = np.zeros((2, 1))
    with pytest.raises(ValueError, match="rows below 2"):
        NativeBatch(dims, default, state).believe(contexts, np.array([0, 2]))
    with pytest.raises(ValueError, match="2 x 1 numbers"):
        NativeBatch(dims, default, state).believe(np.zeros((2, 3)))
    with pytest.raises(ValueError, match="2 x 2 numbers"):
        NativeBatch(dims, default, state).believe(contexts).predict(np.zeros((1, 1, 2)))
    with pytest.raises(ValueError, match=r"state\.keys must be"):
        NativeBatch(dims, default, dataclasses.replace(state, keys=state.keys[:, ::2])).believe(contexts)
    with pytest.raises(ValueError, match="up to 64 knobs"):
        NativeBatch(Dims(65, 1, 1), np.zeros(65), state)
    with pytest.raises(AttributeError, match="no array 'colour'"):
        NativeBatch(dims, default, state).believe(contexts).colour  # noqa: B018


@needs_library
def test_it_can_be_turned_off_and_a_library_of_other_files_is_not_used(monkeypatch: pytest.MonkeyPatch):
    try:
        monkeypatch.setattr(native, "digest", lambda: "other")
        native._library.cache_clear()
        assert "built from other C files" in str(native.why_not())
        monkeypatch.setenv("RASP_NATIVE", "0")
        native._library.cache_clear()
        assert not native.available()
        with pytest.raises(RuntimeError, match="turned off"):
            NativeBatch(Dims(1, 0, 1), np.zeros(1), blank(Dims(1, 0, 1), 1, start(Dims(1, 0, 1))))
    finally:
        native._library.cache_clear()


def test_where_there_is_a_compiler_there_is_the_library():
    """Else every test that needs it would skip, and nobody would see."""
    turned_off = os.environ.get("RASP_NATIVE") == "0"
    assert native.available() or turned_off or build.compiler() is None, native.why_not()


@pytest.mark.slow
@pytest.mark.skipif(build.compiler() is None, reason="no C compiler")
def test_the_c_files_compile_without_warnings(tmp_path):
    library = tmp_path / build.LIBRARY.name
    assert build.build(library, ("-Wall", "-Wextra", "-Werror", "-O1")) is None
    assert library.stat().st_size > 0
    assert build.is_current(library)
    with pytest.MonkeyPatch.context() as other:  # a constant was changed, and no header was written yet
        other.setattr(build, "header", lambda name: f"#define {name}")
        assert not build.is_current(library)


def test_a_library_of_other_c_files_or_none_is_not_current(tmp_path):
    library = tmp_path / build.LIBRARY.name
    assert not build.is_current(library)
    library.write_bytes(b"of other files: 0123456789abcdef")
    assert not build.is_current(library)


def test_a_compiler_that_fails_is_reported(monkeypatch: pytest.MonkeyPatch, tmp_path):
    monkeypatch.setenv("CC", "false")
    assert "failed" in str(build.build(tmp_path / "none"))
    monkeypatch.setenv("CC", str(tmp_path / "missing"))
    assert "did not run" in str(build.build(tmp_path / "none"))
