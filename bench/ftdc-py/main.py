"""Decodes recordings with a decoder that PyPI has (pymongoftdc), for `cargo xtask bench ftdc` to compare with.

    main.py time PASSES FILE...

prints one line of JSON, as crates/ftdc/examples/decode_speed.rs does. Every value of a chunk is in memory and is added up.
A chunk that the decoder refuses is counted and passed over.
"""

import json
import os
import resource
import sys
import time
from pathlib import Path

from pyftdc._codec import decode_metric_document, iter_bson_documents
from pyftdc.exceptions import FTDCDecodeError


def one_pass(paths):
    told = {"compressed_bytes": 0, "samples": 0, "values": 0, "sum": 0, "chunks": 0, "refused": 0}
    for path in map(Path, paths):
        told["compressed_bytes"] += os.stat(path).st_size
        with path.open("rb") as stream:
            for document in iter_bson_documents(stream, path):
                if document.get("type") != 1:
                    continue
                told["chunks"] += 1
                try:
                    chunk = decode_metric_document(document, None)
                except FTDCDecodeError:
                    told["refused"] += 1
                    continue
                told["samples"] += len(chunk.columns[0]) if chunk.columns else 0
                for column in chunk.columns:
                    told["values"] += len(column)
                    told["sum"] += sum(column)
    # As a 64-bit integer that wraps, which is how the others add.
    told["sum"] = (told["sum"] + (1 << 63)) % (1 << 64) - (1 << 63)
    return told


def main():
    if len(sys.argv) < 4 or sys.argv[1] != "time":
        sys.exit("main.py time PASSES FILE...")
    seconds, told = [], {}
    for _ in range(int(sys.argv[2])):
        start = time.perf_counter()
        told = one_pass(sys.argv[3:])
        seconds.append(time.perf_counter() - start)
    peak_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print(json.dumps({"seconds": seconds, **told, "peak_kib": peak_kib}))


main()
