"""OutcomeSums: what came of the picks of a policy, added up where they were made. Standard library only: copy it along
with evaluate.py.

    sums = OutcomeSums(policy)
    pick = pick_of(policy, context, "user-17")
    sums.add(pick, context, {"p99_ms": measured})
    tuner.tell_sums(sums.take())                       # now and then: a count and two sums for each setting that ran

A sum is of one setting in one leaf, and of equal texts and flags of the context; of its contexts a few are kept, drawn
at random, since a model learns in which situation something ran.
"""

from collections.abc import Mapping
from typing import Any

CONTEXTS = 8  # kept of those of one sum
MOST_SUMS = 1000  # at a time; beyond, texts and flags of contexts are not told apart
LARGEST = 1e150  # a number: sums of squares stay finite
TEXT_KINDS = ("flag", "category", "name", "weekday")


class OutcomeSums:
    """Sums since the latest `take`. Not for several threads at once."""

    def __init__(self, policy: Mapping[str, Any], seed: int = 0) -> None:
        if policy.get("explore") is None:
            raise ValueError("the policy does not explore: export it with explore=True")
        self.policy = policy
        self._drawn = seed
        self._texts = [field["name"] for field in policy["context"] if field["kind"] in TEXT_KINDS]
        self._names = [field["name"] for field in policy["context"]]
        self._sums: dict[tuple[Any, ...], dict[str, Any]] = {}

    def __len__(self) -> int:
        return len(self._sums)

    def add(self, pick: Any, context: Any, metrics: Mapping[str, float]) -> None:
        """Count what one pick came to; a ValueError, before anything is counted, says what is wrong with it.

        A pick in a wrong context is left out: nobody knows what it is about.
        """
        if pick.leaf < 0:
            return
        values, seen = _numbers(metrics), self._plain(context)
        ran = (pick.version, pick.leaf, pick.setting, *sorted(values))  # other metrics: a sum that is refused by itself
        place = (*ran, *self._told_apart(seen))
        if place not in self._sums and len(self._sums) >= MOST_SUMS:
            place = ran
        one = self._sums.get(place)
        if one is None:
            if len(self._sums) >= 2 * MOST_SUMS:
                raise ValueError(f"there are {len(self._sums)} sums already: take them first, or name metrics alike")
            one = self._sums[place] = {
                "policy": pick.version, "leaf": pick.leaf, "setting": pick.setting,
                "params": pick.params, "probability": pick.probability, "contexts": [], "count": 0,
                "metrics": {name: {"sum": 0.0, "squares": 0.0} for name in values},
            }  # fmt: skip
        one["count"] += 1
        for name, value in values.items():
            one["metrics"][name]["sum"] += value
            one["metrics"][name]["squares"] += value * value
        if self._names:
            self._keep(one["contexts"], seen, one["count"])

    def take(self) -> list[dict[str, Any]]:
        """The sums, which begin anew."""
        taken, self._sums = list(self._sums.values()), {}
        return taken

    def _plain(self, context: Any) -> Any:
        """A context as JSON has it, by name or in order."""
        if not self._names:
            return None
        if hasattr(context, "tolist"):
            context = context.tolist()
        if isinstance(context, Mapping):
            if not set(context) <= set(self._names):
                raise ValueError(f"a context has {', '.join(self._names)}; got {', '.join(map(str, context))}")
            return {name: _of_context(name, value) for name, value in context.items()}
        if not isinstance(context, (list, tuple)) or len(context) != len(self._names):
            raise ValueError(f"a context must have {', '.join(self._names)}, by name or in this order; got {context!r}")
        return [_of_context(name, value) for name, value in zip(self._names, context, strict=True)]

    def _told_apart(self, context: Any) -> tuple[str, ...]:
        """Texts and flags of a context, which no mean describes."""
        if not self._texts:
            return ()
        by_name = context if isinstance(context, Mapping) else dict(zip(self._names, context, strict=True))
        return tuple(str(by_name.get(name)) for name in self._texts)

    def _keep(self, kept: list[Any], context: Any, count: int) -> None:
        """Any of `count` contexts is kept with the same probability."""
        self._drawn = (6364136223846793005 * self._drawn + 1442695040888963407) % 2**64  # Knuth's generator
        place = len(kept) if count <= CONTEXTS else (self._drawn >> 32) * count >> 32
        if place < CONTEXTS:
            kept[place : place + 1] = [context]


def _numbers(metrics: Any) -> dict[str, float]:
    """The metrics of a run, all finite."""
    if not isinstance(metrics, Mapping) or not metrics:
        raise ValueError(f"metrics must be numbers by name, got {metrics!r}")
    found = {}
    for name, value in metrics.items():
        plain = _plain(value)
        is_number = isinstance(plain, (int, float)) and not isinstance(plain, bool)
        if not (isinstance(name, str) and is_number and abs(plain) <= LARGEST):
            raise ValueError(f"metrics must be finite numbers by name, got {name!r}: {value!r}")
        found[name] = float(plain)
    return found


def _plain(value: Any) -> Any:
    """A value as JSON has it."""
    if hasattr(value, "item"):  # a scalar of NumPy
        value = value.item()
    return value.isoformat() if hasattr(value, "isoformat") else value


def _of_context(name: str, value: Any) -> Any:
    """A value of a context as JSON has it."""
    plain = _plain(value)
    if plain is None or isinstance(plain, str):
        return plain
    if isinstance(plain, (int, float)) and plain != plain:  # NaN: it is missing
        return None
    if not isinstance(plain, (int, float)) or not abs(plain) <= LARGEST:
        raise ValueError(f"context[{name!r}] must be a text or a finite number, got {value!r}")
    return plain
