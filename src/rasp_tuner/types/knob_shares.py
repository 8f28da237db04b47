"""KnobShares: which knobs a gain comes from, and of which no effect was shown."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

MOST_KNOBS_SAID = 4


@dataclass(frozen=True, slots=True)
class KnobShares:
    """Of the knobs that are not at their default: the share of each in the gain, where its effect is shown.

    Nothing is said of the others: they may do nothing, or less than noise lets one see.
    """

    shares: Mapping[str, float] = field(default_factory=dict)  # largest first; they sum to 1
    not_shown: tuple[str, ...] = ()  # knobs without a share

    def __str__(self) -> str:
        """In words; empty where no knob is moved.

        >>> print(KnobShares({"cache": 0.8, "threads": 0.2}, ("codec", "level")))
        from cache 80%, threads 20%; no effect shown: codec, level
        >>> print(KnobShares({}, ("codec",)))
        no effect shown: codec
        """
        more = len(self.shares) - MOST_KNOBS_SAID
        said = [f"{name} {share:.0%}" for name, share in list(self.shares.items())[:MOST_KNOBS_SAID]]
        moved = [f"from {', '.join(said)}" + (f" and {more} more" if more > 0 else "")] if said else []
        rest = [f"no effect shown: {', '.join(self.not_shown)}"] if self.not_shown else []
        return "; ".join([*moved, *rest])

    def to_json(self) -> dict[str, Any]:
        """As `from_json` takes it; also in words."""
        return {**asdict(self), "words": str(self)}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> "KnobShares":
        """What `to_json` gave."""
        return cls(dict(data["shares"]), tuple(data["not_shown"]))
