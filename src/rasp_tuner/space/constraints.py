"""Constraints between knobs, as text: `a * b <= 2048`, `codec == "zstd" or level <= 9`.

A small grammar, read with `ast` and never run as code: numbers, strings, names of knobs, + - * / **, min, max, abs,
comparisons, and, or, not. A comparison with a knob that does not exist, or whose `Auto` is its word, is unknown; a
constraint that comes out unknown holds. What cannot be computed, such as a division by zero, breaks it.
"""

import ast
import math
import operator
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from rasp_tuner.base.checks import show
from rasp_tuner.errors import InvalidSpace, InvalidValue
from rasp_tuner.space.auto import Auto
from rasp_tuner.space.choices import Bool, Categorical
from rasp_tuner.space.values import Params

LONGEST_CONSTRAINT = 500  # characters of a constraint
MOST_CONSTRAINTS = 64

Knobs: TypeAlias = Mapping[str, Any]
Numeric: TypeAlias = Callable[[Params], float]
Truth: TypeAlias = Callable[[Params], bool | None]

ARITHMETIC: dict[type[ast.operator], Callable[[float, float], float]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.Pow: math.pow,
}
COMPARISONS: dict[type[ast.cmpop], Callable[[Any, Any], bool]] = {
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
}
CALLS: dict[str, Callable[..., float]] = {"min": min, "max": max, "abs": abs}
GRAMMAR = (
    "a constraint compares knobs and numbers, as 'a * b <= 2048' does; it may use + - * / **, min, max, abs, and, or,"
    " not, and strings after == and !="
)


class _Unknown(Exception):
    """A knob that a comparison needs does not exist."""


@dataclass(frozen=True)
class Constraint:
    """A rule that suggestions keep; `names` are the knobs it is about."""

    text: str
    names: frozenset[str]
    _truth: Truth = field(repr=False, compare=False)

    @classmethod
    def parse(cls, text: object, knobs: Knobs) -> "Constraint":
        """The constraint that the text states about these knobs."""
        if not isinstance(text, str) or not 0 < len(text) <= LONGEST_CONSTRAINT:
            raise InvalidSpace(f"constraints must be texts of 1 to {LONGEST_CONSTRAINT} characters, got {show(text)}")
        try:
            tree = ast.parse(text.strip(), mode="eval").body
            reader = _Reader(text, knobs)
            truth = reader.truth(tree)
        except (SyntaxError, ValueError, OverflowError, RecursionError, MemoryError) as reason:
            if isinstance(reason, InvalidSpace):
                raise
            raise InvalidSpace(f"constraints[{text!r}] cannot be read: {show(reason)}; {GRAMMAR}") from reason
        if not reader.names:
            raise InvalidSpace(f"constraints[{text!r}] names no knob; there are {list(knobs)}")
        return cls(text, frozenset(reader.names), truth)

    def holds(self, params: Params) -> bool:
        """Whether parameters, of which some may not exist, keep this rule."""
        try:
            return self._truth(params) is not False
        except (ArithmeticError, ValueError):
            return False


def parse_all(texts: object, knobs: Knobs) -> tuple[Constraint, ...]:
    """Constraints of a list of texts."""
    if isinstance(texts, str) or not isinstance(texts, Iterable):
        raise InvalidSpace(f"constraints must be a list of texts, as ['a * b <= 2048'], got {show(texts)}")
    given = list(texts)
    if len(given) > MOST_CONSTRAINTS:
        raise InvalidSpace(f"constraints may be at most {MOST_CONSTRAINTS}, got {len(given)}")
    return tuple(Constraint.parse(text, knobs) for text in given)


