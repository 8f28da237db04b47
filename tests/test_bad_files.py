"""A few hundred changed files of tuners, fleets and policies: each is refused with a typed error, or does no harm.

`python -m rasp_lab.reliability.fuzz_files --sanitize` tries ten thousand, with sanitizers.
"""

import json
import subprocess
import sys

FILES = 200


def test_changed_files_are_refused_or_harmless():
    command = [sys.executable, "-m", "rasp_lab.reliability.fuzz_files", "--json", "--files", str(FILES)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)
    assert done.stdout, done.stderr[-2000:]
    told = json.loads(done.stdout)
    assert told["failures"] == []
    assert done.returncode == 0
    counts = told["counts"]
    assert sum(sum(own.values()) for own in counts.values()) == FILES
    assert all(own["refused"] > 0 and own["harmless"] > 0 for own in counts.values()), counts  # both were tried
