"""The worlds in which parts are taken away: quiet streams, outliers, noise, and measured tables."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import product

import numpy as np

from rasp_lab.bench import domains
from rasp_lab.bench.domains.base import ExperimentDomain
from rasp_lab.bench.domains.measurements import MeasurementTable
from rasp_lab.bench.domains.stream_data import load
from rasp_lab.bench.domains.streams import BATCHES, LEVELS
from rasp_lab.bench.domains.table import TableDomain, TableFile
from rasp_lab.bench.domains.wrappers import MixedPolarity, Noisy, Outliers, Wrapper

A2, H1 = domains.BEYOND
ALL = (*domains.SYNTHETIC, *domains.BEYOND)
EVERY_BATCHES = 10  # one batch in so many becomes a context of a table
TABLES = {
    f"{stream[:2]}_table": data
    for stream, data in zip(domains.STREAMS, ("california", "boston", "digits"), strict=True)
}
USER_TABLES: dict[str, TableFile] = {}  # by name, from the command line


class Louder(Wrapper):
    """The domain's own noise, `factor` times as large; a domain without noise stays without."""

    def __init__(self, inner: ExperimentDomain, factor: float) -> None:
        super().__init__(inner, "louder")
        self._factor = factor

    def metric_fn(self, theta: np.ndarray, omega: object, rng: np.random.Generator) -> dict[str, float]:
        loss = self.true_loss(theta, omega)  # of every synthetic domain the one metric is the loss plus noise
        return {name: loss + self._factor * (y - loss) for name, y in self.inner.metric_fn(theta, omega, rng).items()}


class Units(Wrapper):
    """Metrics in other units: `scale * y + offset`."""

    def __init__(self, inner: ExperimentDomain, scale: float, offset: float) -> None:
        super().__init__(inner, "units")
        self._scale, self._offset = scale, offset

    def metric_fn(self, theta: np.ndarray, omega: object, rng: np.random.Generator) -> dict[str, float]:
        return {name: self._scale * y + self._offset for name, y in self.inner.metric_fn(theta, omega, rng).items()}


Wrap = Callable[[ExperimentDomain], ExperimentDomain]
WRAPS: dict[str, Wrap] = {
    "as they are": lambda domain: domain,
    "one answer in ten is an outlier": Outliers,
    "ten times the domain's own noise": lambda domain: Louder(domain, 10.0),
    "noise of half the metric": lambda domain: Noisy(domain, 0.5),
    "a second metric of the other polarity": MixedPolarity,
    "metric x 1000 + 500": lambda domain: Units(domain, 1000.0, 500.0),
}
QUIET, OUTLIERS, LOUD, HALF, *_ = WRAPS


@dataclass(frozen=True)
class Condition:
    """One table of ablations: which family's parts, in which worlds."""

    title: str
    about: str  # a sentence for the page
    family: str
    worlds: tuple[str, ...]
    wrap: str = QUIET


CONDITIONS = (
    Condition(
        "Quadratic family, quiet", "The nine synthetic domains of the paper, A2 and H1, as they are.", "quadratic", ALL
    ),
    Condition(
        "Quadratic family, outliers",
        "The same; one answer in ten is 5 to 10 times too bad.",
        "quadratic",
        ALL,
        OUTLIERS,
    ),
    Condition("Quadratic family, loud", "The same, with ten times each domain's own noise.", "quadratic", ALL, LOUD),
    Condition(
        "Quadratic family, very loud",
        "The same; the noise has half the size of the metric.",
        "quadratic",
        ALL,
        HALF,
    ),
    Condition(
        "Discrete family, measured streams",
        "The tabular streams S1 to S3. Two of four knobs have few levels, and the default is already good.",
        "discrete",
        domains.STREAMS,
    ),
    Condition(
        "Discrete family, measured tables",
        "The tables of the same streams: all knobs discrete, every tenth batch is a context that comes back, and the"
        " default is the middle of the grid.",
        "discrete",
        tuple(TABLES),
    ),
    Condition(
        "Discrete family, measured tables with outliers",
        "The same tables; one answer in ten is 5 to 10 times too bad.",
        "discrete",
        tuple(TABLES),
        OUTLIERS,
    ),
)


def user_condition(table: TableFile) -> Condition:
    """A table of the user's own, for the discrete family."""
    USER_TABLES[table.name] = table
    return Condition(f"Discrete family, {table.name}", "A table given by --table.", "discrete", (table.name,))


@lru_cache(maxsize=128)
def world(name: str, wrap: str) -> ExperimentDomain:
    """A domain, made harder; it keeps no state, so that one serves all runs."""
    if name in TABLES:
        return WRAPS[wrap](_as_table(name))
    if name in USER_TABLES:
        return WRAPS[wrap](USER_TABLES[name].build())
    return WRAPS[wrap](domains.create(name))


def identity(name: str) -> str:
    """What a cached run of this world depends on besides the code."""
    return f"{name} {USER_TABLES[name].fingerprint}" if name in USER_TABLES else name


def _as_table(name: str) -> TableDomain:
    """The table of a stream as a domain of discrete knobs."""
    arrays = load(f"{TABLES[name]}_table")
    batches = slice(0, BATCHES, EVERY_BATCHES)
    mse = arrays["mse"].astype(np.float64)[batches]
    table = MeasurementTable(
        tuple(LEVELS),
        tuple(product(*(tuple(map(float, levels)) for levels in LEVELS.values()))),
        arrays["context"].astype(np.float64)[batches],
        {"mse": mse.reshape(len(mse), -1)},
    )
    return TableDomain(table, {"mse": "min"}, name=name, noise=0.05, context_noise=0.1)


def chosen(titles: str, conditions: Sequence[Condition]) -> list[Condition]:
    """The conditions whose title has these words in it."""
    return [condition for condition in conditions if titles.lower() in condition.title.lower()]
