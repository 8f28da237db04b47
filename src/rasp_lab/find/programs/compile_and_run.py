"""Compiles a C program with the flags given, runs it, and prints the CPU time of the run alone.

python compile_and_run.py SCRATCH PROGRAM.c FLAG ...
"""

import json
import resource
import subprocess
import sys
from pathlib import Path


def main() -> None:
    scratch, source, *flags = sys.argv[1:]
    binary = Path(scratch) / "program"
    subprocess.run(["/usr/bin/env", "gcc", *flags, "-o", binary, source], check=True)
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([binary], check=True, stdout=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    print(json.dumps({"run_s": after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime}))


if __name__ == "__main__":
    main()
