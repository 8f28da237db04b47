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
        """Count what one pick came to. A pick in a wrong context is left out: nobody knows what it is about."""
        if pick.leaf < 0:
            return
        values = {name: float(value) for name, value in metrics.items()}
        place = (pick.version, pick.leaf, pick.setting, *self._told_apart(context))
        if place not in self._sums and len(self._sums) >= MOST_SUMS:
            place = place[:3]
        one = self._sums.get(place)
        if one is None:
            one = self._sums[place] = {
                "policy": pick.version, "leaf": pick.leaf, "setting": pick.setting,
                "params": pick.params, "probability": pick.probability, "contexts": [], "count": 0,
                "metrics": {name: {"sum": 0.0, "squares": 0.0} for name in values},
            }  # fmt: skip
        if values.keys() != one["metrics"].keys():
            raise ValueError(f"metrics must be {', '.join(one['metrics'])}, as before; got {', '.join(values)}")
        one["count"] += 1
        for name, value in values.items():
            one["metrics"][name]["sum"] += value
            one["metrics"][name]["squares"] += value * value
        if self._names:
            self._keep(one["contexts"], context, one["count"])

    def take(self) -> list[dict[str, Any]]:
        """The sums, which begin anew."""
        taken, self._sums = list(self._sums.values()), {}
        return taken

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
            plain = dict(context) if isinstance(context, Mapping) else list(context)
            kept[place : place + 1] = [plain]
