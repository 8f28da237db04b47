"""The scheduler of an LLM server with continuous batching, and the loop that serves requests with it.

Every iteration works on a batch of chunks: one token of every answer under way, and parts of the prompts, together at
most `budget` tokens. Keys and values are kept in blocks of `block` tokens, which a sequence takes when it is admitted
and gives back with its last token: a server knows the most tokens that an answer may have. Requests are admitted in
the order of their arrival. Nothing here is random, and nothing needs a GPU.
"""

import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Request:
    """A prompt, and how many tokens its answer has."""

    arrival_ms: float
    prompt: int
    answer: int

    def __post_init__(self) -> None:
        if self.prompt < 1 or self.answer < 1:
            raise ValueError(f"prompt and answer must have at least 1 token, got {self.prompt} and {self.answer}")


@dataclass(slots=True, eq=False)
class Running:
    """An admitted request."""

    request: Request
    slot: int  # its own among those that run
    blocks: tuple[int, ...]  # token number i is in blocks[i // block]
    cached: int = 0  # tokens whose keys and values are there
    answered: int = 0  # tokens of the answer so far

    @property
    def todo(self) -> int:
        """Tokens that are known and not yet in the cache."""
        return self.request.prompt + self.answered - self.cached


@dataclass(frozen=True, slots=True)
class Chunk:
    """The tokens of a sequence that an iteration works on."""

    of: Running
    first: int  # position in the sequence
    count: int
    gives_token: bool  # whether it ends with the last known token, so that the next one comes out


@dataclass(slots=True)
class Scheduler:
    """What runs, what waits, and which blocks are free."""

    max_batch: int  # sequences that run together
    budget: int  # tokens of an iteration
    block: int  # tokens of a block
    blocks: int  # of the whole pool
    waiting: deque[Request] = field(init=False, default_factory=deque)
    running: list[Running] = field(init=False, default_factory=list)  # in the order of their admission
    _free: list[int] = field(init=False)
    _slots: list[int] = field(init=False)

    def __post_init__(self) -> None:
        for name in ("max_batch", "budget", "block", "blocks"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, got {getattr(self, name)}")
        self._free = list(range(self.blocks))
        self._slots = list(range(self.max_batch))

    @property
    def free_blocks(self) -> int:
        return len(self._free)

    def add(self, request: Request) -> None:
        """Lets a request wait; requests come in the order of their arrival."""
        if (need := self._need(request)) > self.blocks:
            raise ValueError(f"a request of {need} blocks does not fit into a pool of {self.blocks} blocks")
        self.waiting.append(request)

    def plan(self) -> list[Chunk]:
        """The next iteration: answers first, then prompts that were begun, then new ones."""
        left, chunks = self.budget, []
        for sequence in sorted(self.running, key=lambda sequence: sequence.answered == 0):
            if left:
                chunks.append(_chunk(sequence, left))
                left -= chunks[-1].count
        while left and (admitted := self._admit()):
            chunks.append(_chunk(admitted, left))
            left -= chunks[-1].count
        return chunks

    def finish(self, chunks: Iterable[Chunk]) -> list[Running]:
        """The sequences that have one more token after an iteration; those with their last one have left."""
        grown = []
        for chunk in chunks:
            chunk.of.cached += chunk.count
            if chunk.gives_token:
                chunk.of.answered += 1
                grown.append(chunk.of)
                if chunk.of.answered == chunk.of.request.answer:
                    self.running.remove(chunk.of)
                    self._free += chunk.of.blocks
                    self._slots.append(chunk.of.slot)
        return grown

    def _admit(self) -> Running | None:
        if not self.waiting or not self._slots or (need := self._need(self.waiting[0])) > len(self._free):
            return None
        blocks = tuple(self._free.pop() for _ in range(need))
        self.running.append(Running(self.waiting.popleft(), self._slots.pop(), blocks))
        return self.running[-1]

    def _need(self, request: Request) -> int:
        """Blocks for all tokens of a request."""
        return -(-(request.prompt + request.answer) // self.block)


def _chunk(sequence: Running, budget: int) -> Chunk:
    count = min(sequence.todo, budget)
    return Chunk(sequence, sequence.cached, count, count == sequence.todo)


@dataclass(frozen=True, slots=True)
class Answer:
    """How long a request took."""

    first_token_ms: float  # from arrival
    last_token_ms: float


def serve(
    requests: Sequence[Request],
    scheduler: Scheduler,
    step: Callable[[list[Chunk]], object],
    clock: Callable[[], float] = time.perf_counter,
) -> list[Answer]:
    """How long each request took. `step` runs a batch to its end; time goes on as measured, and jumps over idle gaps.

    >>> ticks = iter(range(100))  # every iteration takes a second
    >>> requests = [Request(0.0, 10, 2), Request(9_000.0, 3, 1)]
    >>> serve(requests, Scheduler(4, 8, 4, 8), lambda chunks: None, lambda: next(ticks))
    [Answer(first_token_ms=2000.0, last_token_ms=3000.0), Answer(first_token_ms=1000.0, last_token_ms=1000.0)]
    """
    to_come = deque(sorted(requests, key=lambda request: request.arrival_ms))
    first: dict[int, float] = {}  # by id: two requests may be equal
    last: dict[int, float] = {}
    now = 0.0
    while to_come or scheduler.waiting or scheduler.running:
        if not scheduler.waiting and not scheduler.running:
            now = max(now, to_come[0].arrival_ms)
        while to_come and to_come[0].arrival_ms <= now:
            scheduler.add(to_come.popleft())
        began = clock()
        if not (chunks := scheduler.plan()):
            raise RuntimeError("nothing can run: the blocks of an earlier user of this scheduler were not given back")
        step(chunks)
        now += 1000.0 * (clock() - began)
        for sequence in scheduler.finish(chunks):
            took = now - sequence.request.arrival_ms
            first.setdefault(id(sequence.request), took)
            last[id(sequence.request)] = took
    return [Answer(first[id(request)], last[id(request)]) for request in requests]
