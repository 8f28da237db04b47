"""Insert 20,000 rows into a new SQLite database and print how many a second; a program for sqlite.toml."""

import argparse
import json
import sqlite3
import time
from pathlib import Path

ROWS = 20_000

parser = argparse.ArgumentParser()
parser.add_argument("--cache-kb", type=int, required=True)
parser.add_argument("--page", type=int, required=True)
parser.add_argument("--batch", type=int, required=True)
parser.add_argument("--folder", type=Path, required=True)
options = parser.parse_args()

database = sqlite3.connect(options.folder / "rows.db", isolation_level=None)
database.execute(f"PRAGMA page_size = {options.page}")
database.execute(f"PRAGMA cache_size = {-options.cache_kb}")
database.execute("CREATE TABLE rows (key INTEGER PRIMARY KEY, value TEXT)")
began = time.perf_counter()
for start in range(0, ROWS, options.batch):
    database.execute("BEGIN")
    keys = range(start, min(start + options.batch, ROWS))
    database.executemany("INSERT INTO rows VALUES (?, ?)", [(key, f"value {key}" * 5) for key in keys])
    database.execute("COMMIT")
taken = time.perf_counter() - began
database.close()
print(json.dumps({"rows_per_s": ROWS / taken}))
