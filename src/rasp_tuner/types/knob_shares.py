"""KnobShares: which knobs a gain comes from, and of which no effect was shown."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

MOST_KNOBS_SAID = 4
NO_EFFECT = "no effect shown"
NO_EFFECT_WORDS = (
    "No effect shown: what the knob does, if anything, cannot be told from noise, so its value was left to chance."
)


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
        rest = [f"{NO_EFFECT}: {', '.join(self.not_shown)}"] if self.not_shown else []
        return "; ".join([*([self.shares_words()] if self.shares else []), *rest])

    def shares_words(self) -> str:
        """Only where the gain comes from."""
        more = len(self.shares) - MOST_KNOBS_SAID
        said = [f"{name} {share:.0%}" for name, share in list(self.shares.items())[:MOST_KNOBS_SAID]]
        return (f"from {', '.join(said)}" + (f" and {more} more" if more > 0 else "")) if said else ""

    def to_json(self) -> dict[str, Any]:
        """As `from_json` takes it; also in words."""
        return {**asdict(self), "words": str(self)}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> "KnobShares":
        """What `to_json` gave."""
        return cls(dict(data["shares"]), tuple(data["not_shown"]))
