"""What a study ends with: settings for each situation, the verdict, and where the files are."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rasp_tuner.page.words import settings_words
from rasp_tuner.report.paired import METHOD
from rasp_tuner.space import Params
from rasp_tuner.tune.knob_shares import KnobShare, Shares, expected_shares, with_final_pairs
from rasp_tuner.tune.loop import Run, Session
from rasp_tuner.tune.paired_comparison import PairedRun
from rasp_tuner.tune.playoff import never_kept
from rasp_tuner.tune.situations import Case, CaseGroup
from rasp_tuner.tune.study import TuneStudy
from rasp_tuner.tune.verdict import Verdict, goals_of, is_ahead, judge, main_effect, ratio_words

EXIT_CODES = {"better": 0, "same": 3, "default": 3, "untested": 3, "worse": 4}


@dataclass(frozen=True)
class SituationResult:
    """What was found for one situation."""

    situation: CaseGroup
    verdict: Verdict
    use: Params  # the recommendation, or the default where that is better kept
    shares: tuple[KnobShare, ...] = ()  # what each knob does, where something else than the default is used


@dataclass(frozen=True)
class TuneResult:
    """What a study ends with; `str()` says it in words."""

    study: TuneStudy
    folder: Path
    runs: list[Run]
    situations: list[SituationResult]
    pairs: list[PairedRun]
    verdict: Verdict
    savings: str | None = None  # while tuning, in words: of runs that had the default beside them

    @property
    def report(self) -> Path:
        return self.folder / "report.html"

    @property
    def exit_code(self) -> int:
        """Of `rasp tune`: 0 better, 3 no difference shown or nothing better found, 4 worse."""
        return EXIT_CODES[self.verdict.outcome]

    @property
    def settings(self) -> dict[str, Params]:
        """Situation -> the settings to use there."""
        return {result.situation.label: result.use for result in self.situations}

    def to_json(self) -> dict[str, Any]:
        """For settings.json and `--json`."""
        return {
            "study": self.study.name,
            "outcome": self.verdict.outcome,
            "verdict": self.verdict.words,
            "method": METHOD,
            "default": self.study.default,
            "runs": len(self.runs),
            "pairs": len(self.pairs),
            "situations": [
                {
                    "situation": result.situation.label,
                    "inputs": result.situation.inputs,
                    "use": result.use,
                    "recommended": result.situation.params,
                    "outcome": result.verdict.outcome,
                    "verdict": result.verdict.words,
                    "effects": _effects(result.verdict),
                    "knobs": [share.to_json() for share in result.shares],
                }
                for result in self.situations
            ],
            "effects": _effects(self.verdict),
            "while_tuning": self.savings,
            "report": str(self.report),
        }

    def __str__(self) -> str:
        lines = [f"{self.study.name}: {headline(self)}"]
        for name, effect in self.verdict.effects.items():
            what = "times the default" if effect.kind == "ratio" else "difference from the default"
            lines.append(f"  {name}: {ratio_words(effect)} {what}, {effect.pairs} pairs ({effect.method})")
        lines.append(f"  default: {settings_words(self.study.default)}")
        for result in self.situations:
            where = "use" if len(self.situations) == 1 else f"use for {result.situation.label}"
            said = "" if len(self.situations) == 1 else f"  [{result.verdict.words}]"
            lines.append(f"  {where}: {settings_words(result.use)}{said}")
            lines += [f"    {share_words(result.shares)}"] if result.shares else []
        lines += [] if self.savings is None else [f"  while tuning: {self.savings}"]
        return "\n".join(lines)


def share_words(shares: Sequence[KnobShare]) -> str:
    """What each knob does, on one line: those that were moved first, the largest effect first.

    >>> alone = [KnobShare(name, 1, False, note="no effect shown, left alone") for name in ("threads", "buffer")]
    >>> share_words([*alone, KnobShare("locale", "C", True, -0.55, True)])
    'locale=C: -55%; threads, buffer: no effect shown, left alone'
    """
    moved = [share for share in shares if share.moved]
    moved.sort(key=lambda one: -abs(math.log1p(max(one.change or 0.0, -1.0 + 1e-12))))
    alike: dict[str, list[str]] = {}
    for share in shares:
        if not share.moved:
            alike.setdefault(share.note, []).append(share.name)
    return "; ".join([*map(str, moved), *(f"{', '.join(names)}: {note}" for note, names in alike.items())])


def headline(result: TuneResult) -> str:
    """The verdict as a sentence's start."""
    compared = [r for r in result.situations if r.verdict.outcome not in ("default", "untested")]
    some = 0 < len(compared) < len(result.situations)
    where = f"; in {len(compared)} of {len(result.situations)} situations, elsewhere keep the default" if some else ""
    return f"{result.verdict.words}{where}"


