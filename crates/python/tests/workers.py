"""Reads a tree by workers in processes of their own, while a sweep of the parent runs. Arguments: how they are started, the tree."""

import multiprocessing
import sys
from pathlib import Path

import onesweep


def read(path: str) -> dict[str, bytes]:
    return {str(f.path): bytes(f.data) for f in onesweep.read(path)}


def main(method: str, root: str) -> None:
    reader = onesweep.read(root, budget="1M")
    first = next(reader)
    context = multiprocessing.get_context(method)
    found: dict[str, bytes] = {}
    with context.Pool(2) as pool:
        for part in pool.map(read, sorted(str(path) for path in Path(root).iterdir())):
            found.update(part)
        pool.close()
        pool.join()
    own = {f.path: bytes(f.data) for f in [first, *reader]}
    assert own == found, "the parent's own goes on"
    print(len(found), sum(map(len, found.values())))


if __name__ == "__main__":
    main(*sys.argv[1:])
