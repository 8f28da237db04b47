"""The package for OptunaHub's registry: its layout, and that it loads by its path, as OptunaHub loads it."""

import re
import runpy
import sys
from importlib import metadata
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

import optuna
import pytest

from rasp_tuner.integrations.optuna import RaspSampler

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "examples/optunahub/package/samplers/rasp"


def load_module(package):
    """As optunahub, which is not installed here, does: by path, under a name of its own."""
    spec = spec_from_file_location("optunahub_registry.package.samplers.rasp", PACKAGE / "__init__.py")
    assert PACKAGE.as_posix().endswith(package)
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def optunahub(monkeypatch):
    stand_in = ModuleType("optunahub")
    stand_in.load_module = load_module
    monkeypatch.setitem(sys.modules, "optunahub", stand_in)
    verbosity = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    yield stand_in
    optuna.logging.set_verbosity(verbosity)


def test_the_package_has_what_the_registry_asks_for():
    front, rest = (PACKAGE / "README.md").read_text().removeprefix("---\n").split("---\n", 1)
    fields = dict(line.split(": ", 1) for line in front.splitlines())
    assert list(fields) == ["author", "title", "description", "tags", "optuna_versions", "license"]
    assert "sampler" in fields["tags"]
    assert metadata.version("optuna") in fields["optuna_versions"]
    assert re.findall(r"^## (.*)", rest, re.MULTILINE)[:2] == ["Abstract", "Class or Function Names"]
    assert (PACKAGE / "LICENSE").read_text() == (ROOT / "LICENSE").read_text()


def test_the_example_finds_both_sizes(optunahub, capsys):
    assert optunahub.load_module("samplers/rasp").RaspSampler is RaspSampler
    runpy.run_path(str(PACKAGE / "example.py"))
    assert [round(float(size)) for size in re.findall(r"cache_gb': ([\d.]+)", capsys.readouterr().out)] == [40, 4]


def test_the_example_of_the_readme_runs(optunahub, capsys):
    del optunahub
    code = re.search(r"```python\n(.*?)```", (PACKAGE / "README.md").read_text(), re.DOTALL)[1]
    exec(compile(code, "README.md", "exec"), {})  # noqa: S102 - our own page
    assert [round(float(x)) for x in re.findall(r"x': ([\d.]+)", capsys.readouterr().out)] == [7, 2]
