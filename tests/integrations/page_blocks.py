"""Blocks of code of pages that cannot be doctests, as they start other programs."""

import re
from pathlib import Path

DOCS = Path(__file__).parents[2] / "docs"


def block(page, which=0):
    """The code of one of the blocks of a page that are Python and no doctest."""
    blocks = re.findall(r"^```python\n(.*?)^```$", (DOCS / page).read_text(), re.DOTALL | re.MULTILINE)
    return [code for code in blocks if not code.startswith(">>>")][which]
