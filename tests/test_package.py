"""The package as installed: light imports, a base install that says what it lacks, nothing pickled."""

import ast
import io
import os
import re
import runpy
import subprocess
import sys
import tomllib
import venv
import zipfile
from pathlib import Path

import numpy as np
import pytest

import rasp_tuner
from rasp_tuner.core.extras import EXTRAS
from rasp_tuner.engine.kernel import build

SOURCE = Path(rasp_tuner.__file__).parent
ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
HEAVY = ["torch", "scipy", "matplotlib", "pandas", "sklearn", "typer", "rich"]


def run(python, code, *flags):
    # without inherited settings: what is measured is a plain interpreter
    environment = {"PATH": os.environ["PATH"], "HOME": os.environ.get("HOME", "/")}
    return subprocess.run([python, *flags, "-c", code], capture_output=True, text=True, check=False, env=environment)


@pytest.fixture(scope="module")
def base_python(tmp_path_factory):
    """An interpreter of its own that sees rasp_tuner and what it depends on, and nothing else."""
    folder = tmp_path_factory.mktemp("base")
    venv.create(folder, symlinks=True)
    site = next((folder / "lib").glob("python*/site-packages"))
    installed = Path(np.__file__).parent.parent
    for package in (SOURCE, *installed.glob("numpy*"), *installed.glob("threadpoolctl*")):
        (site / package.name).symlink_to(package)
    return str(folder / "bin" / "python")


def test_import_loads_few_modules_and_nothing_heavy():
    """Counted, not timed: a slow machine must not fail it."""
    code = (
        f"import sys, numpy; sys.path.insert(0, {str(SOURCE.parent)!r}); before = set(sys.modules);"
        "from rasp_tuner import Tuner, Float;"
        f"print(len(set(sys.modules) - before), [m for m in {HEAVY} if m in sys.modules])"
    )
    result = run(sys.executable, code)
    assert result.returncode == 0, result.stderr
    count, heavy = result.stdout.split(maxsplit=1)
    assert heavy.strip() == "[]"
    assert int(count) < 195


def test_base_install_imports_and_defines_spaces(base_python):
    result = run(base_python, "from rasp_tuner import Tuner, Float; print(Float(0, 1).from_unit(0.5))", "-W", "error")
    assert (result.stdout, result.stderr) == ("0.5\n", "")


@pytest.mark.parametrize("code", ["Tuner({'x': Float(0, 1)}, {'m': 'min'}, preset='paper')", "rasp_tuner.PromptMoE"])
def test_base_install_says_which_extra_the_networks_need(base_python, code):
    result = run(base_python, f"import rasp_tuner\nfrom rasp_tuner import *\n{code}")
    assert result.returncode != 0
    assert "MissingExtra" in result.stderr
    assert "pip install 'rasp-tuner[neural]'" in result.stderr


def test_base_install_says_which_extra_the_commands_need(base_python):
    result = run(base_python, "from rasp_tuner.__main__ import main; main()")
    assert result.returncode == 1
    assert result.stderr == "rasp: the commands need typer, which is not installed: pip install 'rasp-tuner[cli]'\n"


def test_the_base_install_is_numpy_and_one_small_package():
    assert PROJECT["dependencies"] == ["numpy>=2.1", "threadpoolctl>=3.5"]


def packages_of(extra):
    """The packages that an extra brings, with those of the extras that it includes."""
    for line in PROJECT["optional-dependencies"][extra]:
        if line.startswith("rasp-tuner["):
            for other in line.removeprefix("rasp-tuner[").rstrip("]").split(","):
                yield from packages_of(other)
        else:
            yield re.match(r"[\w-]+", line)[0]


def test_the_demo_brings_no_heavy_package():
    brought = set(packages_of("demo"))
    assert {"typer", "rich", "matplotlib", "cmaes", "scipy", "joblib"} <= brought
    assert not brought & {"torch", "ray", *packages_of("peers")}


