"""A tree of samples, and shards that `onesweep shard` makes of it."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

ENDS = {"jpg": 700, "json": 30, "seg.png": 5000}


def samples(root: Path) -> dict[str, dict[str, bytes]]:
    """Of more than one size, in directories, one of them with a dot in its name."""
    made: dict[str, dict[str, bytes]] = {}
    for n in range(90):
        directory = root / ("v1.0" if n % 3 else "cats") / f"d{n % 4}"
        directory.mkdir(parents=True, exist_ok=True)
        key = str((directory / f"{n:03}").relative_to(root))
        for end, size in ENDS.items():
            if end == "seg.png" and n % 2:
                continue
            data = json.dumps({"n": n}).encode() if end == "json" else os.urandom(size * (n % 5) + n)
            (root / f"{key}.{end}").write_bytes(data)
            made.setdefault(key, {})[end] = data
    (root / "README").write_bytes(b"of no sample")
    return made


def shard(root: Path, out: Path, *options: str) -> list[str]:
    """By the program that the environment names as ONESWEEP."""
    subprocess.run([os.environ["ONESWEEP"], "shard", "--quiet", *options, root, out], check=True)
    return sorted(str(path) for path in out.glob("*.tar"))
