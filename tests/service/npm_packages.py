"""An example in JavaScript with its packages from npm."""

import hashlib
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
INSTALL_S = 120


def installed(example):
    """A folder under out/ with the files of an example and its packages, or a skip that says why there are none."""
    if shutil.which("npm") is None or shutil.which("node") is None:
        pytest.skip("no npm: this provider for JavaScript is not tested here")
    source = ROOT / "examples" / example
    pinned = hashlib.sha256((source / "package-lock.json").read_bytes()).hexdigest()[:12]
    folder = ROOT / "out" / f"npm-{example}-{pinned}"
    folder.mkdir(parents=True, exist_ok=True)
    for file in source.iterdir():
        if file.is_file():
            shutil.copy(file, folder)
    if not (folder / "node_modules" / ".package-lock.json").exists():
        words = ["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--prefix", str(folder)]
        try:
            done = subprocess.run(words, capture_output=True, text=True, timeout=INSTALL_S, check=False)
        except subprocess.TimeoutExpired:
            pytest.skip(f"npm did not install the packages of {example} in {INSTALL_S} s")
        if done.returncode != 0:
            pytest.skip(f"npm could not install the packages of {example}: {done.stderr[-200:]}")
    return folder
