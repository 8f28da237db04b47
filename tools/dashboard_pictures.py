"""Makes the pictures of the dashboard in README and docs: serves a simulated study and takes screenshots in Chromium.

Example: python tools/dashboard_pictures.py docs/images
"""

import math
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import httpx
import numpy as np
from PIL import Image
from playwright.sync_api import sync_playwright

STEPS = 2_000
STUDY = {
    "name": "checkout",
    "space": {
        "pool": {"type": "int", "low": 1, "high": 64, "log": True},
        "timeout_s": {"type": "float", "low": 0.1, "high": 10.0, "log": True},
        "batch_kb": {"type": "float", "low": 4.0, "high": 512.0, "log": True},
    },
    "metrics": {"p99_ms": "min"},
    "context": ["qps", "payload_kb"],
    "default": {"pool": 8, "timeout_s": 1.0, "batch_kb": 64.0},
}
REGIMES = [  # context, then the settings that would be best in it
    ((2.0, 1.0), (10, 0.7, 30)),
    ((8.0, 2.0), (40, 2.5, 160)),
    ((5.0, 9.0), (22, 1.2, 300)),
    ((11.0, 5.0), (56, 5.0, 24)),
]


def feed(client: httpx.Client) -> None:
    """Ask and tell through regimes that come and go."""
    rng = np.random.default_rng(5)
    client.post("/v1/studies", json=STUDY).raise_for_status()
    left, regime = 0, 3
    for step in range(STEPS):
        if not left:
            left = int(rng.integers(80, 180))
            regime = (regime + 1) % 4 if step < 520 else int(rng.choice([r for r in range(4) if r != regime]))
        left -= 1
        (qps, payload), best = REGIMES[regime]
        context = {"qps": qps + rng.normal(0, 0.25), "payload_kb": payload + rng.normal(0, 0.25)}
        asked = client.post("/v1/studies/checkout/ask", json={"context": context}).json()
        if rng.random() < 0.004:
            told = {"id": asked["id"], "reason": "out of memory"}
            client.post("/v1/studies/checkout/tell_failed", json=told).raise_for_status()
            continue
        ran = (asked["params"][name] for name in ("pool", "timeout_s", "batch_kb"))
        off = sum(math.log(x / ideal) ** 2 for x, ideal in zip(ran, best, strict=True))
        told = {"id": asked["id"], "metrics": {"p99_ms": round(40 + 14 * off + rng.normal(0, 2), 2)}}
        client.post("/v1/studies/checkout/tell", json=told).raise_for_status()


def photograph(url: str, folder: Path) -> None:
    """Write the head of the page and its situations in light, and its end in dark, beside a phone."""
    flags = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--no-first-run"]
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=shutil.which("chromium"), args=flags)
        for name, scheme, size, anchor in [
            ("dashboard", "light", (1280, 1180), "h1"),
            ("end", "dark", (1280, 1080), "#about-forecasts"),
            ("phone", "dark", (390, 1080), "h1"),
        ]:
            page = browser.new_page(viewport={"width": size[0], "height": size[1]}, color_scheme=scheme)
            page.goto(f"{url}/studies/checkout")
            page.locator("#health", has_text="Live").wait_for()
            if anchor != "h1":
                page.get_by_role("button", name="Why").first.click()
                page.locator(anchor).evaluate("(it) => window.scrollBy(0, it.getBoundingClientRect().top - 140)")
            time.sleep(2)
            page.screenshot(path=folder / f"{name}.png")
            if name == "dashboard":
                page.locator("section[aria-labelledby=about-situations]").screenshot(path=folder / "situations.png")
            page.close()
        browser.close()
    join(folder)


def join(folder: Path) -> None:
    """One picture of the dark ones side by side, both with few enough colours to be small."""
    end, phone = Image.open(folder / "end.png"), Image.open(folder / "phone.png")
    both = Image.new("RGB", (end.width + phone.width + 20, end.height), "#2b3440")
    both.paste(end, (0, 0))
    both.paste(phone, (end.width + 20, 0))
    light = [(Image.open(folder / f"{name}.png").convert("RGB"), name) for name in ("dashboard", "situations")]
    for picture, name in [(both, "dashboard-dark"), *light]:
        picture.quantize(200, dither=Image.Dither.NONE).save(folder / f"{name}.png", optimize=True)
    (folder / "end.png").unlink()
    (folder / "phone.png").unlink()


def main(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with tempfile.TemporaryDirectory() as data:
        command = [sys.executable, "-m", "rasp_tuner", "serve", "--data", data, "--port", str(port)]
        server = subprocess.Popen(command)
        try:
            transport = httpx.HTTPTransport(retries=8)  # it takes a moment to come up
            with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=30, transport=transport) as client:
                feed(client)
            photograph(f"http://127.0.0.1:{port}", folder)
        finally:
            server.terminate()
            server.wait(20)


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "docs/images"))
