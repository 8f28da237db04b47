"""The C code under sanitizers: tests of the engine pass with it, and what they look for would be seen."""

import subprocess
import sys
from pathlib import Path

import pytest

from rasp_lab.reliability.sanitizers import SANITIZERS, TESTS, sanitized, with_sanitizers
from rasp_tuner.engine.kernel import build

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.skipif(build.compiler() is None, reason="no C compiler")
FAULTS = {
    "AddressSanitizer: heap-buffer-overflow": "double fault(int n) { double *a = malloc(8 * n); return a[n]; }",
    "runtime error: shift exponent": "double fault(int n) { return 1 << (40 * n); }",
}


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    """The C code with sanitizers: building it takes as long as one of these tests."""
    return sanitized(tmp_path_factory.mktemp("sanitized"))


@pytest.mark.nightly
def test_the_compiled_code_keeps_to_its_memory_while_the_engine_runs(library):
    command = [sys.executable, "-m", "rasp_lab.reliability.sanitizers", "--library", library, *TESTS]
    command += ["-k", "not paper and not compile and not smooth and not rounded"]  # two traces run the same code
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, (done.stdout + done.stderr)[-3000:]
    assert " passed" in done.stdout


@pytest.mark.nightly
def test_changed_files_do_no_harm_under_sanitizers(library):
    command = [sys.executable, "-m", "rasp_lab.reliability.fuzz_files", "--sanitize", "--library", library]
    command += ["--files", "50", "--without", "paper", "policy", "export"]  # which run no C, or that of other kinds
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, (done.stdout + done.stderr)[-3000:]


@pytest.mark.parametrize("fault", FAULTS)
def test_the_sanitizers_see_a_fault(fault, tmp_path):
    (tmp_path / "fault.c").write_text(f"#include <stdlib.h>\n{FAULTS[fault]}")
    words = [*build.compiler(), "-O1", "-g", "-fPIC", "-shared", *SANITIZERS, "-o", "fault.so", "fault.c"]
    subprocess.run(words, cwd=tmp_path, check=True)
    code = "import ctypes; ctypes.CDLL('./fault.so').fault(1)"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, env=with_sanitizers(), capture_output=True, text=True, check=False
    )
    assert done.returncode != 0
    assert fault in done.stderr
