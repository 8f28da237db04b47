"""MlflowLogger with a real tracking store: what is logged, and what becomes of it when the store is away."""

import logging
import math
import shutil
import socket
import sys
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import pytest
from page_blocks import block

from rasp_tuner import Categorical, Float, InvalidValue, MissingExtra, Tuner
from rasp_tuner.integrations.mlflow_steps import TextNumbers, clean

# MLflow takes seconds to be imported, so that no worker does before its first test, and to make its tables
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(find_spec("mlflow") is None, reason="an extra of its own: pip install 'rasp-tuner[mlflow]'"),
    pytest.mark.filterwarnings("ignore:The ``noload`` loader strategy:DeprecationWarning"),  # MLflow's
    pytest.mark.filterwarnings("ignore:unclosed database:ResourceWarning"),  # MLflow's
]
ADAPTER = "rasp_tuner.integrations.mlflow"
TEXTS = {"region": ["eu", "us"]}


@pytest.fixture(scope="module")
def empty_database(tmp_path_factory):
    """Made once: MLflow takes seconds to create its tables."""
    file = tmp_path_factory.mktemp("mlflow") / "empty.db"
    new_client(f"sqlite:///{file}").search_experiments()
    return file


@pytest.fixture
def store(empty_database, tmp_path, monkeypatch):
    """The URI of a fresh tracking store."""
    monkeypatch.chdir(tmp_path)  # artifacts of a store in a file lie in the current folder
    shutil.copy(empty_database, tmp_path / "mlflow.db")
    return f"sqlite:///{tmp_path / 'mlflow.db'}"


def new_client(store):
    from mlflow import MlflowClient

    return MlflowClient(store)


def new_logger(tuner, *words, **settings):
    from rasp_tuner.integrations.mlflow import MlflowLogger

    return MlflowLogger(tuner, *words, **settings)


def new_tuner(**settings):
    knobs = {"cache (GB)": Float(1, 64, log=True), "codec": Categorical(["lz4", "zstd"])}
    default = {"cache (GB)": 8, "codec": "lz4"}
    return Tuner(knobs, {"p99_ms": "min"}, {"qps": "number", "region": "category"}, default, **settings)


def steps(tuner, count):
    for _ in range(count):
        number = tuner.learned
        s = tuner.ask({"qps": 100 * (1 + number % 2), "region": "eu" if number % 3 else "us"})
        if number == 4:
            tuner.tell_failed(s.id, "crashed")
        else:
            tuner.tell(s.id, {"p99_ms": 20 + math.log(s.params["cache (GB)"] / 20) ** 2})


def logged(store, run_id, name):
    """The values of a metric by step."""
    return {metric.step: metric.value for metric in new_client(store).get_metric_history(run_id, name)}


def test_the_ten_lines_of_the_page(store, capsys):
    exec(block("MLFLOW.md"), {})  # noqa: S102
    run_id, waiting = capsys.readouterr().out.split()
    assert waiting == "0"
    assert len(logged(store, run_id, "p99_ms")) == 48


def test_every_step_is_logged_with_what_ran_what_came_and_why(store, tmp_path):
    tuner = new_tuner()
    with new_logger(tuner, "cache", run_name="prod", tracking_uri=store, texts=TEXTS, tags={"team": "db"}) as logger:
        for _ in range(12):
            steps(tuner, 1)
            logger.log()
    client, history = new_client(store), tuner.history(TEXTS)
    run = client.get_run(logger.run_id)
    assert (run.info.run_name, run.info.status, run.data.tags["team"]) == ("prod", "FINISHED", "db")
    assert client.get_experiment(run.info.experiment_id).name == "cache"
    assert logged(store, run.info.run_id, "p99_ms") == {
        row["step"]: row["metrics"]["p99_ms"] for row in history if not row["failed"]
    }
    assert logged(store, run.info.run_id, "knob/cache _GB_") == {
        row["step"]: row["params"]["cache (GB)"] for row in history
    }
    assert logged(store, run.info.run_id, "context/qps") == {row["step"]: row["context"]["qps"] for row in history}
    numbers = TextNumbers(run.data.tags)
    for name, field in (("context/region", "context"), ("knob/codec", "params")):
        short = name.partition("/")[2]
        told = {row["step"]: numbers.numbers({name: row[field][short]})[name] for row in history}
        assert logged(store, run.info.run_id, name) == told
    assert logged(store, run.info.run_id, "run/failed")[4] == 1
    for name, column in (("expected", "expected"), ("default", "expected_default"), ("better", "better")):
        forecast = {row["step"]: row[column] for row in history if row[column] is not None}
        assert logged(store, run.info.run_id, f"forecast/{name}") == forecast
        assert forecast
    assert 0 <= min(logged(store, run.info.run_id, "situation/novelty").values()) <= 1
    assert logged(store, run.info.run_id, "situation/index")
    assert logged(store, run.info.run_id, "budget/spent")[11] == tuner.budget().spent
    assert run.data.params["default.codec"] == "lz4"
    assert "zstd" in run.data.params["knob.codec"]
    report = client.download_artifacts(run.info.run_id, "report.html", str(tmp_path))
    assert "<html" in Path(report).read_text()


