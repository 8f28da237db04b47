"""What pytest collects: files with examples of `src`, and those files of `tests` that hold a wanted test."""

from collections.abc import Generator
from fnmatch import fnmatch
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parent

# Whole files that `make test` leaves to `make test-ci`: heavy packages, browsers, other programs, or the laboratory.
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

# Of these whole files that `make test-ci` leaves to `make test-all`: what measures peers and systems, and packages that
# take long to start.
NIGHTLY_FILES = (
    "src/rasp_lab/*",
    "tests/integrations/test_kernel_tuner.py",
    "tests/lab/bench/agents/*",
    "tests/lab/bench/test_ray.py",
    "tests/lab/public/*",
    "tests/lab/real/*",
    "tests/lab/test_real_programs.py",
    "tests/lab/theory/*",
    "tests/test_bad_files.py",
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
def is_among(path: Path, files: tuple[str, ...]) -> bool:
    """Whether a file, or all files of a folder, are among these."""
    path = path / "test_any.py" if path.is_dir() else path
    return path.is_relative_to(ROOT) and any(fnmatch(path.relative_to(ROOT).as_posix(), name) for name in files)


UNWANTED = {"not slow": SLOW_FILES, "not nightly": NIGHTLY_FILES}  # by what was asked for


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Skip what holds no test that is wanted: importing it, in every worker, would take longer than many tests."""
    if is_among(collection_path, UNWANTED.get(config.option.markexpr, ())):
        return True  # of a folder without a wanted test not even its conftest.py is wanted
    if collection_path.suffix != ".py":
        return None
    in_source = collection_path.is_relative_to(ROOT / "src")
    text = collection_path.read_text(encoding="utf-8")
    if in_source and ">>>" not in text:
        return True
    if config.option.markexpr == "slow" and not is_among(collection_path, SLOW_FILES):
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
    """Mark all tests of such files; what is for the night is slow, too."""
    if is_among(item.path, NIGHTLY_FILES):
        item.add_marker(pytest.mark.nightly)
    if is_among(item.path, SLOW_FILES) or item.get_closest_marker("nightly"):
        item.add_marker(pytest.mark.slow)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the longest files first."""
    first = {ROOT / name: place for place, name in enumerate(FIRST_FILES)}
    items.sort(key=lambda item: first.get(item.path, len(first)))