class _Reader:
    """A syntax tree -> functions of the parameters; collects the names of knobs."""

    def __init__(self, text: str, knobs: Knobs) -> None:
        self.text, self.knobs = text, knobs
        self.names: set[str] = set()

    def truth(self, node: ast.expr) -> Truth:
        if isinstance(node, ast.BoolOp):
            parts = [self.truth(value) for value in node.values]
            return _decided(parts, isinstance(node.op, ast.Or))
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            inner = self.truth(node.operand)
            return lambda params: None if (found := inner(params)) is None else not found
        if isinstance(node, ast.Compare):
            sides = [node.left, *node.comparators]
            pairs = [self._pair(a, op, b) for a, op, b in zip(sides, node.ops, sides[1:], strict=False)]
            return pairs[0] if len(pairs) == 1 else _decided(pairs, False)
        name = self._name(node)
        if name is not None and isinstance(self.knobs[name], Bool):
            self.names.add(name)
            return lambda params: bool(params[name]) if name in params else None
        raise self._refusal(node)

    def number(self, node: ast.expr) -> Numeric:
        name = self._name(node)
        if name is not None:
            return self._knob(name)
        if isinstance(node, ast.Constant) and type(node.value) in (int, float):
            value = float(node.value)  # type: ignore[arg-type]  # its type was just looked at
            return lambda _: value
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, (ast.USub, ast.UAdd)):
            inner = self.number(node.operand)
            return (lambda params: -inner(params)) if isinstance(node.op, ast.USub) else inner
        if isinstance(node, ast.BinOp) and type(node.op) in ARITHMETIC:
            left, right, join = self.number(node.left), self.number(node.right), ARITHMETIC[type(node.op)]
            return lambda params: join(left(params), right(params))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in CALLS:
            parts, call = [self.number(part) for part in node.args], CALLS[node.func.id]
            few = len(parts) != 1 if call is abs else len(parts) < 2
            if node.keywords or few:
                raise self._refusal(node)
            return lambda params: call(*[part(params) for part in parts])
        raise self._refusal(node)

    def _pair(self, left: ast.expr, op: ast.cmpop, right: ast.expr) -> Truth:
        if type(op) not in COMPARISONS:
            raise self._refusal(left)
        compare = COMPARISONS[type(op)]
        if isinstance(op, (ast.Eq, ast.NotEq)):
            for knob, constant in ((left, right), (right, left)):
                name = self._name(knob)
                if name is not None and isinstance(constant, ast.Constant) and self._is_choice(name, constant.value):
                    self.names.add(name)
                    value = constant.value
                    return lambda params: compare(params[name], value) if name in params else None
        a, b = self.number(left), self.number(right)

        def compared(params: Params) -> bool | None:
            try:
                x, y = a(params), b(params)
            except _Unknown:
                return None
            if not (math.isfinite(x) and math.isfinite(y)):
                raise OverflowError
            return compare(x, y)

        return compared

    def _is_choice(self, name: str, value: Any) -> bool:
        """Whether the knob is compared with one of its choices or its word, not with a number."""
        knob = self.knobs[name]
        if isinstance(knob, Auto) and knob.is_word(value):
            return True
        if not isinstance(knob, Categorical) and not isinstance(value, str | bool | None):
            return False
        try:
            knob.check(value)
        except InvalidValue as reason:
            raise InvalidSpace(f"constraints[{self.text!r}] compares {name!r} with no value of it: {reason}") from None
        return True

    def _knob(self, name: str) -> Numeric:
        knob = self.knobs[name]
        if isinstance(knob, Categorical) and not all(isinstance(choice, int | float) for choice in knob.choices):
            raise InvalidSpace(
                f"constraints[{self.text!r}] computes with {name!r}, whose choices are not all numbers; words may be"
                " compared by == and !="
            )
        self.names.add(name)
        is_word = knob.is_word if isinstance(knob, Auto) else None

        def value(params: Params) -> float:
            if name not in params or (is_word is not None and is_word(params[name])):
                raise _Unknown
            return float(params[name])  # type: ignore[arg-type]  # a number: it was checked above

        return value

    def _name(self, node: ast.expr) -> str | None:
        """The knob that a node names, dots included; None if it is no name."""
        if not isinstance(node, ast.Name | ast.Attribute):
            return None
        name = ast.unparse(node)
        if name not in self.knobs:
            raise InvalidSpace(f"constraints[{self.text!r}] has no knob {name!r}; there are {list(self.knobs)}")
        return name

    def _refusal(self, node: ast.expr) -> InvalidSpace:
        return InvalidSpace(f"constraints[{self.text!r}] has {show(ast.unparse(node))} in it; {GRAMMAR}")


def _decided(parts: list[Truth], decisive: bool) -> Truth:
    """`or` where True decides, `and` where False does; unknown if nothing decides and something is unknown."""

    def joined(params: Params) -> bool | None:
        unknown = False
        for part in parts:
            found = part(params)
            if found is decisive:
                return decisive
            unknown = unknown or found is None
        return None if unknown else not decisive

    return joined
