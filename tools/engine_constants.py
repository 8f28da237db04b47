"""docs/ENGINE_CONSTANTS.md and its table, from the source: `python tools/engine_constants.py`.

A constant is an UPPER_CASE name of a module that is set to numbers; what is computed from other constants is none. The
comment behind it, or the one right above, says what it bounds. It prints how many there are of each kind.
"""

import ast
import csv
import io
import json
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).parents[1]
ENGINE = ROOT / "src" / "rasp_tuner" / "engine"
PACKAGE = ROOT / "src" / "rasp_tuner"
SHARED = [
    PACKAGE / name
    for name in (
        "base/common_constants.py",
        "contexts/context_bounds.py",
        "contexts/context_metric.py",
        "base/trusted_range.py",
    )
]
PAGE = ROOT / "docs" / "ENGINE_CONSTANTS.md"
PRIORS = "PRIORS"  # of gp/model.py: a dict of prior medians and deviations, each of which is a constant
EXTREME = 1e5  # and its inverse: a number beyond only keeps arithmetic finite, or files sane
JUDGEMENT, MEMORY, FINITE = "Judgement", "Sizes of memory and work", "Arithmetic kept finite, equal numbers equal"
FACTS = "Facts of mathematics"
LABELS = {"OUTLIER", "FAILED"}  # numbers that stand for words
NAMES = {  # of the kinds but the first; a number beyond EXTREME is of the last
    MEMORY: [
        "SCALE_SAMPLES",
        "VALUES_OF_CONTINUUM",
        "EARLY_FAILURES",
        "MOST_FIRST",
        "TRIED",
        "SHOWN_SLOTS",
        "BLOCK_TUNERS",
        "SHORT",
        "AT_ONCE",
        "MOST_ROWS",
        "UNREACHED",
        "SLOTS",
        "SPARE_SLOTS",
        "WINDOW_SAMPLES",
        "RANK",
        "NOISES",
        "SKETCH_DIMENSIONS",
        "MERGE_CANDIDATES",
        "CHUNK",
        "THREADS",
        "WARP",
        "ALONE",
        "MOST_SCRATCH",
        "MOST_LOCKED",
        "DYNAMIC_SHARED_MEMORY",
        "MOST_COMPILED_KNOBS",
        "DESCENTS",
        "BEST_ROWS",
        "MERGE_STEPS",
        "FRACTIONS",
        "STEP_LENGTHS",
        "YOUNG_EXTRA_STEPS",
        "COMPONENTS_EVERY_STEPS",
        "MOVING_LOOK_EVERY_STEPS",
        "MOVING_SETTLED_SAMPLES",
        "MOVING_IDLE_NATS",
        "SCALES_SETTLED_SAMPLES",
        "LOOK_EVERY_STEPS",
    ],
    FACTS: ["NINE_IN_TEN", "NORMAL_90", "CHI2_MEDIAN", "UNIT", "GOLDEN", "FIRST", "SECOND", "NODES", "MEAN_DISTANCE"],
    FINITE: [
        "FAR",
        "FARTHEST_LOG",
        "FARTHEST_GAP",
        "FARTHEST_THETA",
        "FARTHEST_UNIT",
        "FARTHEST_OPTIMUM",
        "LEAST_TOP",
        "MOST_NATS",
        "MOST_MOMENTUM",
        "ROUNDING",
        "TINY",
        "SAME_LEVEL",
        "JITTER",
        "TIE",
        "EQUAL_WEIGHTS",
        "LEAST_WEIGHT",
    ],
}
HEAD = """\
# Constants of the engine

A reference, written by `python tools/engine_constants.py` from the source and comments of `src/rasp_tuner/engine`, and
of what it takes from `base` and `contexts`: {count} constants. What is computed from others is left out.
[ENGINE.md](ENGINE.md) says what they are used for.

| kind | constants | what they do |
|---|---|---|
| judgement | {judgement} | decide what is believed and chosen; of these {priors} are priors of hyperparameters |
| sizes of memory and work | {memory} | bound memory and time |
| arithmetic kept finite | {finite} | bound what no ordinary data reach: overflow, rounding, files |
| facts of mathematics | {facts} | quantiles, places where an integral is summed, a known generator |

`PRIORS` are pairs: the prior median of a hyperparameter, and the deviation of its logarithm.

[engine-constants.csv](tables/engine-constants.csv) has every constant: kind, file, name, value and what it bounds. Its
last two columns say what half and twice the value do on small beds: the mean change of the logarithm of the loss, with
its standard error; above 0 is worse. "None" means that no run changed at all, an empty cell that it was not tried yet.
`python -m rasp_lab.beds.factor_of_two` tries what is missing. Tried so far:
"""
COLUMNS = ["kind", "file", "name", "value", "what it bounds", "halved", "doubled"]  # of the CSV file
TABLE = ROOT / "docs" / "tables" / "engine-constants.csv"
MOVED = ROOT / "src" / "rasp_lab" / "data" / "factor_of_two.json"  # what rasp_lab/beds/factor_of_two.py has found


