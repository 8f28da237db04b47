"""The page of `rasp screen`: what each dimension explains, and the true context among the shifted ones."""

from html import escape

from rasp_tuner.context_report.report import ContextReport
from rasp_tuner.page import charts, html_page
from rasp_tuner.page.parts import PAGE_STYLE, tiles


def screen_page(report: ContextReport) -> str:
    """The verdict in words; pictures where there was enough to test."""
    body = ["<h1>Does the context help?</h1>", f'<p class="verdict">{escape(report.words)}</p>']
    if report.p is not None:
        facts = [(report.verdict, "verdict"), (f"{report.p:.2f}", "p"), (f"{report.samples:,}", "samples")]
        rows = [(f"{one.name}, p = {one.p:.2f}", one.share) for one in report.dimensions]
        told = "Squared error that each part of the context takes away, by itself"
        beside = "The context itself (line) among contexts shifted in time, which say nothing of the runs"
        body += [
            tiles(facts),
            f"<h2>{told}</h2>{charts.shares(rows, told)}",
            f"<h2>{beside}</h2>{charts.histogram(report.shifted, report.gain or 0.0, 'gain in log likelihood, nats')}",
        ]
    body += [f'<p class="note">{escape(warning)}</p>' for warning in report.warnings]
    return html_page.page("Does the context help?", body, PAGE_STYLE)