def test_missing_packages_are_mapped_to_the_extras_that_bring_them():
    names = {
        "sklearn": "scikit-learn", "prometheus_client": "prometheus-client",
        "mlflow": "mlflow-skinny", "kernel_tuner": "kernel-tuner",
        "openfeature": "openfeature-sdk",
    }  # fmt: skip
    indirect = {"gpytorch": "botorch", "torch": "botorch"}  # brought by
    for module, extra in EXTRAS.items():
        assert indirect.get(module, names.get(module, module)) in set(packages_of(extra)), module


def test_the_wheel_stays_small():
    """The wheel holds src/rasp_tuner, with the C files, which GPUs need; text compresses to about a third."""
    files = [file for file in SOURCE.rglob("*") if file.is_file() and "__pycache__" not in file.parts]
    large = {file.stem: file.stat().st_size for file in files if file.stat().st_size > 30_000}
    assert large.pop("libraspkernel", 0) < 400_000  # twice, of loops that exist for wider vectors
    assert large == {}
    with zipfile.ZipFile(io.BytesIO(), "w", zipfile.ZIP_DEFLATED) as wheel:
        for file in files:
            wheel.write(file)
        assert sum(entry.compress_size for entry in wheel.infolist()) < 1_200_000


def test_nothing_is_pickled():
    for file in SOURCE.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, (ast.Import, ast.ImportFrom)):
                names = [alias.name for alias in node.names] + [getattr(node, "module", None) or ""]
                assert not {"pickle", "dill", "cloudpickle", "marshal", "shelve"} & set(names), file


def test_randomness_comes_from_the_one_owned_generator():
    for file in SOURCE.rglob("*.py"):
        text = file.read_text()
        assert "import random" not in text, file
        assert "torch.rand" not in text, file
        assert "manual_seed" not in text, file
        assert "np.random.seed" not in text, file


def test_public_names_exist_and_others_are_refused():
    for name in (*rasp_tuner.__all__, "PromptMoE"):
        assert getattr(rasp_tuner, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'Tunr'"):
        rasp_tuner.Tunr  # noqa: B018


def test_files_stay_small_enough_to_hold_in_mind():
    for file in SOURCE.rglob("*.py"):
        assert len(file.read_text().splitlines()) <= 600, file


def test_the_table_of_constants_is_current():
    """`python tools/engine_constants.py` writes it."""
    table = runpy.run_path(str(ROOT / "tools" / "engine_constants.py"))
    found = table["constants"]()
    assert (ROOT / "docs" / "ENGINE_CONSTANTS.md").read_text() == table["page"](found)
    assert [one for one in found if not one.bounds] == []  # each has a comment that says what it bounds
    assert {name for names in table["NAMES"].values() for name in names} <= {one.name for one in found}


def test_the_constants_in_c_are_those_of_python():
    """`python -m rasp_tuner.engine.kernel.build` writes them."""
    assert [name for name in build.CONSTANTS if (build.SOURCES / name).read_text() != build.header(name)] == []


def test_constants_are_found_however_they_are_written(tmp_path):
    lines = [
        "ONE = 1.0  # behind",
        "# above,",
        "# in two lines",
        "TWO, THREE = -2, 3.0e9",
        "FOUR = np.array([1.0, 2.0])  # an array",
        "PRIORS = {",
        '    "gs": (0.4, 1.0),  # a share',
        "}",
        "DERIVED = 2.0 * ONE",
        'TEXT, NOTHING, TABLE, COUNTED = "1", None, {"a": 1}, len("ab")',
        "lower = 1.0",
    ]
    (tmp_path / "some.py").write_text("\n".join(lines))
    table = runpy.run_path(str(ROOT / "tools" / "engine_constants.py"))
    found = table["constants"](tmp_path)
    assert [tuple(one) for one in found] == [
        ("some.py", "ONE", "1.0", "behind"),
        ("some.py", "TWO", "-2", "above, in two lines"),
        ("some.py", "THREE", "3.0e9", "above, in two lines"),
        ("some.py", "FOUR", "np.array([1.0, 2.0])", "an array"),
        ("some.py", "PRIORS: gs", "0.4, 1.0", "a share"),
    ]
    assert [one.name for one in found if table["is_extreme"](one)] == ["THREE"]