class Constant(NamedTuple):
    file: str  # relative to the engine, or to the package
    name: str
    value: str  # as written
    bounds: str  # what its comment says; empty without one


def constants(folder: Path = ENGINE) -> list[Constant]:
    """Of all modules of a folder, file by file, in the order of their lines."""
    files = sorted(folder.rglob("*.py"), key=lambda file: (len(file.relative_to(folder).parts), file))
    own = [found for file in files for found in _of_file(file, file.relative_to(folder).as_posix())]
    shared = SHARED if folder == ENGINE else []
    return [*own, *(found for file in shared for found in _of_file(file, file.relative_to(PACKAGE).as_posix()))]


def page(found: list[Constant]) -> str:
    """The page as Markdown: counts, and the constants that were doubled and halved."""
    counts = Counter(map(kind_of, found))
    judgement, memory, finite, facts = (counts[kind] for kind in (JUDGEMENT, MEMORY, FINITE, FACTS))
    priors = sum(one.name.startswith(PRIORS) for one in found)
    head = HEAD.format(count=len(found), judgement=judgement, memory=memory, finite=finite, facts=facts, priors=priors)
    tried = [row for row in rows(found) if any(row[-2:])]
    lines = ["| file | name | value | halved | doubled |", "|---|---|---|---|---|"]
    lines += [f"| {file} | `{name}` | {value} | {half} | {twice} |" for _, file, name, value, _, half, twice in tried]
    return "\n".join([head, *lines, ""])


def rows(found: list[Constant]) -> list[tuple[str, ...]]:
    """One row for each constant, by kind."""
    known = json.loads(MOVED.read_text()) if MOVED.exists() else {}
    kinds = (JUDGEMENT, MEMORY, FINITE, FACTS)
    return [(kind, *one, *moved(one, known)) for kind in kinds for one in found if kind_of(one) == kind]


