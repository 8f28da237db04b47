"""The compiled code under the address and undefined-behaviour sanitizers, while tests of the engine run.

    python -m rasp_lab.reliability.sanitizers                                # tests of the compiled code, golden traces
    python -m rasp_lab.reliability.sanitizers tests/fleet -k "not ray"       # other words for pytest
    python -m rasp_lab.reliability.sanitizers --library FILE                 # a library that was built before

The process ends, with a trace, where C leaves its memory or does what C does not define.
"""

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from rasp_tuner.engine.kernel import build

SANITIZERS = ("-g1", "-O1", "-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-fno-omit-frame-pointer")
TESTS = (
    "tests/engine/test_native_bounds.py",
    "tests/engine/test_gp_native.py",
    "tests/golden",
)
RUN_TESTS = (  # with this library in place of the one that was built
    "import sys; from pathlib import Path; from rasp_tuner.engine.kernel import native;"
    " native.LIBRARY = Path(sys.argv.pop(1)); assert native.available(), native.why_not();"
    " import pytest; sys.exit(pytest.main(sys.argv[1:]))"
)


def sanitized(folder: Path) -> Path:
    """A library of the C code that ends the process where it leaves its memory or does what C does not define."""
    library = folder / build.LIBRARY.name
    why_not = build.build(library, SANITIZERS)
    if why_not:
        sys.exit(f"the C code was not built: {why_not}")
    return library


def with_sanitizers() -> dict[str, str]:
    """The environment of a process that loads such a library; its own libraries must come first."""
    found = [_compiler_file(name) for name in ("libasan.so", "libubsan.so", "libstdc++.so")]
    options = "detect_leaks=0:allocator_may_return_null=1:max_allocation_size_mb=4096"
    own = {"LD_PRELOAD": " ".join(found), "ASAN_OPTIONS": options, "UBSAN_OPTIONS": "print_stacktrace=1"}
    return {**os.environ, **own}


def _compiler_file(name: str) -> str:
    command = build.compiler() or ["gcc"]
    return subprocess.run(
        [*command, f"-print-file-name={name}"], check=True, capture_output=True, text=True
    ).stdout.strip()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--library", type=Path)
    args, words = parser.parse_known_args()
    words = words or [*TESTS, "-k", "not paper and not compile"]
    with tempfile.TemporaryDirectory() as folder:
        library = args.library or sanitized(Path(folder))
        command = [sys.executable, "-c", RUN_TESTS, str(library), "-q", "-p", "no:cacheprovider"]
        return subprocess.run([*command, *words], env=with_sanitizers(), check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
