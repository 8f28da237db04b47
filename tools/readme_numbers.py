"""Prints the numbers of the README and draws its picture: a simulated service whose load changes, day and night.

Example: python tools/readme_numbers.py docs/images/study.svg
"""

import argparse
import math
import sys
import time
from pathlib import Path

import numpy as np

from rasp_tuner import Categorical, Float, Int, Tuner

KNOBS = {"cache_gb": Float(1, 64, log=True), "workers": Int(1, 32, log=True), "codec": Categorical(["lz4", "zstd"])}
DEFAULT = {"cache_gb": 8.0, "workers": 4, "codec": "lz4"}
BEST = {900.0: (40.0, 16, "zstd"), 100.0: (4.0, 2, "lz4")}  # by requests a second
DAYS, A_DAY = 8, 48  # steps of half an hour
STUDIES = 40  # in which no knob does anything
WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 760, 300, 54, 12, 44, 40
STYLE = """text { font: 13px system-ui, sans-serif; fill: #57606a }
.title { font-size: 15px; font-weight: 600; fill: #1f2328 }
.axis { stroke: #d0d7de } .night { fill: #8c959f; opacity: .13 } .dot { fill: #0969da; opacity: .45 }
.tuned { stroke: #0969da; stroke-width: 2.5; fill: none }
.default { stroke: #bc4c00; stroke-width: 2; fill: none; stroke-dasharray: 6 4 }
@media (prefers-color-scheme: dark) { text { fill: #9198a1 } .title { fill: #f0f6fc } .axis { stroke: #3d444d }
.dot { fill: #58a6ff } .tuned { stroke: #58a6ff } .default { stroke: #f0883e } }"""


def p99_ms(params: dict, qps: float) -> float:
    cache, workers, codec = BEST[qps]
    off = math.log(params["cache_gb"] / cache) ** 2 + 0.5 * math.log(params["workers"] / workers) ** 2
    return (30.0 if qps == 900.0 else 20.0) * (1.0 + 0.25 * off + 0.1 * (params["codec"] != codec))


def load(step: int) -> float:
    return 900.0 if step % A_DAY >= A_DAY // 2 else 100.0


def play(holdout: float | None, seed: int = 0) -> tuple[Tuner, list[float], list[float]]:
    """The tuner after some days, what came at each step, and what the default would have given, without noise."""
    tuner = Tuner(KNOBS, {"p99_ms": "min"}, ["qps"], DEFAULT, holdout=holdout, seed=seed)
    noise, came, usual = np.random.default_rng(seed), [], []
    for step in range(DAYS * A_DAY):
        qps = load(step)
        s = tuner.ask({"qps": qps})
        came.append(p99_ms(s.params, qps) * math.exp(0.05 * noise.normal()))
        usual.append(p99_ms(DEFAULT, qps))
        tuner.tell(s.id, {"p99_ms": came[-1]})
    return tuner, came, usual


def claims() -> int:
    """How many of the studies in which no knob does anything claim a gain."""
    found = 0
    for seed in range(STUDIES):
        tuner, noise = Tuner(KNOBS, {"ms": "min"}, ["qps"], DEFAULT, seed=seed), np.random.default_rng(1000 + seed)
        for step in range(60):
            s = tuner.ask({"qps": load(step)})
            tuner.tell(s.id, {"ms": 20.0 * math.exp(0.2 * noise.normal())})
        versus = tuner.versus_default()
        found += versus is not None and versus.gain is not None and versus.gain.outcome == "better"
    return found


def step_ms(steps: int = 300) -> float:
    """Milliseconds of one core that an ask and its tell take, on this machine."""
    tuner = Tuner(KNOBS, {"p99_ms": "min"}, ["qps"], DEFAULT)
    begun = time.process_time()
    for step in range(steps):
        s = tuner.ask({"qps": load(step)})
        tuner.tell(s.id, {"p99_ms": p99_ms(s.params, load(step))})
    return 1000.0 * (time.process_time() - begun) / steps


