"""What tests of sweeps for others share: their processes, and files in which everything could get lost."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import Any

import onesweep

ODD_OPTIONS: Any = {"xattrs": True, "large": "200K"}
"""With which the odd ones have all that a file can have."""


def add_odd_files(root: Path) -> None:
    """A name that is no text, with a further name and an attribute."""
    odd = os.fsdecode(b"no \xff text")
    (root / odd).write_bytes(b"odd")
    os.link(root / odd, root / "again")
    with suppress(OSError):
        os.setxattr(root / odd, "user.note", b"\0\1")


def all_of_it(f: onesweep.File[str]) -> tuple[Any, ...]:
    # Whether it is in memory still depends on who asks.
    route = "read" if f.route in ("cached", "swept", "reread") else f.route
    return f.path, f.links, tuple(f.stat), f.stat.st_mtime_ns, f.ranges, f.xattrs, bytes(f.data), f.kind, route, f.pread(7, 3)


def processes() -> list[int]:
    """Those that sweep for workers of this test's."""
    found = []
    for number in filter(str.isdecimal, os.listdir("/proc")):
        with suppress(OSError):
            if b"onesweep._sweeper" in Path(f"/proc/{number}/cmdline").read_bytes():
                if f"TMPDIR={os.environ['TMPDIR']}".encode() in Path(f"/proc/{number}/environ").read_bytes().split(b"\0"):
                    found.append(int(number))
    return found
