"""The table of a host's directories, as `onesweep export --parquet` writes it of a file system that `onesweep serve` tracks."""

from __future__ import annotations

import os
import socket
import subprocess
import tempfile
import time
from pathlib import Path


def export(host: str, place: Path, blocks: list[int], parquet: Path) -> Path:
    """Writes the table of a tree with a directory for each number of blocks, and gives the place of the tree."""
    tree, onesweep = place / f"tree-of-{host}", os.environ["ONESWEEP"]
    tree.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64M", "tmpfs", tree], check=True)
    try:
        for number, count in enumerate(blocks):
            (tree / str(number)).mkdir()
            (tree / str(number) / "file").write_bytes(b"x" * 4096 * count)
        # Unix sockets have short paths.
        with tempfile.TemporaryDirectory(prefix="onesweep-export-", dir="/tmp") as short:
            listening = Path(short) / "socket"
            serve = subprocess.Popen([onesweep, "serve", "--socket", listening, "--store", place / f"store-of-{host}", tree])
            try:
                wait_for(listening, serve)
                subprocess.run([onesweep, "export", "--parquet", parquet, "--host", host, "--socket", listening, tree], check=True)
            finally:
                serve.terminate()
                serve.wait()
    finally:
        subprocess.run(["umount", "--lazy", tree], check=True)
    return tree


def wait_for(listening: Path, serve: subprocess.Popen[bytes]) -> None:
    while True:
        with socket.socket(socket.AF_UNIX) as client:
            try:
                return client.connect(str(listening))
            except OSError:
                assert serve.poll() is None, "the server ended"
                time.sleep(0.02)
