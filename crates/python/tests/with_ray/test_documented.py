"""The jobs of docs/ray.md, as they stand there. Only the names of places and nodes are those of the tests."""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
import sys
import tarfile
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from exports import export
from fleet import Fleet, until

Trees = dict[tuple[str, str], bytes]
CarryOut = Callable[..., list[str]]

PAGE = Path(__file__).parents[4] / "docs/ray.md"


def documented(holding: str) -> str:
    """The one block of code of the page that holds this text."""
    blocks = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(), flags=re.MULTILINE | re.DOTALL)
    (block,) = (block for block in blocks if holding in block)
    return str(block)


@pytest.fixture
def carry_out(fleet: Fleet, tmp_path: Path) -> CarryOut:
    def carry_out(code: str, places: dict[str, object], *args: object) -> list[str]:
        for name, place in places.items():
            assert name in code, f"the page doesn't speak of {name}"
            code = code.replace(name, str(place))
        job = tmp_path / "job.py"
        job.write_text(code)
        env = {**os.environ, "RAY_ADDRESS": fleet.address}
        ran = subprocess.run([sys.executable, job, *map(str, args)], capture_output=True, text=True, env=env)
        assert ran.returncode == 0, ran
        return ran.stdout.splitlines()

    return carry_out


def test_rows_and_digests(fleet: Fleet, trees: Trees, carry_out: CarryOut, tmp_path: Path) -> None:
    sums = tmp_path / "sums"
    code = documented("def digest")
    # What the comment says of its rows.
    (columns,) = re.findall(r"^rows = .*# (.+)$", code, flags=re.MULTILINE)
    told = carry_out(
        code + "print(*rows.schema().names, sep=', ')\nprint(rows.count())\n",
        {"/srv/mail": fleet.disk, "mail-1": "a", "mail-2": "b", "/shared/sums": sums},
    )
    names, count = told[-2:]
    assert set(columns.split(", ")) <= set(names.split(", ")) and int(count) == len(trees)
    written = Counter((row["path"], row["sha256"]) for path in sums.iterdir() for row in pq.read_table(path).to_pylist())
    assert written == Counter((path, hashlib.sha256(data).hexdigest()) for (_, path), data in trees.items())


@pytest.fixture
def clamd(tmp_path: Path) -> Iterator[Path]:
    """One for both nodes, which knows one signature: its socket."""
    signatures = tmp_path / "signatures"
    signatures.mkdir()
    (signatures / "one.ndb").write_text(f"Seventeen:0:*:{b'a 17a 17'.hex()}\n")
    at, settings = tmp_path / "clamd.ctl", tmp_path / "clamd.conf"
    settings.write_text(f"Foreground yes\nLocalSocket {at}\nDatabaseDirectory {signatures}\nUser root\nStreamMaxLength 1M\n")
    with subprocess.Popen(["clamd", "-c", settings], stdout=subprocess.DEVNULL) as running:
        try:
            until("clamd", lambda: at.is_socket() or running.poll() is not None)
            assert running.poll() is None
            yield at
        finally:
            running.terminate()


def test_scanning(fleet: Fleet, trees: Trees, carry_out: CarryOut, clamd: Path) -> None:
    # More than clamd takes, which ends nobody's job.
    large = fleet.files("b") / "large"
    large.write_bytes(bytes(8 << 20))
    try:
        told = carry_out(documented("def scan"), {"/srv/mail": fleet.disk, "mail-1": "a", "mail-2": "b", "/run/clamav/clamd.ctl": clamd})
    finally:
        large.unlink()
    (path,) = (path for (_, path), data in trees.items() if b"a 17a 17" in data)
    found, left = sorted((line for line in told if line.startswith("/")), key=lambda line: "large" in line)
    assert found == f"{path} Seventeen.UNOFFICIAL FOUND", told
    assert left.startswith(f"{fleet.disk}/large ") and ("not scanned" in left or "exceeded" in left), told


def test_packing(fleet: Fleet, trees: Trees, carry_out: CarryOut, tmp_path: Path) -> None:
    backup = tmp_path / "backup"
    backup.mkdir()
    carry_out(documented("def pack"), {"/srv/mail": fleet.disk, "mail-1": "a", "mail-2": "b", "/backup": backup})
    packed = []
    for path in backup.glob("*.tar"):
        with tarfile.open(path) as tar:
            packed += [(path.name[0], "/" + member.name, tar.extractfile(member).read()) for member in tar]  # type: ignore[union-attr]
    assert Counter(packed) == Counter((disk, path, data) for (disk, path), data in trees.items())
    assert not list(backup.glob("*.partial"))
    rows = [row for path in (backup / "list").iterdir() for row in pyarrow.csv.read_csv(path).to_pylist()]
    assert Counter(row["shard"] for row in rows) == Counter(str(path) for path in backup.glob("*.tar"))
    assert sum(row["files"] for row in rows) == len(trees)


def test_summaries_of_many_hosts(fleet: Fleet, trees: Trees, carry_out: CarryOut, tmp_path: Path) -> None:
    """Over what `onesweep export --parquet` has written, each on the disk of its host."""
    exported = {}
    for host, blocks in (("a", [0, 1, 2]), ("b", [3, 1, 0, 2])):
        (fleet.files(host) / "export").mkdir(exist_ok=True)
        exported[host] = export(host, tmp_path, blocks, fleet.files(host) / "export/now.parquet")
    told = carry_out(documented("def largest"), {}, fleet.address, fleet.disk / "export", "a", "b")
    assert told[-2:] == [f"b {exported['b']}/0 12288", f"a {exported['a']}/2 8192"], told
