"""What a study of a Python function is called, and what says that it is the same function on another day."""

import functools
import inspect
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple


class FunctionName(NamedTuple):
    """Of a function."""

    name: str  # of its study
    call: str  # of two functions this differs
    said: str  # in a message


def function_name(function: Callable[..., Any]) -> FunctionName:
    """By the function's own name; a lambda has none, and is called by its file and line.

    >>> function_name(function_name)
    FunctionName(name='function_name', call='rasp_tuner.tune.function_name:function_name', said='function_name')
    """
    inner = inspect.unwrap(function)
    while isinstance(inner, functools.partial):
        inner = inspect.unwrap(inner.func)
    if not hasattr(inner, "__qualname__"):  # an object that can be called
        inner = type(inner)
    qualified, code = inner.__qualname__, getattr(inner, "__code__", None)
    file = "" if code is None else Path(code.co_filename).stem
    module = inner.__module__
    if module == "__main__" and file:  # so is every program that is started
        module = file
    name = qualified.rpartition(".")[2]
    if code is None or name != "<lambda>":
        return FunctionName(name.strip("<>"), f"{module}:{qualified}", name.strip("<>"))
    line = code.co_firstlineno
    column = next((place[2] for place in code.co_positions() if place[2]), 0)  # two lambdas may be in one line
    plain = re.sub(r"[^\w.-]+", "-", file).strip("-.") or "lambda"
    return FunctionName(f"{plain}-line-{line}", f"{module}:{qualified} in line {line}, column {column}", "lambda")
