"""Compiles the kernel's C files into one shared library beside them: `python -m rasp_tuner.engine.kernel.build`.

Used by the build of wheels, too, which loads this file by its path: it imports nothing but the standard library.
"""

import hashlib
import os
import sys
from pathlib import Path

HERE = Path(__file__).parent
SOURCES = HERE / "native"
SUFFIX = {"win32": ".dll", "darwin": ".dylib"}.get(sys.platform, ".so")
LIBRARY = HERE / f"libraspkernel{SUFFIX}"
# no flag asks for the processor at hand, and none lets a compiler reorder sums: every machine computes the same
FLAGS = ["-O3", "-std=c11", "-fPIC", "-fvisibility=hidden", "-ffp-contract=off"]


def digest(sources: Path = SOURCES) -> str | None:
    """Of all C files, to tell a library that was built from others; None where they did not come along."""
    files = sorted(sources.glob("*.[ch]"))
    if not files:
        return None
    return hashlib.sha256(b"\0".join(file.read_bytes() for file in files)).hexdigest()[:16]


def compiler() -> list[str] | None:
    """The command of the system's C compiler; None where there is none."""
    import shlex  # here, as below: whoever only loads the library does without
    import shutil

    chosen = os.environ.get("CC")
    if chosen:
        return shlex.split(chosen)
    found = next(filter(None, map(shutil.which, ("cc", "gcc", "clang"))), None)
    return [found] if found else None


def is_current(library: Path = LIBRARY) -> bool:
    """Whether the library was built from these C files."""
    made_of = digest()
    return made_of is not None and library.exists() and made_of.encode() in library.read_bytes()


def build(library: Path = LIBRARY, extra: tuple[str, ...] = ()) -> str | None:
    """Compile the library, on all cores; the reason why not, if it could not be."""
    import shlex
    import subprocess
    import tempfile
    from concurrent.futures import ThreadPoolExecutor

    command, made_of = compiler(), digest()
    if command is None or made_of is None:
        return "no C compiler" if command is None else "no C files"
    files = sorted(SOURCES.glob("*.c"), key=lambda file: -file.stat().st_size)  # those that take long first
    flags = [*FLAGS, *shlex.split(os.environ.get("ARCHFLAGS", "")), *extra, f'-DRASP_SOURCES="{made_of}"']

    def run(*words: str | Path) -> None:
        told = [*command, *flags, *map(str, words)]
        subprocess.run(told, check=True, capture_output=True, text=True)  # noqa: S603 - the compiler of whoever builds

    with tempfile.TemporaryDirectory(dir=library.parent) as folder:
        fresh = Path(folder) / library.name
        objects = [fresh.with_name(f"{file.stem}.o") for file in files]
        try:
            with ThreadPoolExecutor(os.cpu_count()) as pool:
                list(pool.map(lambda file, made: run("-c", "-o", made, file), files, objects))
            run("-shared", "-o", fresh, *sorted(objects), "-lm")
        except subprocess.CalledProcessError as error:
            return f"{command[0]} failed: {error.stderr.strip()[-500:]}"
        except OSError as error:
            return f"{command[0]} did not run: {error}"
        fresh.replace(library)  # at once: another process may have the old one loaded
    return None


if __name__ == "__main__":
    why_not = build(extra=tuple(sys.argv[1:]))
    sys.exit(f"native kernel not built: {why_not}" if why_not else 0)
