"""Trees to sweep, and the check that nothing is left: no thread, no descriptor."""

from __future__ import annotations

import gc
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

# A shell that runs the tests in the background has it ignored, and Ctrl-C would end nothing.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

SIZES = [0, 1, 4095, 4096, 4097, 20_000, 300_000]


def threads() -> set[str]:
    return set(os.listdir("/proc/self/task"))


def descriptors() -> set[str]:
    return {name + " " + link for name in os.listdir("/proc/self/fd") if (link := readlink(f"/proc/self/fd/{name}"))}


def readlink(path: str) -> str | None:
    try:
        return os.readlink(path)
    except FileNotFoundError:  # that of the listing itself
        return None


@pytest.fixture(autouse=True)
def nothing_is_left() -> Iterator[None]:
    gc.collect()
    before = threads(), descriptors()
    yield
    gc.collect()
    # A thread that was joined is gone from /proc a moment later.
    for _ in range(100):
        if not threads() - before[0]:
            break
        time.sleep(0.01)
    assert not threads() - before[0], "threads are left"
    assert not descriptors() - before[1], "descriptors are left"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    path = tmp_path / "tree"
    path.mkdir()
    return path


@pytest.fixture
def tree(root: Path) -> dict[str, bytes]:
    """A tree with the odd cases; what a sweep has to hand over."""
    expected = {}
    for n in range(300):
        directory = root / f"d{n % 7}" / f"e{n % 3}"
        directory.mkdir(parents=True, exist_ok=True)
        path = directory / f"f{n}"
        content = bytes((at * 31 + n) % 256 for at in range(256)) * (SIZES[n % 7] // 256 + 1)
        path.write_bytes(content[: SIZES[n % 7]])
        expected[str(path)] = content[: SIZES[n % 7]]
    with open(root / "sparse", "wb") as sparse:
        sparse.truncate(100_000)
    expected[str(root / "sparse")] = bytes(100_000)
    return expected
