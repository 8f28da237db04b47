"""Figures of Matplotlib inside a page that needs nothing else."""

import base64
import io
from html import escape

from matplotlib.figure import Figure

STYLE = """
.win { background: #e3f4e3 } .lose { background: #fbe6e3 } .lead { font-size: 1.1rem; max-width: 46rem }
figure.first { margin: 1rem 0; max-width: 46rem } @media (max-width: 40rem) { .wide img { max-width: none } }
"""


def image(figure: Figure, alt: str) -> str:
    """A figure inside the page; on a phone it keeps its size and scrolls, for it could not be read smaller."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=110)
    return f'<div class="wide">{embedded(buffer.getvalue(), alt)}</div>'


def embedded(png: bytes, alt: str) -> str:
    """A picture inside the page."""
    return f'<img alt="{escape(alt)}" src="data:image/png;base64,{base64.b64encode(png).decode()}">'
