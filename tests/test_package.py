"""The package as installed: light imports, a base install that says what it lacks, nothing pickled."""

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
from rasp_lab.extras import EXTRAS as LAB_EXTRAS
from rasp_tuner import paper
from rasp_tuner.cli.extras import EXTRAS
from rasp_tuner.engine.kernel import build

SOURCE = Path(rasp_tuner.__file__).parent
ROOT = Path(__file__).parents[1]
PROJECTS = {
    "rasp-tuner": tomllib.loads((ROOT / "pyproject.toml").read_text())["project"],
    "rasp-lab": tomllib.loads((ROOT / "lab" / "pyproject.toml").read_text())["project"],
}
HEAVY = ["torch", "scipy", "matplotlib", "pandas", "sklearn", "typer", "rich", "rasp_lab"]
PATHS = f"import sys; sys.path[:0] = {[path for path in sys.path if path]};"


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
        f"print(len(set(sys.modules) - before), [m for m in sys.modules if m in {HEAVY} or 'paper' in m])"
    )
    result = run(sys.executable, code)
    assert result.returncode == 0, result.stderr
    count, heavy = result.stdout.split(maxsplit=1)
    assert heavy.strip() == "[]"
    assert int(count) < 210


def test_base_install_imports_and_defines_spaces(base_python):
    result = run(base_python, "from rasp_tuner import Tuner, Float; print(Float(0, 1).from_unit(0.5))", "-W", "error")
    assert (result.stdout, result.stderr) == ("0.5\n", "")


def test_base_install_says_which_extra_the_networks_need(base_python):
    code = """
from rasp_tuner import *
from rasp_tuner import errors, paper
for needs in (lambda: Tuner({"x": Float(0, 1)}, {"m": "min"}, preset="paper"), lambda: paper.PromptMoE):
    try:
        needs()
    except errors.MissingExtra as reason:
        print(reason)
"""
    result = run(base_python, code)
    assert result.stderr == ""
    assert ["pip install 'rasp-tuner[neural]'" in line for line in result.stdout.splitlines()] == [True, True]


def test_base_install_says_which_extra_the_commands_need(base_python):
    result = run(base_python, "from rasp_tuner.__main__ import main; main()")
    assert result.returncode == 1
    assert result.stderr == "rasp: the commands need typer, which is not installed: pip install 'rasp-tuner[cli]'\n"


def commands(before, *lines):
    """Commands one after the other in a plain interpreter: their exit codes are its last line."""
    code = f"""{PATHS}
{before}
from rasp_tuner.__main__ import main
codes = []
for words in {[line.split() for line in lines]}:
    sys.argv = ["rasp", *words]
    try:
        main()
    except SystemExit as end:
        codes.append(end.code)
print(codes)"""
    return run(sys.executable, code)


def test_without_the_laboratory_its_commands_say_what_to_install():
    names = ("demo", "bench", "bench-report", "results", "theory")
    alone = "import importlib.metadata as m; m.entry_points = lambda **_: (); sys.modules['rasp_lab'] = None"
    done = commands(alone, *(f"{name} --out x --help" for name in names), "--help")
    said = [f"rasp: `rasp {name}` is a command of the laboratory: pip install rasp-lab" for name in names]
    assert done.stderr.splitlines() == said
    *shown, codes = done.stdout.splitlines()
    assert codes == "[1, 1, 1, 1, 1, 0]"
    assert "serve" in "".join(shown)
    assert "demo" not in "".join(shown)


def test_the_laboratory_brings_its_commands_by_an_entry_point():
    assert PROJECTS["rasp-lab"]["entry-points"]["rasp_tuner.commands"] == {"lab": "rasp_lab.cli"}
    shown = run(sys.executable, PATHS + "from rasp_tuner.__main__ import main; sys.argv = ['rasp', '--help']; main()")
    assert re.search(r"Laboratory.*demo.*bench.*theory", shown.stdout, re.DOTALL)


BLOCKED = "for name in ('fcntl', 'resource', 'pwd', 'grp', 'termios'): sys.modules[name] = None\n"  # not on Windows


def test_the_library_imports_where_there_is_no_posix():
    """On Windows these modules of the standard library do not exist."""
    names = ("fleet", "paper", "policy", "report", "context_report", "client", "cli")
    code = f"from rasp_tuner import {', '.join(names)}, Float\nprint(Float(0, 1).from_unit(0.5))"
    done = run(sys.executable, f"{PATHS}\n{BLOCKED}{code}")
    assert (done.stdout, done.stderr) == ("0.5\n", "")


