"""A process that runs cells: `python -m benchmarks.beds.worker OPTIONS`; one line of JSON in, one line out.

It imports the library from the folder that comes first on PYTHONPATH, which may be that of another commit.
"""

import json
import sys

from benchmarks.beds.bed import Options
from benchmarks.beds.beds import load


def main() -> None:
    options = Options(**json.loads(sys.argv[1]))
    for line in sys.stdin:
        asked = json.loads(line)
        try:
            values = load(asked["bed"]).run(asked["cell"], asked["seed"], options)
            answer: dict[str, object] = {"values": {name: float(value) for name, value in values.items()}}
        except Exception as reason:  # noqa: BLE001 - another commit may lack a name; the table says so
            answer = {"error": f"{type(reason).__name__}: {reason}"}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