def picture(came: list[float], usual: list[float], words: str) -> str:
    """What came over days, beside the default."""
    low, high = math.log(17.0), math.log(110.0)

    def x(step: float) -> float:
        return LEFT + (WIDTH - LEFT - RIGHT) * step / len(came)

    def y(ms: float) -> float:
        place = (math.log(min(max(ms, 17.0), 110.0)) - low) / (high - low)
        return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * place

    body = [f"<style>{STYLE}</style>", f'<text class="title" x="{LEFT}" y="22">{words}</text>']
    for day in range(DAYS):
        size = f'width="{x(A_DAY / 2) - x(0):.1f}" height="{HEIGHT - TOP - BOTTOM}"'
        body.append(f'<rect class="night" x="{x(day * A_DAY):.1f}" y="{TOP}" {size}/>')
        middle = x((day + 0.5) * A_DAY)
        body.append(f'<text x="{middle:.0f}" y="{HEIGHT - 18}" text-anchor="middle">day {day + 1}</text>')
    for ms in (20, 30, 50, 80):
        body.append(f'<line class="axis" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y(ms):.1f}" y2="{y(ms):.1f}"/>')
        body.append(f'<text x="{LEFT - 8}" y="{y(ms) + 4:.1f}" text-anchor="end">{ms}</text>')
    dots = "".join(f'<circle class="dot" cx="{x(i + 0.5):.1f}" cy="{y(ms):.1f}" r="2.4"/>' for i, ms in enumerate(came))
    steps = " ".join(f"{x(i):.1f},{y(ms):.1f} {x(i + 1):.1f},{y(ms):.1f}" for i, ms in enumerate(usual))
    halves = [range(i, i + A_DAY // 2) for i in range(0, len(came), A_DAY // 2)]
    tuned = []
    for half in halves:
        for i in half:
            near = [came[j] for j in half if abs(j - i) <= 4]
            tuned.append(f"{x(i + 0.5):.1f},{y(float(np.median(near))):.1f}")
    body += [dots, f'<polyline class="default" points="{steps}"/>']
    body.append(f'<polyline class="tuned" points="{" ".join(tuned)}"/>')
    note = "p99 in ms; grey: night, 100 requests a second; else 900. Dashed: the default."
    body.append(f'<text x="{LEFT}" y="{HEIGHT - 2}">{note}</text>')
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{words}">'
        f"{''.join(body)}</svg>\n"
    )


def numbers() -> dict[str, str]:
    """Everything but times, which differ from machine to machine."""
    tuner, came, usual = play(holdout=0.1)
    first, day = slice(0, A_DAY), slice(A_DAY, 2 * A_DAY)
    last = slice(-A_DAY, None)
    return {
        "saved": str(tuner.versus_default()),
        "first day": f"{sum(came[first]) / sum(usual[first]) - 1.0:+.0%}",
        "second day": f"{sum(came[day]) / sum(usual[day]) - 1.0:+.0%}",
        "last day": f"{sum(came[last]) / sum(usual[last]) - 1.0:+.0%}",
        "situations": " | ".join(map(str, tuner.situations())),
        "claims where nothing helps": f"{claims()} of {STUDIES}",
    }


def main() -> None:
    parser = argparse.ArgumentParser(description="Print numbers 1 to 4 of the README.")
    parser.add_argument("picture", nargs="?", type=Path, help="where its picture is drawn; else it is not")
    given = parser.parse_args()
    lines = [f"{name}: {found}" for name, found in numbers().items()]
    sys.stdout.write("\n".join([*lines, f"ask and tell: {step_ms():.2f} ms", ""]))
    if given.picture is not None:
        _, came, usual = play(holdout=0.1)
        words = "A simulated service, tuned while it runs: p99 against its default"
        given.picture.write_text(picture(came, usual, words))


if __name__ == "__main__":
    main()
