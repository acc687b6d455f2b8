"""Small cached files: onesweep.read beside a loop of os.scandir, open and read, on one processor.

    python3 crates/python/bench/cached.py [--files 20000] [--bytes 4096] [--pairs 15] [--calls PROGRAM] [--dir DIR] [--busy]

Makes a tree in a temporary directory, reads it once, then lets both read all of it in turns: A B, B A, and so on, each in a process
of its own that may use one processor. The time is that of the loop alone, and every byte is looked at by neither. Prints the median of
each, with the least and the greatest, and of the ratios of the pairs. Fails when the loop takes less than 1.5 times as long as the
package, by the processor or by the clock; with `--busy` by the processor alone, since others have it meanwhile.

With `--calls` (crates/python/bench/calls.c), the kernel's calls alone come after each pair: the least that reads a file, and those of the sweep.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path


AIM = 1.5


def plain(root: str) -> tuple[int, int]:
    files = size = 0
    directories = [root]
    while directories:
        with os.scandir(directories.pop()) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    directories.append(entry.path)
                elif entry.is_file(follow_symlinks=False):
                    with open(entry.path, "rb") as file:
                        data = file.read()
                    files += 1
                    size += len(data)
    return files, size


def swept(root: str) -> tuple[int, int]:
    import onesweep

    files = size = 0
    for f in onesweep.read(root):
        data = f.data
        files += 1
        size += len(data)
    return files, size


def child(which: str, root: str) -> None:
    if which == "swept":
        import onesweep  # noqa: F401
    began = time.perf_counter(), time.process_time()
    files, size = {"plain": plain, "swept": swept}[which](root)
    print(files, size, time.perf_counter() - began[0], time.process_time() - began[1])


def measure(command: list[str], which: str, root: Path) -> tuple[int, int, float, float]:
    pinned = {min(os.sched_getaffinity(0))}
    ran = subprocess.run(
        [*command, which, root], check=True, capture_output=True, text=True, preexec_fn=lambda: os.sched_setaffinity(0, pinned)
    )
    files, size, wall, processor = ran.stdout.split()
    return int(files), int(size), float(wall), float(processor)


def spread(values: list[float], unit: str) -> str:
    return f"{statistics.median(values):.3g}{unit} ({min(values):.3g} to {max(values):.3g})"


def ratios(times: dict[str, list[float]]) -> list[float]:
    return [a / b for a, b in zip(times["plain"], times["swept"])]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--files", type=int, default=20_000)
    parser.add_argument("--bytes", type=int, default=4096)
    parser.add_argument("--pairs", type=int, default=15)
    parser.add_argument("--dir", help="where the tree is made")
    parser.add_argument("--calls", help="the program that makes the calls alone")
    parser.add_argument("--busy", action="store_true", help="judge by the processor alone")
    parser.add_argument("--child", nargs=2)
    arguments = parser.parse_args()
    if arguments.child:
        return child(*arguments.child)
    with tempfile.TemporaryDirectory(dir=arguments.dir) as directory:
        root = Path(directory)
        for n in range(arguments.files):
            parent = root / f"d{n // 100}"
            parent.mkdir(exist_ok=True)
            (parent / f"f{n}").write_bytes(os.urandom(arguments.bytes))
        os.sync()
        # Files that changed within the last second are read twice.
        time.sleep(2)
        expected = (arguments.files, arguments.files * arguments.bytes)
        python = [sys.executable, __file__, "--child"]
        rivals = {"plain": (python, "plain"), "swept": (python, "swept")}
        if arguments.calls:
            rivals["calls, the least"] = ([arguments.calls], "least")
            rivals["calls of the sweep"] = ([arguments.calls], "swept")
        walls: dict[str, list[float]] = {who: [] for who in rivals}
        processors: dict[str, list[float]] = {who: [] for who in rivals}
        for pair in range(-1, arguments.pairs):
            for who in (("plain", "swept") if pair % 2 else ("swept", "plain")) + tuple(rivals)[2:]:
                files, size, wall, processor = measure(*rivals[who], root)
                if (files, size) != expected:
                    raise SystemExit(f"{who} read {files} files, {size} bytes")
                if pair >= 0:
                    walls[who].append(wall)
                    processors[who].append(processor)
    print(f"{arguments.files} files of {arguments.bytes} bytes, {arguments.pairs} pairs, Python {sys.version.split()[0]}")
    for name, times in (("clock", walls), ("processor", processors)):
        for who in rivals:
            print(f"{name}, {who}: {spread([time * 1e6 / arguments.files for time in times[who]], ' us a file')}")
        print(f"{name}, plain / swept: {spread(ratios(times), '')}; the aim is {AIM}")
    judged = [processors] if arguments.busy else [processors, walls]
    if min(statistics.median(ratios(times)) for times in judged) < AIM:
        raise SystemExit("the aim is missed")


if __name__ == "__main__":
    main()
