"""The tabular streams: data as shipped, exact regret, and tables that are really what the script measures."""

import shutil
from pathlib import Path

import numpy as np
import pytest

import rasp_tuner
from rasp_lab.bench.domains import stream_data
from rasp_lab.bench.domains.stream_data import CorruptData, MissingData, load
from rasp_lab.bench.domains.stream_tables import WINDOWS, Dataset, gradient_norms
from rasp_lab.bench.domains.streams import BATCHES, LEVELS, NOISE, STREAMS, TabularStream

DATASETS = {"S1_California_Housing": "california", "S2_Boston_Housing": "boston", "S3_Digits": "digits"}
GRID = tuple(len(levels) for levels in LEVELS.values())


@pytest.fixture(params=DATASETS)
def stream(request: pytest.FixtureRequest) -> TabularStream:
    return STREAMS[request.param]()


@pytest.mark.parametrize("name", DATASETS.values())
def test_tables_have_the_levels_of_the_knobs(name: str) -> None:
    table = load(f"{name}_table")
    assert table["mse"].shape == (BATCHES, *GRID)
    assert np.isfinite(table["mse"]).all()
    assert (table["mse"] > 0.0).all()
    for knob, levels in LEVELS.items():
        assert table[knob].tolist() == list(levels)


def test_rows_are_in_stream_order() -> None:
    california, boston = load("california"), load("boston")
    assert california["features"].shape == (20640, 8)
    assert boston["features"].shape == (506, 13)
    latitude, longitude = california["features"][:, 6], california["features"][:, 7]
    assert (np.lexsort((latitude, longitude)) == np.arange(20640)).all()
    assert (np.diff(boston["features"][:, 7]) >= 0.0).all()


@pytest.mark.parametrize("name", DATASETS.values())
def test_the_windows_cross_all_rows_and_never_train_on_the_validation_rows(name: str) -> None:
    windows = WINDOWS[name]
    for batch in range(BATCHES):
        train, validation = windows.rows(batch)
        assert train.stop == validation.start
    assert windows.rows(0)[0].start == 0
    assert windows.rows(BATCHES - 1)[1].stop == len(Dataset(name).target)


