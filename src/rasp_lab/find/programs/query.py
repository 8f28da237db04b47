"""Sums up a file of sales by shop and day with DuckDB, and prints the CPU time of the query.

python query.py THREADS MEMORY KEEP_ORDER FILE
"""

import json
import sys
import time

import duckdb


def main() -> None:
    threads, memory, keep_order, file = sys.argv[1:]
    base = duckdb.connect(
        config={"threads": int(threads), "memory_limit": memory, "preserve_insertion_order": keep_order == "true"}
    )
    began = time.process_time()
    rows = base.execute(f"select shop, day, sum(price), count(*) from '{file}' group by all order by all").fetchall()  # noqa: S608
    print(json.dumps({"query_s": time.process_time() - began, "rows": len(rows)}))


if __name__ == "__main__":
    main()
