"""What a factor of two in one constant of the engine does on small beds, beside the engine as it is.

    python -m rasp_lab.beds.factor_of_two                      # all judgement constants that are not on file yet
    python -m rasp_lab.beds.factor_of_two SURPRISING gp/value.py
    python tools/engine_constants.py                        # then: the table with the column

Each constant is doubled and halved in a copy of src/ under out/, with the C built anew where it has the constant. Of a
share above one half the distance to 1 is moved; an array is moved as a whole; of a prior, the median. The effect is the
mean over pairs of runs of the logarithm of the loss, with its standard error: above 0 is worse. Seeds are even: those
to choose by. What was found is kept in src/rasp_lab/data/factor_of_two.json, with the value that it was found at.
"""

import argparse
import ast
import json
import math
import runpy
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from rasp_lab import REPOSITORY
from rasp_lab.beds import source
from rasp_lab.beds.bed import OUT, Bed, Options
from rasp_lab.beds.beds import load
from rasp_lab.beds.runner import Cell, Results, measure
from rasp_lab.beds.table import LEAST

FOUND = Path(__file__).parents[1] / "data" / "factor_of_two.json"
PACKAGE = REPOSITORY / "src" / "rasp_tuner"
COPY = OUT.parent / "factor_of_two"
FACTORS = (0.5, 2.0)
FLOATS, LEVELS = "floats", "levels"
LINES = ("regret / static", "loss, noise", "cost / default", "excess", "steps 200 to 400")  # that are losses
OPTIONS = Options("develop")
TABLE = runpy.run_path(str(REPOSITORY / "tools" / "engine_constants.py"))
HEADERS = runpy.run_path(str(PACKAGE / "engine" / "kernel" / "build.py"))["CONSTANTS"]


def cells(kind: str, of_model: bool) -> list[Cell]:
    """Runs that a constant of one kind of knobs can change; those of a model without glitches, which take long."""
    glitches = [] if of_model else [cell for cell in _glitches() if cell.cell.endswith(kind)]
    if kind == FLOATS:
        domains = [Cell("domains", cell, seed) for cell in load("domains").cells(OPTIONS) for seed in (0, 2)]
        return domains + glitches
    worlds = [Cell("worlds", cell, seed) for cell in load("worlds").cells(OPTIONS)[::2] for seed in range(0, 12, 2)]
    small = [Cell("small", cell, seed) for cell in load("small").cells(OPTIONS) for seed in (0,)]
    return worlds + small + glitches


def _glitches() -> list[Cell]:
    told = ("context/1000", "metric/1e9", "metric/-1e6", "unit/x1000")
    return [Cell("glitches", f"{words}/{knobs}", 0) for words in told for knobs in (FLOATS, LEVELS)]


def kinds(file: str) -> list[str]:
    """Which knobs a constant of this file is for."""
    if file.startswith(("gp/", "contexts/context_metric")):
        return [LEVELS]
    return [FLOATS] if file.startswith("kernel/") else [FLOATS, LEVELS]


def moved(value: object, factor: float) -> object:
    """A constant times a factor.

    >>> moved(0.98, 2.0), moved(0.8, 0.5), moved(3, 0.5), moved((1.0, 4.0), 2.0)
    (0.96, 0.9, 2, (2.0, 8.0))
    """
    if isinstance(value, tuple | list):
        return tuple(number * factor if isinstance(number, float) else moved(number, factor) for number in value)
    if isinstance(value, int):
        return max(1, math.ceil(value * factor))
    if not isinstance(value, float):
        raise TypeError(f"a constant is made of numbers, got {value!r}")
    return round(1.0 - (1.0 - value) * factor, 12) if 0.5 < value < 1.0 else value * factor


def changed(text: str, name: str, factor: float) -> str:
    """The source of a module with one constant moved."""
    value = _value(text, name)
    new = moved(_number(value), factor)
    array = "np.array" in (ast.get_source_segment(text, value) or "")
    return with_value(text, name, f"np.array({list(new)})" if array and isinstance(new, tuple) else repr(new))


def with_value(text: str, name: str, shown: str) -> str:
    """The source of a module with one constant that is `shown` instead."""
    value, lines = _value(text, name), text.splitlines(keepends=True)
    start = sum(map(len, lines[: value.lineno - 1])) + value.col_offset
    end = sum(map(len, lines[: (value.end_lineno or value.lineno) - 1])) + (value.end_col_offset or 0)
    return text[:start] + shown + text[end:]


def _value(text: str, name: str) -> ast.expr:
    for target, value in assigned(text):
        if target == name:
            return value
    raise LookupError(f"no constant {name}")


def _number(value: ast.expr) -> Any:
    names = {"math": math, "np": SimpleNamespace(array=lambda numbers: tuple(numbers)), "range": range}
    return eval(compile(ast.Expression(value), "constant", "eval"), names)  # noqa: S307 - of our own source