def test_a_run_goes_on_in_the_next_process(store):
    tuner = new_tuner()
    steps(tuner, 5)
    first = new_logger(tuner, tracking_uri=store, report=False)
    assert first.flush()
    first.close()
    assert first.close() is None
    steps(tuner, 3)
    again = Tuner.from_bytes(tuner.to_bytes())
    second = new_logger(again, tracking_uri=store, run_id=first.run_id, report=False)
    steps(again, 2)
    second.close()
    assert second.run_id == first.run_id
    history = new_client(store).get_metric_history(first.run_id, "knob/codec")
    assert sorted(metric.step for metric in history) == list(range(10))


def test_a_block_that_raises_ends_the_run_as_failed(store):
    tuner = new_tuner()
    logger = new_logger(tuner, tracking_uri=store, report=False)
    steps(tuner, 1)
    with pytest.raises(ZeroDivisionError), logger:
        _ = 1 / 0
    assert new_client(store).get_run(logger.run_id).info.status == "FAILED"
    assert logged(store, logger.run_id, "p99_ms").keys() == {0}


def test_while_the_store_is_away_the_loop_goes_on_and_nothing_is_lost(empty_database, tmp_path, caplog, monkeypatch):
    monkeypatch.setattr(import_module(ADAPTER), "FIRST_PAUSE_S", 0.05)
    folder, tuner = tmp_path / "later", new_tuner()
    store = f"sqlite:///{folder / 'mlflow.db'}"
    (tmp_path / "later").write_text("a file in the place of the folder")
    with caplog.at_level(logging.WARNING, "rasp_tuner"):
        logger = new_logger(tuner, tracking_uri=store, report=False)
        for _ in range(20):
            steps(tuner, 1)
            logger.log()
        assert not logger.flush(timeout_s=1.0)
        assert (logger.waiting, logger.lost, logger.run_id) == (20, 0, None)
        folder.unlink()
        folder.mkdir()
        shutil.copy(empty_database, folder / "mlflow.db")
        assert logger.flush(timeout_s=30.0)
    logger.close()
    assert [record.getMessage().partition(",")[0] for record in caplog.records] == [
        "MLflow is away or refuses what is sent"
    ]
    assert logged(store, logger.run_id, "knob/codec").keys() == set(range(20))


def test_a_server_that_never_answers_is_said_once_and_at_the_end(caplog):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        uri = f"http://127.0.0.1:{free.getsockname()[1]}"
    tuner = new_tuner()
    with caplog.at_level(logging.WARNING, "rasp_tuner"):
        logger = new_logger(tuner, tracking_uri=uri)
        steps(tuner, 3)
        logger.log()
        logger.close(timeout_s=2.0)
    assert tuner.learned == 3
    away, end = [record.getMessage() for record in caplog.records]
    assert away.startswith("MLflow is away or refuses what is sent, and steps wait")
    assert end.startswith("MLflow was away or refused what was sent: 3 steps of run None were not logged")


def test_what_waits_is_bounded(caplog, monkeypatch):
    monkeypatch.setattr(import_module(ADAPTER), "MOST_STEPS_WAITING", 5)
    monkeypatch.setattr(
        import_module(ADAPTER).MlflowLogger, "_send_some", lambda _: (_ for _ in ()).throw(OSError("away"))
    )
    tuner = new_tuner()
    logger = new_logger(tuner)
    with caplog.at_level(logging.WARNING, "rasp_tuner"):
        for _ in range(8):
            steps(tuner, 1)
            logger.log()
    assert (logger.waiting, logger.lost) == (5, 3)
    assert sum("steps are missing" in record.getMessage() for record in caplog.records) == 1
    logger.close(timeout_s=0.0)


