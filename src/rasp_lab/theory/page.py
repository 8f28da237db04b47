"""The outcomes as a table, a verdict and a self-contained page."""

from collections.abc import Sequence
from pathlib import Path

from rasp_lab.pages import pictures
from rasp_lab.theory.claim import Outcome, ratio
from rasp_lab.theory.figure import figure
from rasp_tuner import __version__
from rasp_tuner.page import html_page
from rasp_tuner.page.html_page import Table


def as_table(outcomes: Sequence[Outcome], *, statements: bool = False) -> Table:
    """A row a claim and version; with `statements`, what it says, too."""
    head = ["claim", "as", *(["statement"] if statements else []), "assumptions", "instances"]
    rows = [
        [
            o.claim.name,
            o.claim.version,
            *([o.claim.statement] if statements else []),
            o.claim.assumptions,
            f"{len(o.trials):,}",
            ratio(o.worst_ratio),
            "yes" if o.holds else "NO",
            "; ".join(f"{trial.name}: {ratio(trial.ratio)}" for trial in o.counterexamples),
        ]
        for o in outcomes
    ]
    return [*head, "worst measured/bound", "holds?", "counterexample"], rows


def verdict(outcomes: Sequence[Outcome]) -> str:
    """One sentence on the paper's statements, one on the mended ones."""
    printed = [o for o in outcomes if o.claim.version == "paper"]
    mended = [o for o in outcomes if o.claim.version == "mended"]
    return (
        f"Of {len(printed)} statements of the paper {sum(o.holds for o in printed)} hold as printed;"
        f" of {len(mended)} mended ones {sum(o.holds for o in mended)} do."
    )


def write(outcomes: Sequence[Outcome], folder: Path) -> tuple[Path, Path]:
    """Write DIR/theory.png and DIR/theory.html; return both paths."""
    picture, page = folder / "theory.png", folder / "theory.html"
    figure(outcomes).savefig(picture, dpi=110)
    title = "RASP-Tuner: the paper's theory, measured"
    body = [
        f"<h1>{title}</h1>",
        f'<p class="lead">{verdict(outcomes)}</p>',
        "<p>One point an instance, on logarithmic axes. Above the line, in the shaded half, a bound is broken;"
        " counterexamples made by hand are ringed, and what is too small for an axis lies on its edge."
        " The number beside a version is its worst measured / bound. The proofs are in docs/THEORY.md.</p>",
        pictures.embedded(picture.read_bytes(), "measured against bound, a panel a claim"),
        html_page.table(as_table(outcomes, statements=True), "Every claim, as the paper prints it and as it is proved"),
        f"<p>rasp-tuner {__version__}, rasp theory.</p>",
    ]
    page.write_text(html_page.page(title, body, pictures.STYLE))
    return picture, page
