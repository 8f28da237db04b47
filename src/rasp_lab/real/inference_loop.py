"""An inference server with continuous batching on a GPU: what is batched, blocks of the cache, tiles of the attention.

    python -m rasp_lab.real.inference_loop     # checks a GPU in about a minute: kernel, times, limits

Defaults are those of vLLM where it has the knob: 2048 tokens of an iteration, blocks of 16 tokens. Its 256 sequences
never bind here, nor do 64: a piece of work has at most 48 requests.
"""

import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol, Self

import numpy as np

from rasp_lab.real.continuous_batching import Answer, Chunk, Request, Scheduler, serve
from rasp_lab.real.llm_windows import SERVED, Window, read_windows
from rasp_lab.real.system import Knobs, RunFailed, System, Work, new_seed
from rasp_lab.real.triton_system import Compiler, Programs, TritonKernel, legal_programs, program_name
from rasp_tuner import Int, PowerOfTwo
from rasp_tuner.contexts import Number
from rasp_tuner.contexts.context_encoder import Schema
from rasp_tuner.space import Params

PLACES = 65_536  # tokens whose keys and values fit into the cache
MOST_TOGETHER = 64  # requests
LOADS = {"calm": (80.0, 160.0), "busy": (400.0, 800.0)}  # requests a second, mean of a window
REQUESTS = {"calm": SERVED // 2, "busy": SERVED}  # of a piece of work
SCHEDULED = ("max_batch", "prefill_chunk")  # knobs that need no other program
# Of the first tokens, 90% must come within so many milliseconds: about 1.5 times what the default needs in the slowest
# window of the kind on one H200. `python -m rasp_lab.real.inference_loop` prints those of a GPU.
FIRST_TOKEN_MS = {
    "conversation, calm": 48.0,
    "conversation, busy": 250.0,
    "code, calm": 130.0,
    "code, busy": 340.0,
}
MARGIN = 1.5
PIECES = 25  # of each kind, by which the limits are found

KNOBS: Knobs = {
    "max_batch": (PowerOfTwo(8, MOST_TOGETHER), MOST_TOGETHER),
    "prefill_chunk": (PowerOfTwo(256, 8192), 2048),
    "kv_block": (PowerOfTwo(16, 128), 16),
    "tile_q": (PowerOfTwo(16, 128), 64),
    "warps": (PowerOfTwo(2, 8), 4),
    "stages": (Int(1, 4), 2),
}
CONTEXT: Schema = dict.fromkeys(("requests_s", "prompt_tokens", "answer_tokens"), Number(log=True))


class Model(Compiler, Protocol):
    """A language model on a GPU (decoder_model.py), or what stands for it in a test."""

    def warm_up(self) -> None: ...
    def step(self, chunks: Sequence[Chunk], params: Params) -> None: ...  # to its end


class InferenceLoop(System):
    """Continuous batching of a language model of 8 layers. Knobs: requests that run together, tokens of an
    iteration, tokens of a block of the cache; tile, warps and stages of the Triton attention. Work: 24 or 48
    consecutive requests of the Azure LLM traces, code or conversation, calm or busy; idle gaps are skipped. The context
    has requests a second and mean lengths. Cost: mean time to the last token. If a tenth of first tokens comes after a
    limit (1.5 times the default's worst of that kind), the run has failed, and costs as many times more.
    """

    title = "Inference loop"
    knobs = KNOBS
    context = CONTEXT
    kinds = tuple(FIRST_TOKEN_MS)
    constraints = ("tile_q * (128 + kv_block) <= 6144 * warps",)  # 192 registers of a thread for sums and scores
    _known = Programs()  # a program is compiled once in a process, whatever runs there are

    def __init__(self, folder: Path, model: Model | None = None) -> None:
        super().__init__(folder)
        self._windows = read_windows()
        self._given = model
        self._programs = Programs() if model else self._known
        self._clock = time.perf_counter

    @classmethod
    def missing(cls) -> str | None:
        return TritonKernel.missing()

    @classmethod
    def version(cls) -> str:
        return TritonKernel.version()

    def __enter__(self) -> Self:
        """Compiles and checks every program that an agent may ask for, and warms up the model."""
        self._model = self._given or self._on_gpu()
        self._programs.compile(self._model, (self.default, *legal_programs(self, SCHEDULED)), SCHEDULED)
        if fault := self._programs.faults[_program(self.default)]:
            raise RuntimeError(f"{self.title}: the default cannot run on this GPU: {fault}")
        self._model.warm_up()
        for kind in self.kinds:  # without a limit: something may still be loaded
            self.latency(self.default, self.work(kind, np.random.default_rng(0)))
        return self

    def __exit__(self, *_: Any) -> None:
        del self._model  # and its memory

    def _on_gpu(self) -> Model:
        from rasp_lab.real.decoder_model import Decoder

        return Decoder(PLACES, MOST_TOGETHER)

    def work(self, kind: str, rng: np.random.Generator) -> Work:
        trace, _, load = kind.partition(", ")
        own = [window for window in self._windows if window.trace == trace]
        seed = new_seed(rng)  # its remainder says which window
        _, prompts, answers = zip(*own[seed % len(own)].lately, strict=True)
        low, high = np.log(LOADS[load])
        context: dict[str, float | str] = {
            "requests_s": float(np.exp(rng.uniform(low, high))),
            "prompt_tokens": float(np.mean(prompts)),
            "answer_tokens": float(np.mean(answers)),
        }
        return Work(kind, context, seed)

    def requests(self, work: Work) -> list[Request]:
        """The requests of a piece of work."""
        trace, _, load = work.kind.partition(", ")
        own = [window for window in self._windows if window.trace == trace]
        return paced(own[work.seed % len(own)], REQUESTS[load], float(work.context["requests_s"]))

    def run(self, params: Params, work: Work) -> float:
        if fault := self._programs.faults[_program(params)]:
            raise RunFailed(fault, self.latency(self.default, work)[0])
        try:
            latency, first = self.latency(params, work)
        except MemoryError as error:
            raise RunFailed(str(error), self.latency(self.default, work)[0]) from error
        if first > (limit := FIRST_TOKEN_MS[work.kind]):
            reason = f"10% of first tokens came after {first:.0f} ms, the limit is {limit:g} ms"
            raise RunFailed(reason, latency * first / limit)
        return latency

    def built(self, params: Params) -> tuple[str, float]:
        return _program(params), self._programs.took_ms[_program(params)]

    def latency(self, params: Params, work: Work) -> tuple[float, float]:
        """Mean time to the last token, and the 90th percentile of the time to the first one."""
        answers = self.serve(params, work)
        return (
            float(np.mean([answer.last_token_ms for answer in answers])),
            float(np.quantile([answer.first_token_ms for answer in answers], 0.9)),
        )

    def serve(self, params: Params, work: Work) -> list[Answer]:
        """How long each request took."""
        given = {name: int(params[name]) for name in ("max_batch", "prefill_chunk", "kv_block")}  # type: ignore[arg-type]
        blocks = PLACES // given["kv_block"]
        scheduler = Scheduler(given["max_batch"], given["prefill_chunk"], given["kv_block"], blocks)
        return serve(self.requests(work), scheduler, lambda chunks: self._model.step(chunks, params), self._clock)


def paced(window: Window, count: int, requests_s: float) -> list[Request]:
    """The first requests that a window serves, in its rhythm, at so many a second on average.

    >>> window = Window("code", tuple((float(i), 8, 2) for i in range(30)))
    >>> paced(window, 3, 100.0)[1:]
    [Request(arrival_ms=10.0, prompt=8, answer=2), Request(arrival_ms=20.0, prompt=8, answer=2)]
    """
    served = window.served[:count]
    began, took = served[0][0], served[-1][0] - served[0][0]
    scale = 1000.0 * (count - 1) / requests_s / took
    return [Request((time - began) * scale, prompt, answer) for time, prompt, answer in served]


def _program(params: Params) -> str:
    return program_name(params, SCHEDULED)


def main() -> int:
    """Checks a GPU: the attention with several settings, the time of a piece of each kind, and the limits."""
    if lacking := InferenceLoop.missing():
        print(f"The inference loop cannot run here: it needs {lacking}.", file=sys.stderr)
        return 1
    began = time.perf_counter()

    def say(text: str) -> None:
        print(f"[{time.perf_counter() - began:5.1f} s] {text}", flush=True)

    say(InferenceLoop.version())
    with tempfile.TemporaryDirectory(prefix="rasp-real-") as folder:
        return check(InferenceLoop(Path(folder)), say)


SHOWN: tuple[dict[str, int], ...] = (  # beside the default
    {"max_batch": 8},
    {"prefill_chunk": 256},
    {"prefill_chunk": 8192},
    {"kv_block": 32},
    {"kv_block": 64, "stages": 3},
    {"kv_block": 128, "tile_q": 32},
    {"tile_q": 16},
    {"tile_q": 16, "kv_block": 64, "warps": 2},
    {"tile_q": 128},
    {"tile_q": 128, "kv_block": 128, "warps": 8, "stages": 3},
    {"tile_q": 128, "kv_block": 64, "warps": 8, "stages": 1},
    {"kv_block": 128, "stages": 4},
)


def check(system: InferenceLoop, say: Callable[[str], None]) -> int:
    """0 if the default runs rightly. Says what each of some settings does; the limits are not applied."""
    shown = [{**system.default, **changed} for changed in ({}, *SHOWN)]
    system._model = model = system._given or system._on_gpu()
    programs = Programs()
    programs.compile(model, shown, SCHEDULED)
    say("kv_block-tile_q-warps-stages: compiling, attention against PyTorch")
    for name, took_ms in programs.took_ms.items():
        say(f"  {name}: {took_ms:.0f} ms, {programs.faults[name] or 'right'}")
    if programs.faults[_program(system.default)]:
        return 1
    model.warm_up()
    say("warm; one piece of each kind: mean latency / 90% of first tokens / wall time, in ms")
    rng = np.random.default_rng(0)
    pieces = [system.work(kind, rng) for kind in system.kinds]
    for piece in pieces:
        system.latency(system.default, piece)  # not shown: the first of its kind
    for params in shown:
        changed = {name: value for name, value in params.items() if value != system.default[name]}
        if programs.faults[_program(params)]:
            continue
        cells = []
        for piece in pieces:
            started = time.perf_counter()
            mean, first = system.latency(params, piece)
            cells.append(f"{mean:.0f} / {first:.0f} / {1000.0 * (time.perf_counter() - started):.0f}")
        say(f"  {changed or 'default'}: {'; '.join(cells)}")
    found = {}
    for kind in system.kinds:
        firsts = [system.latency(system.default, system.work(kind, rng))[1] for _ in range(PIECES)]
        found[kind] = float(f"{MARGIN * max(firsts):.2g}")
        say(f"  {kind}: default's 90% of first tokens: median {np.median(firsts):.0f}, worst {max(firsts):.0f} ms")
    say(f"limits of this GPU, for FIRST_TOKEN_MS: {found}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
