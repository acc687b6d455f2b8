"""Processes that sweep for workers."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path


def processes() -> list[int]:
    """Those that sweep for workers of this test's."""
    found = []
    for number in filter(str.isdecimal, os.listdir("/proc")):
        with suppress(OSError):
            if b"onesweep._sweeper" in Path(f"/proc/{number}/cmdline").read_bytes():
                if f"TMPDIR={os.environ['TMPDIR']}".encode() in Path(f"/proc/{number}/environ").read_bytes().split(b"\0"):
                    found.append(int(number))
    return found
