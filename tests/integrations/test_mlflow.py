"""The recipe of docs/MLFLOW.md with a real tracking store."""

from importlib import import_module
from importlib.util import find_spec

import pytest
from page_blocks import block

# MLflow takes seconds to be imported, so that no worker does before its first test, and to make its tables
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(find_spec("mlflow") is None, reason="a package of its own: pip install mlflow-skinny"),
    pytest.mark.filterwarnings("ignore:The ``noload`` loader strategy:DeprecationWarning"),  # MLflow's
    pytest.mark.filterwarnings("ignore:unclosed database:ResourceWarning"),  # MLflow's
]


@pytest.mark.nightly
def test_the_recipe_of_the_page_logs_every_step_and_the_report(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    page = {}
    exec(compile(block("MLFLOW.md"), "docs/MLFLOW.md", "exec"), page)  # noqa: S102
    client = import_module("mlflow").MlflowClient()
    experiment = client.get_experiment_by_name("checkout")
    [run] = client.search_runs([experiment.experiment_id])
    assert run.info.status == "FINISHED"
    assert run.data.params == {"default/cache_gb": "8.0"}
    told = page["tuner"].history()
    for name, field in (("p99_ms", "metrics"), ("cache_gb", "params"), ("qps", "context")):
        key = {"metrics": name, "params": f"knob/{name}", "context": f"context/{name}"}[field]
        logged = {one.step: one.value for one in client.get_metric_history(run.info.run_id, key)}
        assert logged == pytest.approx({row["step"]: row[field][name] for row in told})
    expected = {one.step: one.value for one in client.get_metric_history(run.info.run_id, "expected")}
    assert expected == pytest.approx({row["step"]: row["expected"] for row in told if row["expected"] is not None})
    assert [file.path for file in client.list_artifacts(run.info.run_id)] == ["report.html"]
