"""Triton kernels on a GPU: tiles, warps and stages, for the batches of an LLM server (llm_batches.csv).

The sizes are those of Llama 3 8B. What the autotuner tries is what Triton's tutorials 03 (matrix multiplication) and 06
(fused attention) list for half precision; a default is one of them.
"""

import csv
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from importlib.util import find_spec
from itertools import product
from pathlib import Path
from typing import ClassVar, Protocol, Self

import numpy as np

from rasp_lab.real.system import Knobs, RunFailed, SelfTuning, System, Work, new_seed
from rasp_tuner import Int, PowerOfTwo
from rasp_tuner.contexts import Number
from rasp_tuner.space import Knob, Params, Space, Value

TABLE = Path(__file__).parent / "llm_batches.csv"
LAUNCHES = 8  # of a piece of work
NOT_COMPILED = "group"  # a knob that the same program takes as an argument

MATMUL: Knobs = {
    "tile_m": (PowerOfTwo(16, 256), 128),
    "tile_n": (PowerOfTwo(32, 256), 256),
    "tile_k": (PowerOfTwo(32, 128), 64),
    "group": (PowerOfTwo(1, 16), 8),
    "warps": (PowerOfTwo(2, 8), 8),
    "stages": (Int(2, 5), 3),
}
MATMUL_TUTORIAL = (
    (128, 256, 64, 8, 8, 3),
    (64, 256, 32, 8, 4, 4),
    (128, 128, 32, 8, 4, 4),
    (128, 64, 32, 8, 4, 4),
    (64, 128, 32, 8, 4, 4),
    (128, 32, 32, 8, 4, 4),
    (64, 32, 32, 8, 2, 5),
    (32, 64, 32, 8, 2, 5),
)
ATTENTION: Knobs = {
    "tile_q": (PowerOfTwo(16, 128), 128),
    "tile_k": (PowerOfTwo(16, 128), 64),
    "warps": (PowerOfTwo(2, 8), 4),
    "stages": (Int(2, 7), 3),
}
ATTENTION_TUTORIAL = tuple(product((64, 128), (32, 64), (4,), (3, 4, 7)))

Shape = Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Batch:
    """Requests that a server handles together."""

    kind: str
    requests: int
    queries: int  # new tokens of each
    keys: int  # tokens of each, with the past
    share: float  # of the batches of its kind


class Compiler(Protocol):
    """What compiles programs and runs each of them once."""

    def compile(self, programs: Sequence[Params]) -> list[tuple[float, str | None]]: ...
    def fault(self, params: Params) -> str | None: ...


class Launcher(Compiler, Protocol):
    """A GPU (triton_kernels.py), or what stands for it in a test."""

    def time(self, params: Params, shape: Shape, launches: int) -> float: ...


@dataclass(slots=True)
class Programs:
    """What is known of a kernel's programs, by name."""

    took_ms: dict[str, float] = field(default_factory=dict)
    faults: dict[str, str | None] = field(default_factory=dict)
    best: Params | None = None

    def compile(self, compiler: Compiler, settings: Iterable[Params], arguments: Sequence[str]) -> None:
        """Compiles and checks those programs of the settings that are not known yet."""
        found = {program_name(params, arguments): params for params in settings}
        todo = {name: params for name, params in found.items() if name not in self.took_ms}
        results = compiler.compile(list(todo.values())) if todo else []
        for (name, params), (took_ms, fault) in zip(todo.items(), results, strict=True):
            self.took_ms[name] = took_ms
            self.faults[name] = fault or compiler.fault(params)


KNOWN: dict[str, Programs] = {}  # of each kernel: a program is compiled once in a process, whatever runs there are


