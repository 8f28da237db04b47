"""What is measured beside the runs and kept as a JSON file in their folder: step times, memory growth."""

import json
from pathlib import Path
from typing import Any

from rasp_tuner.errors import InvalidValue
from rasp_tuner.files.snapshot import write as write_whole


def write(path: Path, facts: dict[str, Any]) -> None:
    write_whole(path, json.dumps(facts, indent=1).encode())


def read(path: Path) -> dict[str, Any]:
    """What `write` wrote; empty if it did not."""
    if not path.is_file():
        return {}
    try:
        facts = json.loads(path.read_text())
    except ValueError as reason:
        raise InvalidValue(f"{path} is damaged: {reason}; delete it, and it is measured anew") from reason
    return facts if isinstance(facts, dict) else {}
