"""Compiles the kernel's C files into one shared library beside them: `python -m rasp_tuner.engine.kernel.build`.

Constants are typed in Python, and written into two headers before.
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
FLAGS = ["-O3", "-std=c11", "-fPIC", "-fvisibility=hidden", "-ffp-contract=off", "-fno-asynchronous-unwind-tables"]

CONSTANTS = {  # which constants of which modules each of these headers has
    "constants.h": {
        "../../base/common_constants.py": "ODD_DEVIATIONS ABSURD_DEVIATIONS CHANGE_IN_A_ROW FEWEST_SAMPLES"
        " NORMAL_FROM_SAMPLES EARLY_SAMPLES RECENT_STEPS FADING_SAMPLES",
        "../../contexts/context_metric.py": "ALIKE",
        "../evidence.py": "FARTHEST",
        "state.py": "SLOTS SPARE_SLOTS WINDOW_SAMPLES RANK SKETCH_DIMENSIONS NOISES",
        "believe.py": "NARROW_WIDTH FARTHEST_GAP LEAST_CURVATURE MOVING_SETTLED_SAMPLES"
        " MOVING_LOOK_EVERY_STEPS MOVING_IDLE_NATS",
        "choose.py": "HORIZON_STEPS FIRST_PROBE REACH DIRECTIONS TIE EQUAL_WEIGHTS FARTHEST_OUT ROOT_TWO_PI"
        " LEAST_WEIGHT",
        "learn.py": "LEAST_TRACKED_CURVATURE",
        "memory.py": "SHARP_STEPS MERGE_CANDIDATES SAME_PLACE LARGEST_GAP JUMP_TIMES LEAST_SHARE REACH_DEVIATIONS"
        " ALIKE_REACHES MEAN_DISTANCE LARGEST_DISTANCE SCALES_SETTLED_SAMPLES",
        "moving.py": "SLOPE_VARIANCE COMPONENTS_EVERY_STEPS YOUNG_SAMPLES YOUNG_EXTRA_STEPS"
        " LARGEST_TARGET FARTHEST_OPTIMUM STEP_LENGTHS",
        "outliers.py": "OUTLIER_ODDS OUTLIER_ODDS_NEW_SITUATION OUTLIER_TRUST OUTLIER FAILED"
        " LARGEST_RESIDUAL CHI2_MEDIAN BOWL_NOISES FALSE_IN_A_ROW ONE_IN JUDGED",
        "pooled_prior.py": "OWN_DEVIATION COMMON_DEVIATION LEVEL_VARIANCE LARGEST_LEVEL TINY"
        " CURVATURE_RATE RATE SETTLED_LEVELS SETTLED_RATE NOISE_ODDS DECADE_ODDS LOCAL_ODDS KEEP FREEDOM"
        " STUDENT_NORM ESTIMATE_NOISES START_NOISE",
        "shared_structs.py": "MOST_COMPILED_KNOBS",
    },
    "gp_constants.h": {
        "../../base/common_constants.py": "ODD_DEVIATIONS RECENT_STEPS",
        "../../contexts/context_metric.py": "FARTHEST",
        "../../base/numerics.py": "LARGEST SMALLEST",
        "../gp/bill.py": "SMALL_STEP",
        "../gp/knobs.py": "MOST_FEW CHOICE_APART SAME_LEVEL",
        "../gp/model.py": "JITTER GUESS_SHARE GUESS_ROWS SAME_SHARE UNTOLD_SHARE LEAST_UNIT MOST_SPREAD",
        "../gp/posterior.py": "LEAST_VARIANCE",
        "../gp/search.py": "STEP NEAR WIDE MOST_MOVE DESCENTS LEAST_CURVATURE BEST_ROWS SHORTLIST SEVERAL ELSEWHERE"
        " LITTLE",
        "../gp/value.py": "LEAST_BEND MOST_SHIFT",
    },
}


def header(name: str) -> str:
    """The text of one of these headers."""
    import ast  # here, as below: whoever only loads the library does without
    import math

    lines = ["/* Written by build.py: the constants of these Python files, whose comments say what they bound. */"]
    values: dict[str, object] = {}  # so that one may be computed from others, also of the files before
    for file, names in CONSTANTS[name].items():
        for node in ast.parse((HERE / file).read_text(encoding="utf-8")).body:
            if not isinstance(node, ast.Assign):
                continue
            target, value = node.targets[0], node.value  # A = 1, or A, B = 1, 2
            pairs: list[tuple[ast.expr, ast.expr]] = [(target, value)]
            if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
                pairs = list(zip(target.elts, value.elts, strict=True))
            for own, given in pairs:
                if isinstance(own, ast.Name) and own.id in names.split():
                    code = compile(ast.Expression(given), file, "eval")
                    values[own.id] = eval(code, {"math": math}, values)  # noqa: S307 - of our own source
        defined = (f"#define {own} {_in_c(values[own])}" for own in names.split())
        lines += ["", f"/* {file.split('/')[-1]} */", *defined]
    if name == "constants.h":
        lines += ["", "/* state.State: X(name, numbers of one tuner) */", arrays()]
    return "\n".join([*lines, ""])


def arrays() -> str:
    """The arrays of state.State, with the numbers of each that one tuner has: a list for the C preprocessor."""
    import ast
    import textwrap

    module = ast.parse((HERE / "state.py").read_text(encoding="utf-8"))
    state = next(node for node in module.body if isinstance(node, ast.ClassDef) and node.name == "State")
    lines = []
    for node in state.body:
        if isinstance(node, ast.AnnAssign):  # name: Annotated[Array, Field(shape, ...)]
            shape = ast.unparse(node.annotation).partition("Field((")[2].partition(")")[0].replace("'", "")
            numbers = " * ".join(filter(None, map(str.strip, shape.split(",")))) or "1"
            lines.append(f"X({ast.unparse(node.target)}, {numbers})")
    text = " ".join(lines).replace(" ", "~").replace(")~X", ") X")  # no line ends within one of them
    wrapped = textwrap.wrap(text, 112, initial_indent="    ", subsequent_indent="    ")
    return " \\\n".join(["#define STATE_ARRAYS(X)", *wrapped]).replace("~", " ")


def _in_c(value: object) -> str:
    text = f"{{{', '.join(map(_in_c, value))}}}" if isinstance(value, tuple) else repr(value)
    return f"({text})" if text.startswith("-") else text


def digest(sources: Path = SOURCES) -> str | None:
    """Of all C files, to tell a library that was built from others; None where they did not come along."""
    files = sorted(sources.glob("*.[ch]"))
    if not files:
        return None
    return hashlib.sha256(b"\0".join(file.read_bytes() for file in files)).hexdigest()[:16]


def compiler() -> list[str] | None:
    """The command of the system's C compiler; None where there is none."""
    import shlex
    import shutil

    chosen = os.environ.get("CC")
    if chosen:
        return shlex.split(chosen)
    found = next(filter(None, map(shutil.which, ("cc", "gcc", "clang"))), None)
    return [found] if found else None


