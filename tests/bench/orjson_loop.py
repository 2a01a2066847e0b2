"""orjson over every line of a file, as a peer: prints the seconds.  python orjson_loop.py FILE"""
from __future__ import annotations

import sys
import time

import orjson

if __name__ == "__main__":
    began, count = time.perf_counter(), 0
    with open(sys.argv[1], "rb") as file:
        for line in file:
            count += orjson.loads(line) is not None
    print(time.perf_counter() - began)
