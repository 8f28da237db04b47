"""Blosc2: codec, level, filter, block size, threads, for four kinds of data that are packed, sent and unpacked."""

import time
from collections.abc import Callable
from importlib.metadata import version
from importlib.util import find_spec
from typing import Self

import numpy as np

from rasp_lab.real.system import Knobs, System, Tried, Work, coarse_grid, new_seed
from rasp_tuner import Categorical, Int, PowerOfTwo
from rasp_tuner.contexts import Category, Number
from rasp_tuner.contexts.context_encoder import Schema
from rasp_tuner.space import Params

LINKS_MB_S = {"disk": 800.0, "upload": 20.0}
BYTES = 1 << 19
VARIANTS = 4  # different pieces of data of each kind


DATA = ("text", "floats", "ints", "logs")
KNOBS: Knobs = {
    "codec": (Categorical(["blosclz", "lz4", "lz4hc", "zlib", "zstd"]), "zstd"),
    "level": (Int(0, 9), 5),
    "filter": (Categorical(["none", "shuffle", "bitshuffle"]), "shuffle"),
    "typesize": (PowerOfTwo(1, 8), 8),
    "block_kb": (Categorical([0, 16, 64, 256, 1024]), 0),  # 0: automatic
    "threads": (Int(1, 4), 2),
}
GRID: Tried = {"codec": ("zstd", "lz4", "zlib"), "level": (1, 5, 9), "threads": (1, 2)}
CONTEXT: Schema = {"data": Category(values=DATA), "size_kb": Number(log=True), "link_mb_s": Number(log=True)}


class Compression(System):
    """Codec, level, filter, element size of the filter, block size, threads. Work: 256 to 512 KB of text, floats,
    integers or log lines, sent over a fast or a slow link. The context says which. Cost: measured time to pack and
    unpack, plus the packed size divided by the link's speed (computed).
    """

    title = "Blosc2"
    knobs = KNOBS
    grid = coarse_grid(KNOBS, GRID)
    context = CONTEXT
    kinds = tuple(f"{data}, {link}" for data in DATA for link in LINKS_MB_S)

    @classmethod
    def missing(cls) -> str | None:
        return None if find_spec("blosc2") else "blosc2 (pip install 'rasp-lab[real]')"

    @classmethod
    def version(cls) -> str:
        return f"blosc2 {version('blosc2')}"

    def __enter__(self) -> Self:
        rng = np.random.default_rng(0)
        makers: dict[str, Callable[[np.random.Generator], bytes]] = dict(
            zip(DATA, (_text, _floats, _ints, _logs), strict=True)
        )
        self._data = {kind: [make(rng) for _ in range(VARIANTS)] for kind, make in makers.items()}
        return self

    def work(self, kind: str, rng: np.random.Generator) -> Work:
        data, _, link = kind.partition(", ")
        size_kb = float(rng.integers(BYTES // 2048, BYTES // 1024 + 1))
        return Work(kind, {"data": data, "size_kb": size_kb, "link_mb_s": LINKS_MB_S[link]}, new_seed(rng))

    def run(self, params: Params, work: Work) -> float:
        import blosc2

        pieces = self._data[str(work.context["data"])]
        piece = pieces[work.seed % len(pieces)][: int(work.context["size_kb"]) * 1024]
        filters = {"none": "NOFILTER", "shuffle": "SHUFFLE", "bitshuffle": "BITSHUFFLE"}
        settings = {
            "codec": blosc2.Codec[str(params["codec"]).upper()],
            "clevel": params["level"],
            "filters": [blosc2.Filter[filters[str(params["filter"])]]],
            "filters_meta": [0],
            "typesize": params["typesize"],
            "blocksize": 1024 * params["block_kb"],  # type: ignore[operator]
            "nthreads": params["threads"],
        }
        began = time.perf_counter()
        packed = blosc2.compress2(piece, **settings)
        blosc2.decompress2(packed, nthreads=params["threads"])
        measured = time.perf_counter() - began
        return 1000.0 * measured + len(packed) / (1000.0 * float(work.context["link_mb_s"]))


def _text(rng: np.random.Generator) -> bytes:
    """Words as often as in natural language: the n-th most frequent one with a probability of 1 / n."""
    letters = np.array(list("etaoinshrdlucmfwypvbgk"))
    words = ["".join(rng.choice(letters, rng.integers(2, 10))) for _ in range(5_000)]
    chances = 1.0 / np.arange(1, len(words) + 1)
    drawn = rng.choice(len(words), BYTES // 6, p=chances / chances.sum())
    return " ".join(words[i] for i in drawn).encode()[:BYTES].ljust(BYTES)


def _floats(rng: np.random.Generator) -> bytes:
    """A measured curve: a random walk in double precision, with three decimals."""
    return np.cumsum(rng.normal(size=BYTES // 8)).round(3).tobytes()


def _ints(rng: np.random.Generator) -> bytes:
    """Counters and identifiers of four bytes that grow by small steps."""
    return np.cumsum(rng.integers(0, 50, BYTES // 4)).astype(np.int32).tobytes()


def _logs(rng: np.random.Generator) -> bytes:
    """Lines of a web server's log."""
    count = BYTES // 60
    paths, times = rng.zipf(1.5, count) % 300, np.cumsum(rng.integers(0, 400, count))
    status, sizes = rng.choice([200, 200, 200, 304, 404, 500], count), rng.integers(200, 90_000, count)
    lines = (
        f"10.0.{p % 7}.{p % 251} [{1_700_000_000_000 + t}] GET /shop/item/{p} {s} {z} ms={z % 97}\n"
        for p, t, s, z in zip(paths.tolist(), times.tolist(), status.tolist(), sizes.tolist(), strict=True)
    )
    return "".join(lines).encode()[:BYTES].ljust(BYTES)
