"""What the workers of onesweep.torch read, without PyTorch: `python3 workers.py ROOT WORKERS` has each of them in a process of its own.

Prints the bytes of all of them. `make python-disk-bench` measures the disk meanwhile.
"""

from __future__ import annotations

import multiprocessing
import sys

from onesweep._rounds import Rounds
from onesweep._workers import Place, files


def worker(root: str, number: int, workers: int, rounds: Rounds) -> int:
    return sum(len(file.data) for file in files([root], Place(0, 1, number, workers), 0, rounds, "bench", None, {}))


def main(root: str, workers: int) -> None:
    rounds = Rounds()
    context = multiprocessing.get_context("spawn")
    # Each process takes one.
    with context.Pool(workers, maxtasksperchild=1) as pool:
        print(sum(pool.starmap(worker, [(root, number, workers, rounds) for number in range(workers)], chunksize=1)))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
