"""Write src/rasp_lab/real/llm_batches.csv: the batches of an LLM server that serves two real traces of requests.

    git clone https://github.com/Azure/AzurePublicDataset
    python -m rasp_lab.real.llm_batches AzurePublicDataset/data

The traces, AzureLLMInferenceTrace_{conv,code}.csv, are by Microsoft (CC-BY-4.0): arrival, length of the prompt and of
the answer of each request of an hour. They are replayed on a server with continuous batching: in every iteration it
reads the prompts that wait (one batch), and writes one token of every answer under way (another). Sizes are rounded up
to one or one and a half times a power of two, as servers pad them. The most frequent batches are kept.
"""

import csv
import sys
from collections import Counter
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

TABLE = Path(__file__).with_name("llm_batches.csv")
TRACES = {"conversation": "AzureLLMInferenceTrace_conv.csv", "code": "AzureLLMInferenceTrace_code.csv"}
ITERATION_S = 0.04  # assumed: what a token takes on one GPU
MOST_TOKENS = 8192  # of the prompts that are read together
KEPT = 8  # batches of each kind

Request = tuple[float, int, int]  # arrival in seconds, tokens of the prompt, tokens of the answer
Batch = tuple[str, int, int, int]  # "prefill" or "decode", requests, new tokens of each, tokens of each with the past


def batches(requests: list[Request]) -> Iterator[Batch]:
    """The batches of the server, one iteration after another.

    >>> list(batches([(0.0, 100, 3), (0.01, 200, 2)]))
    [('prefill', 1, 128, 128), ('prefill', 1, 256, 256), ('decode', 1, 1, 128), ('decode', 2, 1, 192)]
    """
    waiting, now = sorted(requests), 0.0
    running: list[list[int]] = []  # of each answer under way: tokens so far, tokens to come
    while waiting or running:
        now = now + ITERATION_S if running else max(now, waiting[0][0])
        for group in running:
            group[0] += 1
            group[1] -= 1
        read: list[Request] = []
        while waiting and waiting[0][0] <= now:
            if read and sum(r[1] for r in read) + waiting[0][1] > MOST_TOKENS:
                break
            read.append(waiting.pop(0))
        if read:
            mean = _padded(sum(r[1] for r in read) / len(read))
            yield "prefill", _padded(len(read)), mean, mean
        if running:
            yield "decode", _padded(len(running)), 1, _padded(sum(tokens for tokens, _ in running) / len(running))
        running = [group for group in running if group[1] > 0]
        running += [[tokens, left - 1] for _, tokens, left in read if left > 1]  # the first token comes with reading


def _padded(size: float) -> int:
    """The next larger of 1, 2, 3, 4, 6, 8, 12, ..."""
    found = 1
    while found < size:
        found = found * 3 // 2 if found & (found - 1) == 0 and found > 1 else 1 << found.bit_length()
    return found


def read(file: Path) -> list[Request]:
    """The requests of a trace, from its first second on."""
    with file.open(newline="") as rows:
        found = [
            (datetime.fromisoformat(time[:26]).timestamp(), int(prompt), int(answer))
            for time, prompt, answer in list(csv.reader(rows))[1:]
        ]
    start = min(time for time, _, _ in found)
    return [(time - start, min(prompt, MOST_TOKENS), answer) for time, prompt, answer in found]


def main(folder: Path) -> None:
    lines = ["# from AzureLLMInferenceTrace_{conv,code}.csv (Microsoft, CC-BY-4.0) by src/rasp_lab/real/llm_batches.py"]
    lines += ["phase,trace,requests,queries,keys,count"]
    for trace, name in TRACES.items():
        counts = Counter(batches(read(folder / name)))
        for phase in ("prefill", "decode"):
            own = Counter({batch: count for batch, count in counts.items() if batch[0] == phase})
            for (_, *sizes), count in sorted(own.most_common(KEPT)):
                lines.append(",".join(map(str, (phase, trace, *sizes, count))))
    TABLE.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