def test_commands_that_need_posix_say_so_in_one_line(tmp_path):
    (tmp_path / "study.toml").write_text("")
    lines = ("tune --knob x=0..1 --metric time -- true", "watch study.toml", "serve --data d")
    done = commands(f"{BLOCKED}import os; os.chdir({str(tmp_path)!r})", *lines)
    said = "rasp: this command needs Linux or macOS; on Windows the library, fleets and the client work\n"
    assert (done.stdout, done.stderr) == ("[1, 1, 1]\n", 3 * said)


def test_the_base_install_is_numpy_and_one_small_package():
    assert PROJECTS["rasp-tuner"]["dependencies"] == ["numpy>=2.1", "threadpoolctl>=3.5"]


def packages_of(requirement):
    """The packages that a requirement on one of our two distributions brings, such as rasp-tuner[serve,cli]."""
    name, extras = re.match(r"([\w-]+)(?:\[(.*)\])?", requirement).groups(default="")
    project = PROJECTS[name]
    lines = list(project["dependencies"])
    for extra in filter(None, extras.split(",")):
        lines += project["optional-dependencies"][extra]
    for line in lines:
        if re.match(r"[\w-]+", line)[0] in PROJECTS:
            yield from packages_of(line)
        else:
            yield re.match(r"[\w-]+", line)[0]


def test_the_demo_brings_no_heavy_package():
    brought = set(packages_of("rasp-lab"))
    assert {"typer", "rich", "matplotlib", "cmaes", "scipy", "joblib"} <= brought
    assert not brought & {"torch", "ray", "optuna", "botorch", "vowpalwabbit", "scikit-learn"}


def test_missing_packages_are_mapped_to_the_extras_that_bring_them():
    names = {
        "sklearn": "scikit-learn", "prometheus_client": "prometheus-client",
        "kernel_tuner": "kernel-tuner", "opentelemetry": "opentelemetry-sdk",
    }  # fmt: skip
    indirect = {"gpytorch": "botorch", "torch": "botorch"}  # brought by
    for module, requirement in (*EXTRAS.items(), *LAB_EXTRAS.items()):
        packages = {names.get(module, module), indirect.get(module)}
        assert packages & set(packages_of(requirement)), module


def test_the_wheel_stays_small():
    """The wheel holds src/rasp_tuner, with the C files, which GPUs need; text compresses to about a third."""
    files = [file for file in SOURCE.rglob("*") if file.is_file() and "__pycache__" not in file.parts]
    large = {file.stem: file.stat().st_size for file in files if file.stat().st_size > 40_000}
    assert large.pop("libraspkernel", 0) < 700_000  # loops for wider vectors are there twice; older compilers unroll
    assert large == {}
    with zipfile.ZipFile(io.BytesIO(), "w", zipfile.ZIP_DEFLATED) as wheel:
        for file in files:
            wheel.write(file)
        assert sum(entry.compress_size for entry in wheel.infolist()) < 1_200_000


def test_nothing_is_pickled():
    imports = re.compile(r"^\s*(?:from|import)\b.*\b(?:pickle|dill|cloudpickle|marshal|shelve)\b", re.MULTILINE)
    assert imports.search("def f():\n    from os import pickle")
    for file in SOURCE.rglob("*.py"):
        assert not imports.search(file.read_text()), file


def test_randomness_comes_from_the_one_owned_generator():
    for file in SOURCE.rglob("*.py"):
        text = file.read_text()
        assert "import random" not in text, file
        assert "torch.rand" not in text, file
        assert "manual_seed" not in text, file
        assert "np.random.seed" not in text, file


def test_public_names_exist_and_others_are_refused():
    for package, name, wrong in ((rasp_tuner, "Fleet", "Tunr"), (paper, "PromptMoE", "PromptMoe")):
        for public in (*package.__all__, name):
            assert getattr(package, public) is not None
        with pytest.raises(AttributeError, match=f"no attribute '{wrong}'"):
            getattr(package, wrong)


def test_the_users_names_are_no_parts_of_the_paper():
    """These are in rasp_tuner.paper, which a plain import does not load."""
    assert not set(rasp_tuner.__all__) & set(paper.__all__)


def test_files_stay_small_enough_to_hold_in_mind():
    for file in SOURCE.rglob("*.py"):
        assert len(file.read_text().splitlines()) <= 700, file


def test_the_table_of_constants_is_current():
    """`python tools/engine_constants.py` writes it."""
    table = runpy.run_path(str(ROOT / "tools" / "engine_constants.py"))
    found = table["constants"]()
    assert (ROOT / "docs" / "ENGINE_CONSTANTS.md").read_text() == table["page"](found)
    assert (ROOT / "docs" / "tables" / "engine-constants.csv").read_text() == table["table"](found)
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
