"""Hooks of the docs site (mkdocs.yml): formulas as MathML, page titles in links, and no links out of docs/.

They keep the pages readable as they lie in the repository, and the site free of scripts from other hosts.
"""

import html
import logging
import re
from pathlib import Path
from typing import Any

from latex2mathml.converter import convert

ROOT = Path(__file__).resolve().parent.parent
OUTSIDE = re.compile(r"\[([^\]]+)\]\((\.\./[^)#]+)(?:#[^)]*)?\)")
PAGE = re.compile(r"\[(\w+\.md)\]\(\1((?:#[\w-]+)?)\)")
FORMULA = re.compile(r'<(span|div) class="arithmatex">(.*?)</\1>', re.DOTALL)

titles: dict[str, str] = {}  # file -> title in the navigation
log = logging.getLogger("mkdocs.plugins.docs_site")


def on_nav(nav: Any, **_: Any) -> None:
    """Take note of what each page is called."""
    titles.update({page.file.src_uri: page.title for page in nav.pages})


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """The page with `[PAGE.md](PAGE.md)` under the page's title, and `[text](../file)` as text.

    The site has no copy of the source tree to link to.
    """

    def plain(link: re.Match[str]) -> str:
        text, target = link.groups()
        path = (ROOT / "docs" / page.file.src_uri).parent / target
        if not path.exists():
            log.warning("%s links to %s, which does not exist", page.file.src_uri, target)
        name = path.resolve().relative_to(ROOT).as_posix()
        return f"`{name}`" if text.strip("`") == name else f"{text} (`{name}`)"

    def titled(link: re.Match[str]) -> str:
        name, anchor = link.groups()
        return f"[{titles.get(name, name)}]({name}{anchor})"

    markdown = markdown.replace("<details>", '<details markdown="1">')  # tables inside are Markdown, too
    return PAGE.sub(titled, OUTSIDE.sub(plain, markdown))


def on_page_content(content: str, **_: Any) -> str:
    """The page with every formula as MathML, which browsers draw by themselves."""

    def drawn(formula: re.Match[str]) -> str:
        tag, inner = formula.groups()
        tex = html.unescape(inner).strip()[2:-2]  # without \( \) or \[ \]
        display = "block" if tag == "div" else "inline"
        return f'<{tag} class="formula">{convert(tex, display=display)}</{tag}>'

    return FORMULA.sub(drawn, content)
