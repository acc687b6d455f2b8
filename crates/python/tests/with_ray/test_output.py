"""What a job has written when a node was lost in the middle of the writing: each file exactly once."""

from __future__ import annotations

import io
import os
import tarfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import onesweep.ray
import pyarrow.fs
import pyarrow.parquet as pq
import pytest
import ray
from conftest import alive
from fleet import Fleet, until
from fsspec.implementations.local import LocalFileSystem
from test_ray import labels

Trees = dict[tuple[str, str], bytes]


def node() -> str:
    return str(ray.get_runtime_context().get_node_id())


def lose_b(fleet: Fleet, came: Path, job: Callable[[], object], is_due: Callable[[], bool]) -> None:
    """Carries the job out. Once its task has come to the middle, on a node that holds b's files, that node dies and another takes its place."""
    failed: list[BaseException] = []

    def carry_out() -> None:
        try:
            job()
        except BaseException as error:
            failed.append(error)

    working = threading.Thread(target=carry_out)
    working.start()
    until("the middle", lambda: (came.exists() and is_due()) or not working.is_alive())
    assert came.exists() and working.is_alive(), failed
    (name,) = (name for name in fleet.nodes if name.startswith("b"))
    there = len(alive())
    fleet.kill(name)
    until("the loss", lambda: len(alive()) == there - 1)
    fleet.start(name, disk="b", label="b")
    until("the other", lambda: fleet.has(there))
    working.join()
    assert not failed, failed


class Stuck(LocalFileSystem):  # type: ignore[misc]
    """Files, of which the third one that certain nodes write is left half written, and its writer hangs."""

    def __init__(self, victims: list[str], came: Path) -> None:
        super().__init__()
        self.victims, self.came = victims, came

    def __reduce__(self) -> Any:
        return Stuck, (self.victims, self.came)

    def open(self, path: str, mode: str = "rb", **options: Any) -> Any:
        opened = super().open(path, mode, **options)
        if "w" in mode and node() in self.victims and len(os.listdir(os.path.dirname(path))) >= 3:
            opened.write(b"PAR1, and not much more")
            opened.flush()
            self.came.touch()
            time.sleep(3600)  # Until its node is killed.
        return opened


def row(f: onesweep.File[str]) -> dict[str, Any]:
    return {"path": f.path, "data": bytes(f.data)}


def test_parquet_whose_writer_is_lost_is_written_anew(fleet: Fleet, trees: Trees, tmp_path: Path) -> None:
    came, out = tmp_path / "came", tmp_path / "out"
    victims = [node for node, label in labels().items() if label == "b"]
    rows = onesweep.ray.read(fleet.disk, row, on="b", share="200K", at_once=1)
    files = pyarrow.fs.PyFileSystem(pyarrow.fs.FSSpecHandler(Stuck(victims, came)))

    def write() -> None:
        # Where it is known who writes: on b as well.
        rows.write_parquet(str(out), filesystem=files, ray_remote_args={"label_selector": {onesweep.ray.LABEL: "b"}})

    lose_b(fleet, came, write, lambda: True)
    tables = [pq.read_table(path).to_pylist() for path in out.iterdir()]
    written = [(row["path"], row["data"]) for rows in tables for row in rows]
    assert len(tables) > 4 and Counter(written) == Counter((path, data) for (disk, path), data in trees.items() if disk == "b")


@pytest.mark.parametrize("share", ["200K", "100M"])
def test_parquet_of_many_nodes_has_each_file_once(fleet: Fleet, trees: Trees, tmp_path: Path, share: str) -> None:
    """One dies while it still reads, and what it had read is written in part."""
    came, out = tmp_path / "came", tmp_path / "out"
    victims = [node for node, label in labels().items() if label == "b"]

    def slow(f: onesweep.File[str]) -> dict[str, Any]:
        if f.path.endswith("/f61") and node() in victims:
            came.touch()
            time.sleep(3600)  # Until its node is killed.
        return row(f)

    rows = onesweep.ray.read(fleet.disk, slow, on=["a", "b"], share=share, at_once=1)
    # What a has is written meanwhile.
    lose_b(fleet, came, lambda: rows.write_parquet(str(out)), lambda: out.is_dir() and any(out.iterdir()))
    written = [(row["path"], row["data"]) for path in out.iterdir() for row in pq.read_table(path).to_pylist()]
    assert Counter(written) == Counter((path, data) for (_, path), data in trees.items())


def test_shards_whose_packer_is_lost_are_packed_anew(fleet: Fleet, trees: Trees, tmp_path: Path) -> None:
    """`per_share` as docs/ray.md has it: it dies with some shards packed, and one in the middle."""
    came, out = tmp_path / "came", tmp_path / "out"
    out.mkdir()
    victims = [node for node, label in labels().items() if label == "b"]

    def pack(share: onesweep.ray.Share) -> dict[str, Any]:
        name = f"{out}/{share.host}-{share.disk.replace('/', '-')}-{share.number:06}.tar"
        with tarfile.open(f"{name}.partial", "w") as tar:
            for at, f in enumerate(share):
                member = tarfile.TarInfo(f.path.lstrip("/"))
                member.size = f.size
                tar.addfile(member, io.BytesIO(f.data))
                if share.number == 3 and at == 1 and node() in victims:
                    came.touch()
                    time.sleep(3600)  # Until its node is killed.
        os.replace(f"{name}.partial", name)
        return {"shard": name, "files": share.files, "host": share.host}

    listed: list[dict[str, Any]] = []
    shares = onesweep.ray.read(fleet.disk, per_share=pack, on=["a", "b"], share="200K", at_once=1)
    lose_b(fleet, came, lambda: listed.extend(shares.take_all()), lambda: any(out.glob("b-*.tar")))
    packed = []
    for path in out.iterdir():
        assert path.suffix == ".tar", "nothing is left half done"
        with tarfile.open(path) as tar:
            packed += [(path.name[0], "/" + member.name, tar.extractfile(member).read()) for member in tar]  # type: ignore[union-attr]
    assert Counter(packed) == Counter((disk, path, data) for (disk, path), data in trees.items())
    assert Counter(row["shard"] for row in listed) == Counter(str(path) for path in out.iterdir())
    assert sum(row["files"] for row in listed) == len(trees)
