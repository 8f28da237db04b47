"""A process that runs cells: `python -m rasp_lab.beds.worker OPTIONS`; one line of JSON in, one line out.

PYTHONPATH says where the product comes from, which may be another commit.
"""

import json
import sys

from rasp_lab.beds.bed import Options
from rasp_lab.beds.beds import load


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
