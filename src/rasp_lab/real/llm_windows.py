"""Requests that reach an LLM server one after another, from two real traces (llm_windows.csv).

    git clone https://github.com/Azure/AzurePublicDataset
    python -m rasp_lab.real.llm_windows AzurePublicDataset/data     # writes the table

The traces, AzureLLMInferenceTrace_{conv,code}.csv, are by Microsoft (CC-BY-4.0): arrival, length of the prompt and of
the answer of each request of an hour. The table has windows of consecutive requests, spread evenly over the hour.
Prompts are cut to 4096 tokens and answers to 64, as by a server with these limits.
"""

import csv
import sys
from dataclasses import dataclass
from pathlib import Path

from rasp_lab.real.llm_batches import TRACES, Request, read

TABLE = Path(__file__).with_name("llm_windows.csv")
WINDOWS = 20  # of each trace
LATELY, SERVED = 24, 48  # requests of a window: what the server has seen lately, and what then comes
MOST_PROMPT, MOST_ANSWER = 4096, 64  # tokens


@dataclass(frozen=True, slots=True)
class Window:
    """Consecutive requests: arrival in seconds, tokens of the prompt, tokens of the answer."""

    trace: str
    requests: tuple[Request, ...]

    @property
    def lately(self) -> tuple[Request, ...]:
        return self.requests[:LATELY]

    @property
    def served(self) -> tuple[Request, ...]:
        return self.requests[LATELY:]


def windows(requests: list[Request]) -> list[tuple[Request, ...]]:
    """Windows of a trace, spread evenly over it; each begins at second 0.

    >>> found = windows([(float(i), 9000, 3) for i in range(2000)])
    >>> len(found), len(found[0]), found[1][:2]
    (20, 72, ((0.0, 4096, 3), (1.0, 4096, 3)))
    """
    size = LATELY + SERVED
    starts = [i * (len(requests) - size) // (WINDOWS - 1) for i in range(WINDOWS)]
    return [
        tuple(
            (round(time - requests[start][0], 3), min(prompt, MOST_PROMPT), min(answer, MOST_ANSWER))
            for time, prompt, answer in requests[start : start + size]
        )
        for start in starts
    ]


def read_windows() -> list[Window]:
    """The windows of the table."""
    found: dict[tuple[str, str], list[Request]] = {}
    with TABLE.open(newline="") as lines:
        for row in csv.DictReader(line for line in lines if not line.startswith("#")):
            request = float(row["arrival_s"]), int(row["prompt"]), int(row["answer"])
            found.setdefault((row["trace"], row["window"]), []).append(request)
    return [Window(trace, tuple(requests)) for (trace, _), requests in found.items()]


def main(folder: Path) -> None:
    lines = ["# from AzureLLMInferenceTrace_{conv,code}.csv (Microsoft, CC-BY-4.0) by src/rasp_lab/real/llm_windows.py"]
    lines += ["trace,window,arrival_s,prompt,answer"]
    for trace, name in TRACES.items():
        for number, window in enumerate(windows(sorted(read(folder / name)))):
            lines += [f"{trace},{number},{time:g},{prompt},{answer}" for time, prompt, answer in window]
    TABLE.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
