"""What pytest collects: files with examples of `src`, and those files of `tests` that hold a wanted test."""

from collections.abc import Generator
from fnmatch import fnmatch
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parent

# Whole files that `make test` leaves to `make test-all`: heavy packages, browsers, other programs, or the laboratory.
SLOW_FILES = (
    "src/rasp_lab/*",
    "src/rasp_tuner/integrations/ray_space.py",
    "tests/lab/*",
    "tests/fleet/test_fleet_gpu*.py",
    "tests/fleet/test_fleet_ray.py",
    "tests/integrations/test_kernel_tuner.py",
    "tests/integrations/test_mcp_alone.py",
    "tests/integrations/test_mlflow.py",
    "tests/integrations/test_ray_*.py",
    "tests/paper/*",
    "tests/service/test_approvals_page.py",
    "tests/service/test_dashboard.py",
    "tests/service/test_doctor.py",
    "tests/service/test_flagd.py",
    "tests/service/test_leases.py",
    "tests/service/test_ofrep_providers.py",
    "tests/service/test_ofrep_servers.py",
    "tests/service/test_reliability.py",
    "tests/test_bad_files.py",
    "tests/test_measured_contract.py",
    "tests/watch/test_watch_prometheus.py",
)

# What takes or waits longest comes first: no worker is left with it at the end, when others have nothing to do. One
# that has nothing to do takes tests from the end of another's, so that what these files start is started once.
FIRST_FILES = (
    "tests/lab/test_sanitizers.py",
    "tests/service/test_reliability.py",
    "tests/fleet/test_fleet_ray.py",
    "tests/integrations/test_ray_tune.py",
    "tests/lab/bench/test_ray.py",
    "tests/lab/theory/test_theory_suite.py",
    "tests/service/test_ofrep_providers.py",
    "tests/watch/test_watch_prometheus.py",
    "tests/test_bad_files.py",
    "tests/test_readme.py",
    "tests/tune/test_tune_docs.py",
)


@cache  # it is asked for every test
def is_slow(path: Path) -> bool:
    """Whether all tests of a file are slow."""
    return path.is_relative_to(ROOT) and any(fnmatch(path.relative_to(ROOT).as_posix(), name) for name in SLOW_FILES)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Skip what holds no test that is wanted: importing it, in every worker, would take longer than many tests."""
    unwanted = config.option.markexpr == "not slow"
    if collection_path.is_dir():  # a folder without a wanted test: nor is its conftest.py wanted
        return True if unwanted and is_slow(collection_path / "test_any.py") else None
    if collection_path.suffix != ".py":
        return None
    if unwanted and is_slow(collection_path):
        return True
    in_source = collection_path.is_relative_to(ROOT / "src")
    text = collection_path.read_text(encoding="utf-8")
    if in_source and ">>>" not in text:
        return True
    if config.option.markexpr == "slow" and not is_slow(collection_path):
        on_postgres = collection_path.is_relative_to(ROOT / "tests/service")  # a fixture there runs tests twice
        return True if "mark.slow" not in text and not on_postgres else None
    return None


@pytest.hookimpl(wrapper=True)
def pytest_collect_file(file_path: Path) -> Generator[None, list[pytest.Collector], list[pytest.Collector]]:
    """Look for examples only in files that have some: doctest would look at everything that a file of tests defines."""
    found = yield
    if file_path.suffix == ".py" and ">>>" not in file_path.read_text(encoding="utf-8"):
        found = [one for one in found if type(one) is pytest.Module]
    return found


def pytest_itemcollected(item: pytest.Item) -> None:
    """Mark all tests of slow files."""
    if is_slow(item.path):
        item.add_marker(pytest.mark.slow)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the longest files first."""
    first = {ROOT / name: place for place, name in enumerate(FIRST_FILES)}
    items.sort(key=lambda item: first.get(item.path, len(first)))
