"""A browser in a test: how it is started, what goes wrong on a page, how well its text can be read."""

import re

from serving import wait_for

FLAGS = [
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
]
WATCH = """
window.violations = [];
document.addEventListener('securitypolicyviolation', (event) => window.violations.push(event.violatedDirective));
"""

# The lowest contrast of any visible text with what lies behind it, and that text.
CONTRAST = """() => {
  const paint = document.createElement('canvas').getContext('2d', { willReadFrequently: true });
  const rgba = (color) => {
    paint.clearRect(0, 0, 1, 1);
    paint.fillStyle = color;
    paint.fillRect(0, 0, 1, 1);
    const [r, g, b, a] = paint.getImageData(0, 0, 1, 1).data;
    return [r, g, b, a / 255];
  };
  const light = ([r, g, b]) => {
    const [x, y, z] = [r, g, b].map((c) => (c / 255 <= 0.04045 ? c / 255 / 12.92 : ((c / 255 + 0.055) / 1.055) ** 2.4));
    return 0.2126 * x + 0.7152 * y + 0.0722 * z;
  };
  const behind = (element) => {
    for (let at = element; at; at = at.parentElement) {
      const color = rgba(getComputedStyle(at).backgroundColor);
      if (color[3] > 0.99) return color;
    }
    return rgba('white');
  };
  let worst = [99, ''];
  const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walk.nextNode()) {
    const element = walk.currentNode.parentElement;
    const text = walk.currentNode.textContent.trim();
    if (!text || !element.checkVisibility() || element.closest('.unseen, .skip, script')) continue;
    const style = getComputedStyle(element);
    const svg = element instanceof SVGElement;
    let back = behind(element.closest('svg') ?? element);
    if (svg && element.classList.contains('on')) back = rgba(style.getPropertyValue('--c'));
    const [a, b] = [light(rgba(svg ? style.fill : style.color)), light(back)].sort((x, y) => y - x);
    const ratio = (a + 0.05) / (b + 0.05);
    if (ratio < worst[0]) worst = [ratio, text.slice(0, 60)];
  }
  return worst;
}"""


DRAWN = "(svg) => svg.querySelectorAll('path, circle').length > 0"


def scrolled_to_the_end(page):
    """Draws every chart, as they are drawn when they come into sight, and unfolds what is folded."""
    for svg in page.locator("figure.plot svg:visible").all():
        svg.scroll_into_view_if_needed()
        wait_for(lambda svg=svg: svg.evaluate(DRAWN), "a chart")
    press(page.locator("details.definition summary"))
    press(page.get_by_role("button", name="Why").first)


def press(button):
    """By keyboard: a mouse misses what still moves, as while charts above it are drawn for the first time."""
    button.press("Enter")


class Tab:
    """A page, and everything that went wrong on it."""

    def __init__(self, browser, url, **settings):
        self.url, self.problems, self.requests = url, [], []
        self.context = browser.new_context(**{"viewport": {"width": 1280, "height": 900}, **settings})
        self.context.add_init_script(WATCH)
        self.page = self.context.new_page()
        self.page.set_default_timeout(90_000)
        self.page.on("console", lambda said: self.problems.append(said.text) if said.type != "log" else None)
        self.page.on("pageerror", lambda error: self.problems.append(str(error)))
        self.page.on("requestfailed", lambda request: self.problems.append(f"{request.url}: {request.failure}"))
        self.page.on("request", lambda request: self.requests.append(request.url))

    def open(self, path):
        self.page.goto(self.url + path)
        self.page.locator("h1").wait_for()
        return self.page

    def is_clean(self):
        assert self.page.evaluate("window.violations") == []
        assert self.problems == []
        assert not re.search(r"undefined|NaN|\[object|Infinity", self.page.locator("body").inner_text())
        assert [url for url in self.requests if not url.startswith(f"{self.url}/")] == []
