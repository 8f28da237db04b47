"""An HTML page as tests look at it."""

from html.parser import HTMLParser


class Page(HTMLParser):
    """Which tags there are, that they are closed in their order, and what would be fetched."""

    VOID = frozenset({"meta", "link", "img", "br", "circle", "line", "path", "polyline", "polygon", "rect"})

    def __init__(self, text):
        super().__init__()
        self.text, self.tags, self.links, self._open = text, [], [], []
        self.feed(text)
        assert self._open == []

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.links += [value for name, value in attrs if name in ("src", "href") or name.startswith("on")]
        if tag not in self.VOID:
            self._open.append(tag)

    def handle_endtag(self, tag):
        if tag not in self.VOID:
            assert self._open.pop() == tag