class TritonKernel(SelfTuning):
    """What the two kernels share."""

    kinds = ("prefill, conversation", "prefill, code", "decode, conversation", "decode, code")
    kernel: ClassVar[str]

    def __init__(self, folder: Path, launcher: Launcher | None = None) -> None:
        super().__init__(folder)
        self._batches = read_batches()
        self._given = launcher
        self._programs = Programs() if launcher else KNOWN.setdefault(self.kernel, Programs())

    @classmethod
    def missing(cls) -> str | None:
        if not (find_spec("triton") and find_spec("torch")):
            return "a GPU, PyTorch and Triton (pip install 'rasp-lab[triton]')"
        import torch

        return None if torch.cuda.is_available() else "a GPU that PyTorch can use"

    @classmethod
    def version(cls) -> str:
        import torch

        return f"Triton {version('triton')}, PyTorch {torch.__version__}, {torch.cuda.get_device_name()}"

    def shape(self, batch: Batch) -> Shape:
        """The sizes that matter to this kernel."""
        return {"requests": batch.requests, "queries": batch.queries, "keys": batch.keys}

    def __enter__(self) -> Self:
        """Compiles every program that an agent may ask for."""
        self._launcher = self._given or self._gpu()
        self._programs.compile(self._launcher, (self.default, *self.candidates, *self.legal()), (NOT_COMPILED,))
        if fault := self._programs.faults[_program(self.default)]:
            raise RuntimeError(f"{self.title}: the default cannot run on this GPU: {fault}")
        return self

    def _gpu(self) -> Launcher:
        from rasp_lab.real.triton_kernels import Gpu

        return Gpu(self.kernel, [self.shape(batch) for batch in self._batches])

    def legal(self) -> Iterator[Params]:
        """All settings that keep the constraints, one for each program."""
        return legal_programs(self, (NOT_COMPILED,))

    def work(self, kind: str, rng: np.random.Generator) -> Work:
        own = [batch for batch in self._batches if batch.kind == kind]
        drawn = own[rng.choice(len(own), p=[batch.share for batch in own])]
        return Work(kind, {name: float(size) for name, size in self.shape(drawn).items()}, new_seed(rng))

    def run(self, params: Params, work: Work) -> float:
        shape = {name: int(size) for name, size in work.context.items()}
        if fault := self._programs.faults[_program(params)]:
            raise RunFailed(fault, self._launcher.time(self.default, shape, LAUNCHES))
        return self._launcher.time(params, shape, LAUNCHES)

    def built(self, params: Params) -> tuple[str, float]:
        return _program(params), self._programs.took_ms[_program(params)]

    def best_fixed(self) -> Params:
        """Of all programs, the one with the least GPU time for the whole table, every kind of work counting alike."""
        if self._programs.best is None:
            self._programs.best, least = self.default, np.inf
            longest_first = sorted(self._batches, key=lambda batch: -batch.share * batch.requests * batch.queries)
            for params in (self.default, *self.legal()):
                if self._programs.faults[_program(params)]:
                    continue
                total = 0.0
                for batch in longest_first:  # what is slow is soon out
                    total += batch.share * self._launcher.time(params, self.shape(batch), 1)
                    if total >= least:
                        break
                else:
                    least, self._programs.best = total, params
        return self._programs.best


class Matmul(TritonKernel):
    """Half-precision matmul that widens 4096 numbers to 14336. Knobs: sides of a tile, rows of tiles that go together,
    warps and pipeline stages. Constraints keep a tile within registers and shared memory. Work: 8 launches for a batch
    of the Azure LLM traces: prompts that are read, or answers that get one more token each. The context has the number
    of tokens. Cost: GPU time; where a program cannot run, the default does the work. Triton's autotuner tries the eight
    settings of Triton's tutorial for each new number of tokens, a try counted as one piece of work. The best fixed tile
    is found beforehand at no cost.
    """

    title = "Triton matmul"
    kernel = "matmul"
    knobs = MATMUL
    constraints = (
        "tile_m * tile_n <= 4096 * warps",  # 128 registers of a thread for sums; with more, compiling takes minutes
        "(tile_m + tile_n) * tile_k * stages * 2 <= 232448",  # bytes
    )
    candidates = tuple(dict(zip(MATMUL, values, strict=True)) for values in MATMUL_TUTORIAL)
    context = dict.fromkeys(("tokens",), Number(log=True))

    def shape(self, batch: Batch) -> Shape:
        return {"tokens": batch.requests * batch.queries}


class Attention(TritonKernel):
    """Causal attention in one pass: 32 heads of 128 numbers, four share keys and values. Knobs: queries and keys of
    a tile, warps and pipeline stages, within the registers. Work, cost and agents are those of the matmul. The context
    has the requests, their new tokens and all their tokens. The autotuner tries the twelve settings of Triton's
    tutorial; the default is the one of 128 queries, 64 keys.
    """

    title = "Triton attention"
    kernel = "attention"
    knobs = ATTENTION
    constraints = ("tile_q * (128 + tile_k) <= 6144 * warps",)  # 192 registers of a thread for sums and scores
    candidates = tuple(dict(zip(ATTENTION, values, strict=True)) for values in ATTENTION_TUTORIAL)
    context = dict.fromkeys(("requests", "queries", "keys"), Number(log=True))


def read_batches() -> list[Batch]:
    """The rows of the table."""
    with TABLE.open(newline="") as lines:
        rows = list(csv.DictReader(line for line in lines if not line.startswith("#")))
    totals: Counter[str] = Counter()
    for row in rows:
        totals[_kind(row)] += int(row["count"])
    return [
        Batch(
            _kind(row),
            int(row["requests"]),
            int(row["queries"]),
            int(row["keys"]),
            int(row["count"]) / totals[_kind(row)],
        )
        for row in rows
    ]


def _kind(row: Mapping[str, str]) -> str:
    return f"{row['phase']}, {row['trace']}"


def legal_programs(system: System, arguments: Sequence[str]) -> Iterator[Params]:
    """All settings that keep the constraints, one for each program; knobs in `arguments` need no other program."""
    space = Space(system.space, system.constraints, system.default)
    choices = [[system.default[name]] if name in arguments else _values(knob) for name, knob in system.space.items()]
    for values in product(*choices):
        params = dict(zip(system.knobs, values, strict=True))
        if space.from_unit(space.to_unit(params)) == params:
            yield params


def program_name(params: Params, arguments: Sequence[str]) -> str:
    """The name of what these settings are compiled to."""
    return "-".join(str(value) for name, value in params.items() if name not in arguments)


def _program(params: Params) -> str:
    return program_name(params, (NOT_COMPILED,))


def _values(knob: Knob) -> list[Value]:
    count = knob.levels  # type: ignore[union-attr]
    return [knob.from_unit(k / (count - 1)) for k in range(count)]
