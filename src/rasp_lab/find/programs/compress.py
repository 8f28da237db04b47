"""Compresses a file with brotli and prints CPU time and size: python compress.py QUALITY WINDOW MODE FILE"""

import json
import sys
import time
from pathlib import Path

import brotli


def main() -> None:
    quality, window, mode, file = sys.argv[1:]
    data = Path(file).read_bytes()
    began = time.process_time()
    made = brotli.compress(data, getattr(brotli, f"MODE_{mode.upper()}"), int(quality), int(window))
    print(json.dumps({"compress_s": time.process_time() - began, "size": len(made)}))


if __name__ == "__main__":
    main()
