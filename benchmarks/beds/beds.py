"""All beds, in the order of the table."""

from benchmarks.beds import domains, emulated, glitches, small, streams, tables, worlds
from benchmarks.beds.bed import Bed

BEDS: dict[str, Bed] = {
    bed.name: bed
    for bed in (
        domains.BED,
        streams.BED,
        worlds.DISCRETE,
        worlds.MIXED,
        tables.BED,
        emulated.BED,
        small.BED,
        glitches.BED,
    )
}
