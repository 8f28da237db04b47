"""FinalDecision: what the final pairs of a `rasp tune` study settled, as its settings.json says it."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from rasp_tuner.base.checks import printable
from rasp_tuner.page.words import settings_words
from rasp_tuner.space import Params

SETTINGS = "settings.json"  # in the folder of a study of `rasp tune`


class DecidedSituation(NamedTuple):
    """What to use in one situation."""

    label: str
    use: Params
    words: str  # the verdict with its interval


@dataclass(frozen=True, slots=True)
class FinalDecision:
    """The verdict over all situations, and what to use in each; `str()` says it in the words of `rasp tune`."""

    outcome: str  # better, same, worse, default or untested
    words: str
    pairs: int  # of default and recommendation, run back to back
    default: Params
    situations: tuple[DecidedSituation, ...]

    def basis(self) -> str:
        """What it rests on."""
        if not self.pairs:
            return "Decided when the study ended; nothing was compared with the default in pairs."
        return f"Decided by {self.pairs:,} pairs of default and recommendation, run back to back when the study ended."

    def __str__(self) -> str:
        lines = [self.words, f"  default: {settings_words(self.default)}"]
        alone = len(self.situations) == 1
        for label, use, words in self.situations:
            lines.append(f"  {'use' if alone else f'use for {label}'}: {settings_words(use)}  [{words}]")
        return "\n".join(map(printable, lines))


def decided_in(folder: Path) -> FinalDecision | None:
    """Of a study's folder; None where no `rasp tune` study has ended there."""
    try:
        found = json.loads((folder / SETTINGS).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return _read(found) if isinstance(found, dict) and {"study", "verdict", "situations"} <= set(found) else None


def _read(found: Mapping[str, Any]) -> FinalDecision:
    each = tuple(DecidedSituation(one["situation"], one["use"], one["verdict"]) for one in found["situations"])
    compared = sum(one["outcome"] not in ("default", "untested") for one in found["situations"])
    some = 0 < compared < len(each)
    where = f"; in {compared} of {len(each)} situations, elsewhere keep the default" if some else ""
    return FinalDecision(found["outcome"], f"{found['verdict']}{where}", found["pairs"], found["default"], each)
