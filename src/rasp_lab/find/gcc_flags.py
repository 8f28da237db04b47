"""Measures what 96 sets of gcc flags make of three small C programs: the table that `python -m rasp_lab.find` replays.

    python -m rasp_lab.find.gcc_flags            # ten minutes; writes src/rasp_lab/find/gcc_flags.csv
    python -m rasp_lab.find.gcc_flags --runs 3 --out /tmp/mine.csv

A time is the least CPU time of several runs. Rounds go over all programs, so that a slow minute hits all flags alike.
"""

import argparse
import csv
import itertools
import resource
import subprocess
import tempfile
from pathlib import Path

HERE = Path(__file__).parent
PROGRAMS = ("dot", "bytes", "short")
FLAGS = {  # knob -> its values; the first are the default
    "level": ("-O2", "-O1", "-O3", "-Os"),
    "math": ("", "-ffast-math"),
    "cpu": ("", "-march=native"),
    "loops": ("", "-funroll-loops"),
    "without": ("", "-fno-tree-vectorize", "-fno-inline"),
}


def compiled(folder: Path, program: str, flags: tuple[str, ...], number: int) -> Path:
    binary = folder / f"{program}{number}"
    words = ["gcc", *[flag for flag in flags if flag], "-o", str(binary), str(HERE / "programs" / f"{program}.c")]
    subprocess.run(words, check=True)
    return binary


def cpu_seconds(binary: Path) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([binary], check=True, stdout=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=7)
    parser.add_argument("--out", type=Path, default=HERE / "gcc_flags.csv")
    args = parser.parse_args()
    sets = list(itertools.product(*FLAGS.values()))
    with tempfile.TemporaryDirectory() as folder:
        binaries = {
            (program, i): compiled(Path(folder), program, flags, i)
            for program in PROGRAMS
            for i, flags in enumerate(sets)
        }
        least = dict.fromkeys(binaries, float("inf"))
        for turn in range(args.runs):
            for key, binary in binaries.items():
                least[key] = min(least[key], cpu_seconds(binary))
            print(f"round {turn + 1} of {args.runs}", flush=True)
    with args.out.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow([*FLAGS, *PROGRAMS])
        for i, flags in enumerate(sets):
            writer.writerow([*flags, *(f"{least[program, i]:.6f}" for program in PROGRAMS)])


if __name__ == "__main__":
    main()
