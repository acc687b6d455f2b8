"""Finds the largest directory of each host: the example of docs/ray.md, which a test runs."""

import sys

import onesweep
import onesweep.ray
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import ray


def largest(f: onesweep.File[str]) -> pa.Table:
    table = pq.read_table(pa.BufferReader(f.data), columns=["host", "path", "depth", "allocated_bytes"])
    below = table.filter(pc.field("depth") > 0)
    return below.sort_by([("allocated_bytes", "descending")]).slice(0, 1)


if __name__ == "__main__":
    ray.init(address=sys.argv[1])
    exports = onesweep.ray.read(sys.argv[2], largest, on=sys.argv[3:])  # /var/lib/onesweep/export of each host
    for row in exports.sort("allocated_bytes", descending=True).iter_rows():
        print(row["host"], row["path"], row["allocated_bytes"])