def table(found: list[Constant]) -> str:
    """The CSV file."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([COLUMNS, *rows(found)])
    return text.getvalue()


def moved(constant: Constant, known: dict[str, Any]) -> tuple[str, str]:
    """What half and twice the value do, if that was tried with this value."""
    found = known.get(f"{constant.file}: {constant.name}", {})
    if found.get("value") != constant.value:
        return "", ""
    return _shown(found["effects"]["0.5"]), _shown(found["effects"]["2"])


def _shown(effects: dict[str, Any]) -> str:
    if "error" in effects:
        return "fails"
    changed = {bed: one for bed, one in effects.items() if one[2]}
    return "; ".join(f"{bed} {mean:+.2f} ± {error:.2f}" for bed, (mean, error, _) in changed.items()) or "none"


def kind_of(constant: Constant) -> str:
    named = (kind for kind, names in NAMES.items() if constant.name in names)
    return next(named, FINITE if is_extreme(constant) else JUDGEMENT)


def is_extreme(constant: Constant) -> bool:
    """Whether it is a single number so large or so small that it decides nothing in ordinary data."""
    try:
        size = abs(float(ast.literal_eval(constant.value)))
    except (TypeError, ValueError):
        return False
    return size > EXTREME or 0.0 < size < 1.0 / EXTREME


def _of_file(file: Path, name: str) -> Iterator[Constant]:
    text = file.read_text()
    lines = text.splitlines()
    for node in ast.parse(text).body:
        if not isinstance(node, ast.Assign) or len(node.targets) != 1:
            continue
        names, values = _pairs(node.targets[0], node.value)
        if names == [PRIORS] and isinstance(node.value, ast.Dict):
            for key, value in zip(node.value.keys, node.value.values, strict=True):
                if isinstance(key, ast.Constant) and isinstance(key.value, str) and isinstance(value, ast.Tuple):
                    shown = ", ".join(ast.unparse(number) for number in value.elts)
                    yield Constant(name, f"{PRIORS}: {key.value}", shown, _comment(lines, value))
            continue
        for own, value in zip(names, values, strict=True):
            if own.isupper() and own not in LABELS and _is_number(value):
                shown = " ".join((ast.get_source_segment(text, value) or "").split())
                yield Constant(name, own, shown, _comment(lines, node))


def _pairs(target: ast.expr, value: ast.expr) -> tuple[list[str], list[ast.expr]]:
    """Names and their values, of `A = 1` and of `A, B = 1, 2`."""
    if isinstance(target, ast.Name):
        return [target.id], [value]
    if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
        return [part.id for part in target.elts if isinstance(part, ast.Name)], list(value.elts)
    return [], []


def _is_number(value: ast.expr) -> bool:
    """Whether a value is made of numbers alone, by arithmetic, tuples, lists, math and NumPy."""
    nodes = list(ast.walk(value))
    if any(isinstance(node, ast.Attribute) and node.attr in ("zeros", "ones") for node in nodes):
        return False  # an array that is filled later, or a place
    numbers = [node for node in nodes if isinstance(node, ast.Constant)]
    names = {node.id for node in nodes if isinstance(node, ast.Name) and node.id not in ("math", "np", "i")}
    return (
        bool(numbers)
        and not names - {"range"}  # as in [0.75**i for i in range(1, 13)]
        and all(type(number.value) in (int, float) for number in numbers)
        and not any(isinstance(node, ast.Dict | ast.Subscript) for node in nodes)
        and not (isinstance(value, ast.Call) and isinstance(value.func, ast.Name))
    )


def _comment(lines: list[str], node: ast.expr | ast.stmt) -> str:
    """The comment behind the last line of a node, or alone on the lines right above it."""
    behind = lines[(node.end_lineno or node.lineno) - 1][node.end_col_offset or 0 :]
    if "#" in behind and "fmt: skip" not in behind:
        return _cell(behind.split("#", 1)[1])
    above: list[str] = []
    line = node.lineno - 2
    while line >= 0 and lines[line].lstrip().startswith("#"):
        above.insert(0, lines[line].strip().lstrip("# "))
        line -= 1
    return _cell(" ".join(above))


def _cell(text: str) -> str:
    return text.strip()


def main() -> None:
    found = constants()
    PAGE.write_text(page(found))
    TABLE.write_text(table(found))
    for kind, count in Counter(map(kind_of, found)).items():
        sys.stdout.write(f"{count:4d}  {kind}\n")
    missing = [f"no comment: {one.file}: {one.name}" for one in found if not one.bounds]
    gone = {name for names in NAMES.values() for name in names} - {one.name for one in found}
    sys.stdout.write(f"{len(found):4d}  in all\n")
    sys.stdout.write(
        "".join(f"{line}\n" for line in [*missing, *(f"no such constant: {name}" for name in sorted(gone))])
    )


if __name__ == "__main__":
    main()