def conclude(
    session: Session,
    situations: Sequence[CaseGroup],
    pairs: Sequence[PairedRun],
    folder: Path,
    shares: Shares | None = None,
) -> TuneResult:
    """Judge the pairs, and decide what to use where; `shares` has what knobs do on inputs where that was measured."""
    study, groups = session.study, [[p for p in pairs if p.situation == i] for i in range(len(situations))]
    compared = [group for group in groups if group]
    overall = judge(compared, study.metrics, _default_ran(session))
    if not any(situation.params != study.default for situation in situations):
        overall = Verdict("default", _nothing_found(session, [c for one in situations for c in one.cases]), {})
    results = []
    for situation, group in zip(situations, groups, strict=True):
        verdict = judge([group], study.metrics, _default_ran(session, situation.inputs))
        if situation.params == study.default:
            missed = never_kept(session, situation.cases)
            verdict = Verdict(
                "default", f"no run kept {missed}: keep the default" if missed else "keep the default", {}
            )
        open_ = verdict.outcome in ("same", "untested")
        ahead = verdict.outcome == "untested" or is_ahead(verdict, study.metrics)
        good = verdict.outcome == "better" or (open_ and ahead and overall.outcome in ("better", "untested"))
        use = situation.params if good else study.default
        results.append(
            SituationResult(situation, verdict, use, _shares(session, situation, verdict, use, shares or {}))
        )
    saved = session.tuner.savings()
    words = None if saved is None else str(saved)
    return TuneResult(study, folder, list(session.runs), results, list(pairs), overall, words)


def _default_ran(session: Session, inputs: Sequence[str] = ()) -> bool:
    """Whether any run of the default was fine while tuning, on these inputs or on all."""
    own = [run for run in session.runs if run.params == session.study.default]
    return any(run.metrics is not None for run in own if not inputs or run.input in inputs)


def _nothing_found(session: Session, cases: Sequence[Case]) -> str:
    missed = never_kept(session, cases)
    if missed:
        return f"no run kept the limit {missed}, the default neither: allow more, or give other knobs or more steps"
    return "no setting was found that is better than the default: keep it"


def _shares(
    session: Session, situation: CaseGroup, verdict: Verdict, use: Params, measured: Shares
) -> tuple[KnobShare, ...]:
    if use == session.study.default or verdict.outcome == "untested":
        return ()
    case = situation.cases[0]
    known = measured.get(case.input) if len(situation.cases) == 1 else None
    found = known if known is not None else expected_shares(session, case, use)
    effect = main_effect(verdict.effects, goals_of(session.study.metrics))
    return tuple(with_final_pairs(found, effect))


def _effects(verdict: Verdict) -> dict[str, Any]:
    return {
        name: {"kind": e.kind, "value": e.value, "low": _finite(e.low), "high": _finite(e.high), "pairs": e.pairs}
        for name, e in verdict.effects.items()
    }


def _finite(x: float) -> float | None:
    """None for a bound that is not known: JSON has no infinity."""
    return x if math.isfinite(x) else None