def assigned(text: str) -> Iterator[tuple[str, ast.expr]]:
    for node in ast.parse(text).body:
        if not isinstance(node, ast.Assign):
            continue
        target, value = node.targets[0], node.value
        if isinstance(target, ast.Name):
            yield target.id, value
            if isinstance(value, ast.Dict):
                for key, pair in zip(value.keys, value.values, strict=True):
                    if isinstance(key, ast.Constant) and isinstance(key.value, str) and isinstance(pair, ast.Tuple):
                        yield f"{target.id}: {key.value}", pair.elts[0]
        elif isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
            for own, given in zip(target.elts, value.elts, strict=True):
                if isinstance(own, ast.Name):
                    yield own.id, given


def module_of(file: str) -> Path:
    """Where the table's file is."""
    return PACKAGE / (file if (PACKAGE / file).exists() else f"engine/{file}")


def copied(tree: str, file: str, name: str, factor: float) -> source.Source:
    """A copy of the library with one constant moved, built."""

    def edit(package: Path) -> list[str]:
        target = package / module_of(file).relative_to(PACKAGE)
        target.write_text(changed(target.read_text(encoding="utf-8"), name, factor), encoding="utf-8")
        return [name]

    return edited(f"{tree}-{file.replace('/', '.')}-{name.replace(': ', '.')}-{factor:g}", edit)


def edited(tree: str, edit: Callable[[Path], list[str]]) -> source.Source:
    """A copy of the library in which `edit` changed these constants, built where its C has one of them."""
    src = COPY / "src"
    shutil.rmtree(src, ignore_errors=True)
    shutil.copytree(PACKAGE, src / "rasp_tuner", ignore=shutil.ignore_patterns("__pycache__"))
    names = set(edit(src / "rasp_tuner"))
    for header, files in HEADERS.items():
        if any(names & set(own.split()) for own in files.values()):
            (src / "rasp_tuner" / "engine" / "kernel" / "native" / header).write_text("")  # so that it is built anew
    return replace(source.other(str(COPY)), tree=tree)


def effect(before: Results, after: Results, bed: str) -> tuple[float, float, int] | None:
    """Mean and standard error of the log ratio of losses, and how many runs changed at all; None without runs."""
    gaps = []
    for cell, values in after.values.items():
        for line, value in values.items():
            if cell.bed == bed and any(word in line for word in LINES) and "less clean" not in line:
                gaps.append(math.log(max(value, LEAST)) - math.log(max(before.values[cell][line], LEAST)))
    if not gaps:
        return None
    found = np.array(gaps)
    return float(found.mean()), float(found.std(ddof=1) / math.sqrt(len(found))), int((found != 0.0).sum())


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("only", nargs="*", help="names of constants, or files below the engine; all without")
    parser.add_argument("--again", action="store_true", help="also those on file with the same value")
    given = parser.parse_args(arguments)
    known: dict[str, Any] = json.loads(FOUND.read_text()) if FOUND.exists() else {}
    here = source.here()
    beds = {name: load(name) for name in ("domains", "worlds", "small", "glitches")}
    base = {kind: measure(here, beds, cells(kind, of_model=False), OPTIONS, jobs=1) for kind in (FLOATS, LEVELS)}
    for constant in TABLE["constants"]():
        key = f"{constant.file}: {constant.name}"
        wanted = not given.only or constant.name in given.only or constant.file in given.only
        if TABLE["kind_of"](constant) != TABLE["JUDGEMENT"] or not wanted:
            continue
        if known.get(key, {}).get("value") == constant.value and not given.again:
            continue
        known[key] = {"value": constant.value, "effects": _effects(here.tree, constant, beds, base)}
        FOUND.parent.mkdir(exist_ok=True)
        FOUND.write_text(json.dumps(known, indent=1, sort_keys=True) + "\n")
        print(key, json.dumps(known[key]["effects"]), flush=True)


def _effects(tree: str, constant: Any, beds: dict[str, Bed], base: dict[str, Results]) -> dict[str, Any]:
    """Factor -> bed -> effect; or what went wrong."""
    found: dict[str, Any] = {}
    for factor in FACTORS:
        try:
            copy = copied(tree, constant.file, constant.name, factor)
        except Exception as reason:  # noqa: BLE001 - a size that nothing compiles with is a finding
            found[f"{factor:g}"] = {"error": f"{type(reason).__name__}: {reason}"[:200]}
            continue
        by_bed: dict[str, Any] = {}
        of_model = constant.file.startswith(("gp/", "kernel/"))
        for kind in kinds(constant.file):
            after = measure(copy, beds, cells(kind, of_model), OPTIONS, jobs=1)
            if after.errors:
                by_bed["error"] = next(iter(after.errors.values()))[:200]
            by_bed |= {
                f"{bed}, {kind}" if bed == "glitches" else bed: [round(number, 3) for number in one]
                for bed in beds
                if (one := effect(base[kind], after, bed)) is not None
            }
        found[f"{factor:g}"] = by_bed
    return found


if __name__ == "__main__":
    main()