def test_a_changed_file_is_refused(tmp_path) -> None:
    for file in ("boston.npz", stream_data.SUMS_FILE):
        shutil.copy(stream_data.data_folder() / file, tmp_path)
    assert load("boston", tmp_path)["target"].shape == (506,)
    content = bytearray((tmp_path / "boston.npz").read_bytes())
    content[len(content) // 2] ^= 1
    (tmp_path / "boston.npz").write_bytes(content)
    with pytest.raises(CorruptData, match=r"boston\.npz must have the SHA-256 sum"):
        load("boston", tmp_path)


def test_every_file_has_a_checksum() -> None:
    shipped = {path.stem for path in stream_data.data_folder().glob("*.npz")}
    assert shipped == {"california", "boston", "california_table", "boston_table", "digits_table"}
    for name in shipped:
        load(name)


def test_where_the_data_are_missing_the_error_says_how_to_get_them(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("RASP_STREAM_DATA", str(tmp_path / "nowhere"))
    for fail in (STREAMS["S3_Digits"], lambda: stream_data.save("x", {"values": np.zeros(1)})):
        with pytest.raises(MissingData, match="unset RASP_STREAM_DATA, or set it to") as caught:
            fail()
        assert str(tmp_path / "nowhere") in str(caught.value)
        assert "\n" not in str(caught.value)


def test_the_variable_names_another_folder(tmp_path, monkeypatch) -> None:
    stream_data.save("x", {"values": np.arange(3.0)}, tmp_path)
    monkeypatch.setenv("RASP_STREAM_DATA", str(tmp_path))
    assert load("x")["values"].tolist() == [0.0, 1.0, 2.0]


def test_the_package_contains_no_large_file() -> None:
    package = Path(rasp_tuner.__file__).parent
    files = [path for path in package.rglob("*") if path.is_file() and "__pycache__" not in path.parts]
    large = {path.stem: path.stat().st_size for path in files if path.stat().st_size > 100_000}
    assert set(large) <= {"libraspkernel"}  # compiled where there is a compiler


def test_saving_twice_gives_the_same_bytes(tmp_path) -> None:
    for folder in (tmp_path / "a", tmp_path / "b"):
        folder.mkdir()
        stream_data.save("x", {"values": np.arange(5.0)}, folder)
    assert (tmp_path / "a/x.npz").read_bytes() == (tmp_path / "b/x.npz").read_bytes()
    assert load("x", tmp_path / "a")["values"].tolist() == [0.0, 1.0, 2.0, 3.0, 4.0]


def test_contexts_are_finite_and_differ(stream: TabularStream) -> None:
    contexts = np.array([stream.context_fn(batch) for batch in range(BATCHES)])
    assert contexts.shape == (BATCHES, stream.context_dim)
    assert np.isfinite(contexts).all()
    assert len(np.unique(contexts, axis=0)) == BATCHES
    stream.context_fn(0)[:] = 9.0  # a caller's own copy
    assert (stream.context_fn(0) == contexts[0]).all()


def test_regret_is_never_negative_and_zero_at_the_best_cell(stream: TabularStream) -> None:
    rng = np.random.default_rng(0)
    table = load(f"{DATASETS[stream.name]}_table")["mse"]
    for batch in range(BATCHES):
        best = np.unravel_index(table[batch].argmin(), GRID)
        theta = np.array([levels[i] for levels, i in zip(LEVELS.values(), best, strict=True)])
        assert stream.true_loss(theta, batch) == stream.minimum(batch)
        for point in rng.uniform(size=(10, stream.space.dim)):
            assert stream.true_loss(stream.theta(point), batch) >= stream.minimum(batch)


def test_a_setting_between_levels_counts_as_the_nearest_level(stream: TabularStream) -> None:
    on_grid = stream.true_loss(np.array([0.1, 100, 3, 1.0]), 5)
    assert stream.true_loss(np.array([0.08, 95, 3, 1.0]), 5) == on_grid
    assert stream.true_loss(np.array([0.06, 95, 3, 1.0]), 5) == stream.true_loss(np.array([0.05, 100, 3, 1.0]), 5)
    seven, eight = (stream.true_loss(np.array([0.1, trees, 3, 1.0]), 5) for trees in (7, 8))
    assert seven == eight  # not six: on a log scale
    table = load(f"{DATASETS[stream.name]}_table")["mse"]
    assert stream.true_loss(stream.theta(np.zeros(4)), 0) == table[0, 0, 0, 0, 0]
    assert stream.true_loss(stream.theta(np.ones(4)), 0) == table[0, -1, -1, -1, -1]


def test_the_default_is_that_of_scikit_learn(stream: TabularStream) -> None:
    from sklearn.ensemble import GradientBoostingRegressor

    ours = dict(zip(stream.space.knobs, stream.theta(stream.default), strict=True))
    theirs = GradientBoostingRegressor().get_params()
    assert ours == {name: theirs[name] for name in ours}
    for name, value in ours.items():
        assert value in LEVELS[name]


def test_the_stream_replays_after_its_last_batch(stream: TabularStream) -> None:
    sequence = stream.build_sequence(250, seed=3)
    assert list(sequence[:BATCHES]) == list(range(BATCHES))
    assert sequence[BATCHES:200] == sequence[:BATCHES]
    assert sequence == stream.build_sequence(250, seed=4)


def test_noise_is_small_unbiased_and_comes_from_the_generator(stream: TabularStream) -> None:
    theta = stream.theta(stream.default)
    rng = np.random.default_rng(0)
    ratios = np.array([stream.metric_fn(theta, 0, rng)["val_mse"] for _ in range(2000)]) / stream.true_loss(theta, 0)
    assert np.log(ratios).std() == pytest.approx(NOISE, rel=0.1)
    assert np.log(ratios).mean() == pytest.approx(0.0, abs=NOISE / 10)
    again = [stream.metric_fn(theta, 0, np.random.default_rng(7)) for _ in range(2)]
    assert again[0] == again[1]


@pytest.mark.parametrize(("name", "batch"), [("california", 42), ("boston", 7), ("digits", 99)])
def test_a_part_measured_again_equals_the_committed_table(name: str, batch: int) -> None:
    dataset, table = Dataset(name), load(f"{name}_table")
    # Deeper or more trees meet ties that the last bit of a float decides, so they may differ on another processor.
    for i, j, k, stages in [(3, 0, 2, 16), (2, 0, 0, 11), (3, 1, 2, 3)]:
        settings = (LEVELS["learning_rate"][i], LEVELS["max_depth"][j], LEVELS["subsample"][k])
        measured = dataset.curve(batch, *settings, seed=batch)
        np.testing.assert_allclose(measured[:stages], table["mse"][batch, i, :stages, j, k], rtol=1e-5)
    np.testing.assert_allclose(dataset.context(batch), table["context"][batch], rtol=1e-5, atol=1e-6)


def test_gradient_norms_see_a_shift_that_the_base_model_did_not() -> None:
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(200, 3))
    steady = rows @ [1.0, -1.0, 0.5]
    shifted = steady + np.repeat([0.0, 2.0], 100)
    assert gradient_norms(rows, steady) == pytest.approx([0.0, 0.0], abs=0.03)
    assert gradient_norms(rows, shifted) == pytest.approx([2.0, 2.0], rel=0.2)
