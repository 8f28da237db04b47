"""The rows of the table: what is taken out of the engine, or moved, in a copy of its source."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rasp_lab.beds.factor_of_two import changed, with_value

QUADRATICS, PROCESS, BOTH = "continuous knobs", "other knobs", "both"
NONE = 1e-9  # of a variance or share that shall play no part
NEVER = 1e300


@dataclass(frozen=True)
class Constant:
    """A constant of a module below src/rasp_tuner gets another value, or is moved by a factor."""

    file: str
    name: str
    value: object = None
    factor: float | None = None

    def changed(self, text: str) -> str:
        if self.factor is not None:
            return changed(text, self.name, self.factor)
        return with_value(text, self.name, str(self.value) if isinstance(self.value, str) else repr(self.value))


@dataclass(frozen=True)
class Code:
    """A piece of code, there once, is another."""

    file: str
    old: str
    new: str

    def changed(self, text: str) -> str:
        if text.count(self.old) != 1:
            raise LookupError(f"{self.file} must have {self.old!r} once, got {text.count(self.old)}")
        return text.replace(self.old, self.new)


@dataclass(frozen=True)
class Row:
    """One line of the table; `model` says which of the two it can change."""

    part: str
    change: str
    model: str
    edits: Sequence[Constant | Code]

    @property
    def key(self) -> str:
        return f"{self.part}: {self.change} ({self.model})"

    def apply(self, package: Path) -> list[str]:
        """Edit a copy of the product; the names of the constants that were changed."""
        for edit in self.edits:
            file = package / edit.file
            file.write_text(edit.changed(file.read_text(encoding="utf-8")), encoding="utf-8")
        return [edit.name for edit in self.edits if isinstance(edit, Constant)]


def _half_and_twice(part: str, model: str, *constants: tuple[str, str]) -> list[Row]:
    return [
        Row(part, words, model, [Constant(file, name, factor=factor) for file, name in constants])
        for words, factor in (("half", 0.5), ("twice", 2.0))
    ]


def _prior(**medians: float) -> list[Constant]:
    return [Constant("engine/gp/model.py", f"PRIORS: {name}", median) for name, median in medians.items()]


CHOOSE, OUTLIERS, POOLED = (f"engine/kernel/{name}.py" for name in ("choose", "outliers", "pooled_prior"))
BELIEF, TRUST, MODEL, FAMILY = (f"engine/gp/{name}.py" for name in ("belief", "trust", "model", "family"))
VISITS = (BELIEF, "FIRST_HORIZON"), (BELIEF, "MOST_HORIZON")

ROWS = (
    Row(
        "contexts",
        "hidden",
        BOTH,
        [
            Code(
                "contexts/context_encoder.py",
                "        plain = self._plain(context)\n",
                "        return np.zeros(self.dim)\n        plain = self._plain(context)\n",
            ),
            Code("contexts/context_encoder.py", "return np.array(encoded)", "return np.zeros(len(encoded))"),
        ],
    ),
    Row(
        "model of continuous knobs",
        "the Gaussian process",
        QUADRATICS,
        [Code("engine/preset.py", "if any(discrete) or settings.find or single:", "if True:")],
    ),
    Row("budget", "none", BOTH, [Code("tuner.py", "budget: float | None = BUDGET", "budget: float | None = None")]),
    *_half_and_twice("budget's start-up allowance", BOTH, ("engine/budget.py", "START_STEPS")),
    Row(
        "measured bill",
        "none",
        BOTH,
        [
            Code(
                "engine/engine.py",
                "                choice = self._account.audited(belief, choice, self.wider, waiting)\n",
                "",
            )
        ],
    ),
    Row(
        "logarithms of a metric",
        "never",
        BOTH,
        [
            Constant("engine/preset.py", "SWITCHES", 2.0),
            Constant("engine/metric_evidence.py", "LEAP", NEVER),
            Constant("engine/scale.py", "LEVEL_RATIO", NEVER),
        ],
    ),
    Row(
        "calibration of intervals",
        "as believed",
        BOTH,
        [Constant("engine/safety.py", "LEAST_FACTOR", 1.0), Constant("engine/safety.py", "MOST_FACTOR", 1.0)],
    ),
    # continuous knobs: five experts over quadratics
    Row("horizon", "0: nothing is worth knowing", QUADRATICS, [Constant(CHOOSE, "HORIZON_STEPS", 0.0)]),
    *_half_and_twice("horizon", QUADRATICS, (CHOOSE, "HORIZON_STEPS")),
    Row(
        "trust in samples",
        "all are right",
        QUADRATICS,
        [
            Constant(OUTLIERS, "OUTLIER_ODDS", 1e-300),
            Constant(OUTLIERS, "OUTLIER_ODDS_NEW_SITUATION", 1e-300),
            Constant(OUTLIERS, "ONE_IN", 1000),
            Constant(OUTLIERS, "JUDGED", 2.0),
        ],
    ),
    Row("experts of like situations", "none", QUADRATICS, [Constant(POOLED, "LOCAL_ODDS", 1e5)]),
    Row(
        "optimum that moves with the context",
        "does not move",
        QUADRATICS,
        [Constant("engine/kernel/moving.py", "SLOPE_VARIANCE", NONE)],
    ),
    *_half_and_twice("forgetting of experts' scores", QUADRATICS, (POOLED, "KEEP")),
    # other knobs: one Gaussian process
    Row("visits to come", "0: nothing is worth knowing", PROCESS, [Constant(*name, 0.0) for name in VISITS]),
    *_half_and_twice("visits to come", PROCESS, *VISITS),
    Row(
        "trust in samples",
        "all are right",
        PROCESS,
        [Constant(TRUST, "FALSE_ODDS", 1e-300), Constant(TRUST, "FALSE_SHARE", 0.0)],
    ),
    Row("rows that are false together", "none", PROCESS, [Constant(TRUST, "FALSE_SHARE", 0.0)]),
    Row("surprises that are a change", "never", PROCESS, [Constant(FAMILY, "CHANGE_ODDS", 0.0)]),
    Row(
        "good news runs once more",
        "never",
        PROCESS,
        [Code(BELIEF, "news = None if within is not None else self._good_news(barred)", "news = None")],
    ),
    Row(
        "noises that are tried while rows are few",
        "one",
        PROCESS,
        [Constant(MODEL, "NOISE_FACTORS", "np.array([1.0])")],
    ),
    Row("effects that contexts share", "none", PROCESS, _prior(gs=NONE)),
    Row("effects of a context's own", "none", PROCESS, _prior(gc=NONE, gq=NONE)),
    Row("more of them for choices", "none", PROCESS, _prior(gq=NONE)),
    Row("effects that drift", "none", PROCESS, _prior(gt=NONE, vt=NONE)),
    Row("interactions", "none", PROCESS, [*_prior(vr=NONE), Constant(MODEL, "SMALL_RESIDUAL", NONE)]),
    Row("relevance of contexts, weights of knobs", "all alike", PROCESS, [Constant(MODEL, "WEIGHT_DEVIATION", 0.01)]),
    Row(
        "harm expected away from the default",
        "none",
        PROCESS,
        [Constant("engine/gp/knobs.py", "HARM", 0.0), Constant("engine/gp/knobs.py", "BOWL", 0.0)],
    ),
    Row("the default first in a new situation", "never", PROCESS, [Constant(FAMILY, "BASELINE_SHARE", 0.0)]),
    Row("repeats", "rows of their own", PROCESS, [Constant(FAMILY, "SAME_CONTEXT", 2.0)]),
    Row("memory", "half", PROCESS, [Constant(FAMILY, "MOST_ROWS", factor=0.5)]),
)