def is_current(library: Path = LIBRARY) -> bool:
    """Whether the library was built from these C files, and their headers from these constants."""
    made_of = digest()
    if made_of is None or any((SOURCES / name).read_text(encoding="utf-8") != header(name) for name in CONSTANTS):
        return False
    return library.exists() and made_of.encode() in library.read_bytes()


def build(library: Path = LIBRARY, extra: tuple[str, ...] = ()) -> str | None:
    """Compile the library, on all cores; the reason why not, if it could not be."""
    import shlex
    import subprocess
    import tempfile
    from concurrent.futures import ThreadPoolExecutor

    for name in CONSTANTS if SOURCES.exists() else ():
        file = SOURCES / name
        if not file.exists() or file.read_text(encoding="utf-8") != header(name):
            file.write_text(header(name), encoding="utf-8")
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
            names = [] if extra or sys.platform != "linux" else ["-s"]  # only who debugs needs those inside
            run("-shared", "-o", fresh, *sorted(objects), "-lm", *names)
        except subprocess.CalledProcessError as error:
            return f"{command[0]} failed: {error.stderr.strip()[-500:]}"
        except OSError as error:
            return f"{command[0]} did not run: {error}"
        fresh.replace(library)  # at once: another process may have the old one loaded
    return None


if __name__ == "__main__":
    why_not = build(extra=tuple(sys.argv[1:]))
    sys.exit(f"native kernel not built: {why_not}" if why_not else 0)
