"""One run of one agent, and what it gives."""

from typing import NamedTuple

OURS = "RASP"
PROBED = "RASP-probe"  # knows time and size of the default's run on the same input, which are not counted
LATER = "RASP (sixth GPU)"  # has tuned the kernel on the five other GPUs before
MOST_SEEDS = {"serving": 3, "kernels": 5}  # of protocols whose runs differ little, or take long
Row = dict[str, float | str]


class Cell(NamedTuple):
    """One run of one agent."""

    protocol: str
    set: str
    agent: str
    seed: int

    @property
    def domain(self) -> str:
        return f"{self.set}, {self.protocol}"

    @property
    def key(self) -> str:
        name = f"{self.protocol}-{self.set}-{self.agent}-{self.seed}"
        return name.replace(" ", "_").replace("/", "_").replace(",", "")
