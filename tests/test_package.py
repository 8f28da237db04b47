"""The package as installed: light imports, a base install that says what it lacks, nothing pickled."""

import ast
import os
import subprocess
import sys
import venv
from pathlib import Path

import numpy as np
import pytest

import rasp_tuner

SOURCE = Path(rasp_tuner.__file__).parent
HEAVY = ["torch", "scipy", "matplotlib", "pandas", "sklearn", "typer", "rich"]


def run(python, code, *flags):
    # without inherited settings: what is measured is a plain interpreter
    environment = {"PATH": os.environ["PATH"], "HOME": os.environ.get("HOME", "/")}
    return subprocess.run([python, *flags, "-c", code], capture_output=True, text=True, check=False, env=environment)


@pytest.fixture(scope="module")
def base_python(tmp_path_factory):
    """An interpreter of its own that sees NumPy and rasp_tuner and nothing else."""
    folder = tmp_path_factory.mktemp("base")
    venv.create(folder, symlinks=True)
    site = next((folder / "lib").glob("python*/site-packages"))
    for package in (SOURCE, *Path(np.__file__).parent.parent.glob("numpy*")):
        (site / package.name).symlink_to(package)
    return str(folder / "bin" / "python")


def test_import_is_quick_and_loads_nothing_heavy():
    code = (
        "import sys, time; started = time.process_time(); from rasp_tuner import Tuner, Float;"
        f"took = time.process_time() - started; print(took, [m for m in {HEAVY} if m in sys.modules])"
    )
    runs = [run(sys.executable, code) for _ in range(5)]  # processor time, best of five: other work must not count
    for result in runs:
        assert result.returncode == 0, result.stderr
        assert result.stdout.split(maxsplit=1)[1].strip() == "[]"
    assert min(float(result.stdout.split()[0]) for result in runs) < 0.5


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
        assert len(file.read_text().splitlines()) <= 400, file
