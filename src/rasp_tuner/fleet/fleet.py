"""Fleet: the calls of many tuners in one object. What their knobs are decides how they are kept."""

import os
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from numpy.typing import ArrayLike

from rasp_tuner.base.checks import flag, whole
from rasp_tuner.base.numerics import Array
from rasp_tuner.contexts.context_encoder import Schema
from rasp_tuner.engine.kernel.masks import Flags
from rasp_tuner.engine.kernel.state import Places
from rasp_tuner.errors import InvalidSpace
from rasp_tuner.fleet.build import MOST_TUNERS
from rasp_tuner.fleet.fleet_file import Progress, magic_of
from rasp_tuner.space import Knob
from rasp_tuner.tuner import BUDGET, Tuner
from rasp_tuner.types import Direction, Metric

Contexts = Mapping[str, Any] | ArrayLike | None
Which = int | slice | Sequence[int] | Places | Flags | None


@dataclass(frozen=True)
class FleetSuggestions:
    """What n tuners of a fleet should run next."""

    params: dict[str, Array]  # by knob, [n] in its own units; objects but for Float and Int that always exist
    points: Array  # [n, d] the same in the unit box
    which: Places  # [n] positions of the tuners
    stop: Array  # [n] the cost from which on a run should be ended; infinite: it should not

    def __len__(self) -> int:
        return len(self.which)


class Fleet(ABC):
    """Many tuners of the same kind, each with a life of its own, in one call.

    Does what as many `Tuner`s would do, to rounding and but for their random numbers. Each tuner has at most one
    suggestion that waits for an answer; asking again replaces it. A call that raises a RaspError changes nothing. Not
    thread-safe. `which` says which tuners a call is for: None (all), a position, a slice, positions or a mask.

    Where all knobs are (almost) continuous, Float without a step or Int of more than 64 values, the tuners are one
    batch of quadratics. With other knobs, constraints or limits of metrics each is a `Tuner`: slower, on the CPU, and
    none learns from the others.

    space, metrics, context, default, guard, budget, switching_cost, constraints   as of `Tuner`
    size        tuners to begin with
    device      "cpu", or "cuda" (with extra `fleet`, and continuous knobs)
    seed        draws are a function of it, the tuner's number and how often it was asked
    share       whether a tuner without samples begins with what the others have learned: how strongly the metric
                reacts, how noisy it is, where optima lie. Its first suggestion is then the usual optimum, and not the
                default
    """

    kinds: ClassVar[tuple[type["Fleet"], ...]] = ()  # the first that takes what is described is built
    magic: ClassVar[bytes]  # its files begin with
    _settings: ClassVar[Mapping[str, Any]]  # of its tuners, besides those that are given

    def __new__(
        cls,
        space: object = None,
        metrics: object = None,
        *_: object,
        constraints: object = (),
        **__: object,
    ) -> Self:
        if cls is Fleet:
            cls = next(kind for kind in Fleet.kinds if kind.takes(space, metrics, constraints))  # type: ignore[assignment]
        return super().__new__(cls)

    def __init__(
        self,
        space: Mapping[str, Knob],
        metrics: Mapping[str, Metric | Direction],
        context: Schema = None,
        default: Mapping[str, object] | None = None,
        size: int = 1000,
        *,
        device: str = "cpu",
        seed: int = 0,
        budget: float | None = BUDGET,
        guard: float | None = None,
        switching_cost: float = 0.0,
        share: bool = True,
        constraints: Sequence[str] = (),
    ) -> None:
        size = whole("size", size, 0, MOST_TUNERS, InvalidSpace)
        flag("share", share, InvalidSpace)
        # a Tuner checks all of this, and says what a tuner of this fleet looks like in a snapshot
        example = Tuner(
            space, metrics, context, default,
            seed=seed, budget=budget, guard=guard, switching_cost=switching_cost, constraints=constraints,
            **self._settings,
        )  # fmt: skip
        self._begin(example, size, device, share)

    @abstractmethod
    def _begin(self, example: Tuner, size: int, device: str, share: bool) -> None:
        """Become a fleet of `size` tuners that are as this one, which knows nothing."""

    @classmethod
    @abstractmethod
    def takes(cls, space: object, metrics: object, constraints: object, /) -> bool:
        """Whether it is made for these, which need not be right."""

    @abstractmethod
    def __len__(self) -> int: ...

    @property
    @abstractmethod
    def learned(self) -> Places:
        """[B] how many samples each tuner was told or observed."""

    @property
    @abstractmethod
    def pending(self) -> Flags:
        """[B] whether a suggestion of the tuner waits for an answer."""

    @property
    @abstractmethod
    def memory_per_tuner(self) -> int | None:
        """Bytes that a tuner takes at most, from its first sample to its last, with a suggestion that waits.

        While a call runs, a few thousand tuners at most take about as much again. None where each is a `Tuner`.
        """

    @abstractmethod
    def ask(self, contexts: Contexts = None, which: Which = None) -> FleetSuggestions:
        """Parameters to run in these contexts [n, c], one for each tuner."""

    @abstractmethod
    def tell(
        self,
        metrics: Mapping[str, Any] | None = None,
        which: Which = None,
        failed: Any = None,
        stopped: Any = None,
        *,
        control: Any = None,
    ) -> None:
        """Learn what the waiting suggestions led to: metrics [n] by name.

        `failed` [n] says which of them crashed or were invalid; their metrics are ignored. `stopped` [n] says which
        were ended at these metrics, and would have come to them or worse. A fleet has no controls: `control` is
        refused.
        """

    @abstractmethod
    def observe(
        self,
        contexts: Contexts,
        params: Mapping[str, Any],
        metrics: Mapping[str, Any],
        which: Which = None,
        stopped: Any = None,
    ) -> None:
        """Learn from runs nobody asked for: params and metrics [n] by name; `stopped` as for `tell`."""

    @abstractmethod
    def recommend(self, contexts: Contexts = None, which: Which = None) -> dict[str, Array]:
        """The best parameters [n] by knob for these contexts, without exploring; the default while nothing is known."""

    @abstractmethod
    def add(self, n: int = 1) -> Places:
        """Positions of n new tuners, at the end."""

    @abstractmethod
    def remove(self, which: Which) -> None:
        """Forget these tuners; those after them move up."""

    @abstractmethod
    def __getitem__(self, i: int) -> Tuner:
        """A Tuner that knows what tuner i knows, and may go its own way; `fleet[i] = tuner` brings it back."""

    @abstractmethod
    def __setitem__(self, i: int, tuner: Tuner) -> None: ...

    def __iter__(self) -> Iterator[Tuner]:
        """Each of its tuners, as `fleet[i]` gives it."""
        return (self[i] for i in range(len(self)))

    @abstractmethod
    def save(self, path: str | os.PathLike[str], progress: Progress | bool = False) -> None:
        """Write everything to `path`, atomically; equal fleets write equal bytes.

        `progress` is called with tuners done and to do; True shows a bar.
        """

    @classmethod
    def load(cls, path: str | os.PathLike[str], *, device: str = "cpu", progress: Progress | bool = False) -> "Fleet":
        """The fleet that was saved: from here on it does, bit for bit, what that one would have done on this device."""
        magic = magic_of(path, [kind.magic for kind in Fleet.kinds])
        kind = cls if cls is not Fleet else next(kind for kind in Fleet.kinds if kind.magic == magic)
        fleet = kind.__new__(kind)
        fleet._read(path, device, progress)
        return fleet

    @abstractmethod
    def _read(self, path: str | os.PathLike[str], device: str, progress: Progress | bool) -> None:
        """Become the fleet that was saved."""
