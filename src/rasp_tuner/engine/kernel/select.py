"""Which tuners of a batch something is done for: all of them at once, in one go where memory allows, or a few."""

from collections.abc import Iterator

from rasp_tuner.engine.kernel.namespace import namespace
from rasp_tuner.engine.kernel.state import Tensor

Rows = Tensor | slice  # an array of indices, or the slice of all: either one reads and writes `array[rows]`
CHUNK = 1 << 26  # numbers in the largest array that is made on the way: 512 MiB

EVERY = slice(None)


def some(mask: Tensor) -> bool:
    """Whether any is true; cheaper than `any`."""
    return bool(namespace(mask).count_nonzero(mask))


def chosen(mask: Tensor) -> Rows | None:
    """The tuners where a mask [B] is true; None where it is nowhere."""
    xp = namespace(mask)
    count = int(xp.count_nonzero(mask))
    if count == 0:
        return None
    return EVERY if count == len(mask) else xp.nonzero(mask)[0]


def chunks(mask: Tensor, numbers: int) -> Iterator[Rows]:
    """The same in parts, if each tuner needs an array of so many numbers."""
    rows, most = chosen(mask), max(1, CHUNK // max(numbers, 1))
    if rows is None:
        return
    count = len(mask) if isinstance(rows, slice) else len(rows)
    if count <= most:
        yield rows
        return
    for begin in range(0, count, most):
        yield slice(begin, min(begin + most, count)) if isinstance(rows, slice) else rows[begin : begin + most]


def put(target: Tensor, mask: Tensor | None, value: Tensor) -> None:
    """Write to an array [B, ...] where a mask [B] is true; None is everywhere."""
    if mask is not None:
        mask = mask[(EVERY, *(None,) * (target.ndim - 1))]
        value = namespace(target).where(mask, value, target)
    target[...] = value


def write_column(target: Tensor, column: Tensor, value: Tensor) -> None:
    """Write [B, ...] to one place a tuner along the second axis of an array [B, n, ...]."""
    xp = namespace(target)
    if len(target) == 1:  # a view is cheaper than a list of places
        target[:, int(column[0])] = value
    else:
        target[xp.arange(len(target), device=target.device), xp.astype(column, xp.int64)] = value
