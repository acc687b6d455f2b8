"""What is left by PyTorch is its own."""

from __future__ import annotations

import gc
import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest


def threads() -> set[str]:
    """Those of sweeps. PyTorch keeps threads for the processors, and helpers of workers that are spawned."""
    found = set()
    for number in os.listdir("/proc/self/task"):
        try:
            if Path(f"/proc/self/task/{number}/comm").read_text().startswith("onesweep"):
                found.add(number)
        except OSError:  # it has just ended
            pass
    return found


@pytest.fixture(autouse=True)
def nothing_is_left(root: Path) -> Iterator[None]:
    yield
    gc.collect()
    for _ in range(100):
        if not threads():
            break
        time.sleep(0.01)
    assert not threads(), "threads are left"
    links = [Path(f"/proc/self/fd/{number}") for number in os.listdir("/proc/self/fd")]
    assert not [link for link in links if link.exists() and link.resolve().is_relative_to(root)], "descriptors are left"