def test_it_follows_the_tuner_of_a_sampler_while_its_space_grows(store):
    optuna = pytest.importorskip("optuna")
    from rasp_tuner.integrations.optuna import RaspSampler

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    sampler = RaspSampler(seed=0)
    logger = new_logger(sampler, tracking_uri=store, report=False)
    logger.log()  # there is no tuner yet

    def objective(trial):
        x = trial.suggest_float("x", 0, 1 + trial.number)
        return x + (trial.suggest_float("late", 0, 1) if trial.number > 3 else 0)

    optuna.create_study(sampler=sampler).optimize(objective, n_trials=8, callbacks=[logger, lambda *_: logger.flush()])
    logger.close()
    assert logged(store, logger.run_id, "value").keys() == set(range(8))
    assert max(logged(store, logger.run_id, "knob/late")) == 7
    assert "knob.late" in new_client(store).get_run(logger.run_id).data.params


def test_names_and_texts_become_what_mlflow_takes():
    assert [clean(name) for name in ("a/b", "größe", "/", "../x", "a//./b")] == ["a/b", "größe", "_", "x", "a/b"]
    one, other = (clean("x" * 300 + end) for end in "ab")
    assert one != other  # what is cut is told apart
    assert len(one) == len(other) == 250
    numbers = TextNumbers({})
    assert numbers.numbers({"a": "eu", "b": True, "c": None, "d": 2}) == {"a": 0, "b": 1, "d": 2}
    assert TextNumbers(numbers.tags()).numbers({"a": "us"}) == {"a": 1}
    for i in range(100):
        numbers.numbers({"a": f"{i}{'x' * 200}"})
        numbers.numbers({"b": f"{i}{'ж' * 200}"})
        numbers.numbers({"c": f"{i}" + '"' * 200})
    assert len(numbers.numbers({"a": "one more" * 20})) == 0
    assert max(len(text) for text in numbers.tags().values()) <= 5000
    assert TextNumbers(numbers.tags()).tags() == numbers.tags()


def test_a_tag_that_was_cut_does_not_stop_the_run(caplog):
    with caplog.at_level(logging.WARNING, "rasp_tuner"):
        numbers = TextNumbers({"numbers.a": '{"eu": 0, "u', "numbers.b": '{"eu": 0}', "numbers.c": "[1]"})
    assert len(caplog.records) == 2
    assert numbers.numbers({"a": "us", "b": "us", "c": "us"}) == {"a": 0, "b": 1, "c": 0}


def test_names_that_are_no_paths_are_logged(store):
    tuner = Tuner({"a//b": Float(0, 1), "../x": Float(0, 1), "größe": Float(0, 1)}, {"/loss/": "min"})
    tuner.tell(tuner.ask().id, {"/loss/": 1.0})
    logger = new_logger(tuner, tracking_uri=store, report=False)
    assert logger.flush(10.0)
    logger.close()
    assert {"loss", "knob/a/b", "knob/x", "knob/größe"} <= new_client(store).get_run(logger.run_id).data.metrics.keys()


def test_steps_beyond_the_record_before_the_first_call_are_counted(monkeypatch):
    monkeypatch.setattr(import_module("rasp_tuner.integrations.mlflow_steps"), "MOST_STEPS", 4)
    monkeypatch.setattr(import_module(ADAPTER).MlflowLogger, "_send_some", lambda _: None)
    tuner = new_tuner()
    steps(tuner, 2)
    logger = new_logger(tuner)
    steps(tuner, 7)
    logger.log()
    assert logger.lost == 3  # of seven; the two before are older than the logger
    logger.close(timeout_s=0.0)


def test_only_a_tuner_can_be_logged():
    with pytest.raises(InvalidValue, match="tuner must be a Tuner"):
        new_logger({"x": 1})


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"experiment": ""}, "experiment must be a name, got ''"),
        ({"experiment": None}, "experiment must be a name, got None"),
        ({"tracking_uri": 5}, "tracking_uri must be a text or None, got 5"),
        ({"run_id": 7}, "run_id must be a text or None, got 7"),
        ({"tags": ["a"]}, "tags must be texts by name"),
    ],
)
def test_what_mlflow_would_always_refuse_is_refused_at_once(wrong, message):
    with pytest.raises(InvalidValue, match=message):
        new_logger(new_tuner(), **wrong)


def test_without_mlflow_the_error_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "mlflow", None)
    monkeypatch.delitem(sys.modules, ADAPTER, raising=False)
    with pytest.raises(MissingExtra, match=r"rasp-tuner\[mlflow\]"):
        import_module(ADAPTER)
