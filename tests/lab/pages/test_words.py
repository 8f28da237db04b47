"""The pages stay short enough to be read: how many words there are, and how long a sentence is."""

import re

from rasp_lab import REPOSITORY

PAGES = {file.name: file.read_text() for file in (REPOSITORY / "docs").glob("*.md")}
GENERATED = ("RESULTS.md", "ABLATIONS.md", "REAL.md")  # their long tables are CSV files
NO_PROSE = (r"```.*?```", r"\$\$.*?\$\$", r"^\|.*?$", r"^#.*?$", r"^:::.*?$", r"^    .*?$", r"<[^>]*>")


def words(text: str) -> list[str]:
    """What has a letter or a digit: the bars of tables have none."""
    return [word for word in text.split() if re.search(r"\w", word)]


def sentences(text: str) -> list[str]:
    """Of the prose of a page: without code, tables, headings and formulas; an item of a list is its own paragraph."""
    for pattern in NO_PROSE:
        text = re.sub(pattern, "", text, flags=re.DOTALL | re.MULTILINE)
    text = re.sub(r"^\s*(?:[-*]|\d+\.) ", "\n\n", text, flags=re.MULTILINE)
    found = []
    for paragraph in re.split(r"\n\s*\n", text):
        found += re.split(r"(?<=[.:;!?])[\"*)]*\s+(?=[A-Z`*\[\"])", " ".join(paragraph.split()))
    return [sentence for sentence in found if len(sentence.split()) > 1]


def test_all_pages_together_have_at_most_50_000_words():
    counts = {name: len(words(text)) for name, text in PAGES.items()}
    assert sum(counts.values()) <= 50_000, sorted(counts.items(), key=lambda item: -item[1])[:8]


def test_generated_pages_have_at_most_1_500_words():
    assert {name: count for name in GENERATED if (count := len(words(PAGES[name]))) > 1500} == {}


def test_sentences_are_short():
    assert sentences("# A\n\nOne two. Three four\nfive:\n\n- six seven\n\n| a b |\n\n```\nc d. e f\n```\n") == [
        "One two.",
        "Three four five:",
        "six seven",
    ]
    lengths = [len(sentence.split()) for text in PAGES.values() for sentence in sentences(text)]
    assert sum(lengths) / len(lengths) < 18
