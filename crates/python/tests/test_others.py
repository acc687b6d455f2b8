"""Plans, layouts, sums, totals, tables."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import onesweep
import pyarrow
import pytest


def test_a_plan_is_looked_at_and_carried_out(root: Path, tree: dict[str, bytes]) -> None:
    with onesweep.plan(root, ignore_cache=True, disk="ssd") as plan:
        estimate = plan.estimate
        assert estimate.disk == "ssd" and estimate.files <= len(tree) and estimate.seconds >= 0
        assert estimate.read >= estimate.useful - estimate.copied
        (disk,) = plan.disks
        assert disk.estimate == estimate and disk.order in ("fragment", "directory")
        assert sorted(str(f.path) for f in plan.files()) == sorted(tree)
        assert {f.size for f in plan.files()} == {len(data) for data in tree.values()}
        assert plan.errors == [] and not plan.is_partial
        assert plan.estimate_with("inode").files == plan.estimate_with("inode", "vanilla").files == estimate.files
        with pytest.raises(ValueError, match="unknown order"):
            plan.estimate_with("sideways")  # type: ignore[arg-type]
        assert {f.path: bytes(f.data) for f in plan.run()} == tree
        for use in (plan.run, plan.files, lambda: plan.estimate, lambda: plan.disks, lambda: plan.errors, lambda: plan.is_partial):
            with pytest.raises(ValueError, match="carried out or closed"):
                use()
    closed = onesweep.plan(root)
    closed.close()
    closed.close()
    with pytest.raises(ValueError, match="closed"):
        closed.run()


def test_layout_tells_of_each_directory(root: Path, tree: dict[str, bytes]) -> None:
    os.sync()
    directories = onesweep.layout(root, "name")
    found = list(directories)
    with_files = {os.path.dirname(path) for path in tree}
    assert {str(d.path) for d in found} == with_files
    total = directories.total
    assert total.files == sum(d.layout.files for d in found) == len(tree)
    assert total.blocks == sum(d.layout.blocks for d in found)
    for d in found:
        assert d.block_bytes > 0 and d.disk and d.device and d.fs_type
        for side in (d.layout.before, d.layout.packed):
            assert side.layout.ratio is None or 0 <= side.layout.ratio <= 1
    assert onesweep.Score(1, 4).ratio == 0.25 and onesweep.Score(0, 0).ratio is None
    with pytest.raises(ValueError, match="unknown order of reading"):
        onesweep.layout(root, "backwards")  # type: ignore[arg-type]
    # How content would be read doesn't count, so nothing of it is an error.
    again = onesweep.layout(root, "name", device=True, strategy="merged")
    assert [d.path for d in again] == [d.path for d in found] and again.total == total
    with onesweep.layout(root) as some:
        next(some)
    with pytest.raises(onesweep.CancelledError):
        next(some)
    assert next(onesweep.layout(root)), "one that is forgotten leaves nothing"


@pytest.mark.parametrize("algorithm", ["sha256", "md5"])
def test_sums_are_those_of_hashlib(root: Path, tree: dict[str, bytes], algorithm: str) -> None:
    os.link(next(iter(tree)), root / "link")
    tree[str(root / "link")] = next(iter(tree.values()))
    for threads in (None, 1, 5):
        found = {s.path: s.digest for s in onesweep.sum(root, algorithm, threads=threads)}  # type: ignore[arg-type]
        assert found == {path: hashlib.new(algorithm, data).hexdigest() for path, data in tree.items()}


def test_sums_are_blake3_unless_told_otherwise(root: Path) -> None:
    (root / "empty").write_bytes(b"")
    (told,) = onesweep.sum(os.fsencode(root))
    assert told == onesweep.Sum(os.fsencode(root / "empty"), "af1349b9f5f9a1a6a0404dea36dcc9499bcb25c9adc112b7cc9a93cae41f3262")
    with pytest.raises(ValueError, match="unknown algorithm"):
        onesweep.sum(root, "crc32")  # type: ignore[arg-type]
    for threads in (0, 5000):
        with pytest.raises(ValueError, match="out of range"):
            onesweep.sum(root, threads=threads)


def test_sums_may_be_left_or_closed(root: Path, tree: dict[str, bytes]) -> None:
    for s in onesweep.sum(root):
        break
    with onesweep.sum(root) as sums:
        next(sums)
    with pytest.raises(onesweep.CancelledError):
        next(sums)


def test_a_table_has_a_row_for_each_name(root: Path, tree: dict[str, bytes]) -> None:
    with open(os.fsencode(root) + b"/\xff", "wb") as file:
        file.write(b"12")
    (root / "l").symlink_to("d0")
    os.link(next(iter(tree)), root / "link")
    os.utime(root / "sparse", ns=(5, -1_000_000_001))
    table = onesweep.table(root, entries="all")
    arrow = pyarrow.table(table)
    arrow.validate(full=True)
    assert arrow.column_names == table.column_names
    assert arrow.num_rows == table.num_rows == len(table) > len(tree) and table.nbytes > 0
    assert pyarrow.table(table).equals(arrow), "it can be taken twice"
    # Python has no time of nanoseconds.
    plain = arrow.drop(["mtime", "ctime", "atime"])
    rows = {row["path_bytes"] or row["path"].encode(): row for row in plain.to_pylist()}
    assert len(rows) == len(table)
    for path, data in tree.items():
        row = rows[path.encode()]
        told = os.lstat(path)
        assert (row["kind"], row["size"], row["ino"], row["dev"]) == ("file", len(data), told.st_ino, told.st_dev)
        assert (row["mode"], row["uid"], row["gid"]) == (told.st_mode, told.st_uid, told.st_gid)
    raw = rows[os.fsencode(root) + b"/\xff"]
    assert raw["path"] == f"{root}/\ufffd" and raw["size"] == 2
    assert rows[os.fsencode(root / "l")]["link_target"] == "d0"
    assert rows[os.fsencode(root)]["kind"] == "directory"
    linked = {rows[os.fsencode(path)]["linked_to"] for path in (root / "link", next(iter(tree)))}
    assert None in linked and len(linked) == 2
    times = dict(zip(arrow["path"].to_pylist(), arrow["mtime"].cast("int64").to_pylist()))
    assert times[str(root / "sparse")] == -1_000_000_001
    assert str(arrow.schema.field("mtime").type) == "timestamp[ns, tz=UTC]"
    assert pyarrow.schema(table) == arrow.schema
    assert repr(table) == f"<onesweep.Table: {len(table)} rows>"


@pytest.mark.skipif(not importlib.util.find_spec("polars"), reason="free-threaded Pythons have neither of them")
def test_polars_and_duckdb_take_a_table(root: Path, tree: dict[str, bytes]) -> None:
    script = """if True:
        import sys, duckdb, onesweep, polars
        t = onesweep.table(sys.argv[1])
        frame = polars.DataFrame(t)
        print(frame.height, frame["size"].sum(), *sorted(frame["path"]))
        print(*duckdb.sql("SELECT count(*), sum(size) FROM t").fetchone())
        """
    # In a process of its own: their threads stay.
    told = subprocess.run([sys.executable, "-c", script, str(root)], check=True, capture_output=True, text=True)
    counts = f"{len(tree)} {sum(len(data) for data in tree.values())}"
    assert told.stdout.splitlines() == [f"{counts} {' '.join(sorted(tree))}", counts]


def test_an_empty_table_has_a_schema(root: Path) -> None:
    table = onesweep.table(root)
    assert len(table) == 0 and pyarrow.table(table).column_names == table.column_names


def test_a_table_that_nobody_takes_is_freed(root: Path, tree: dict[str, bytes]) -> None:
    table = onesweep.table(root)
    for _ in range(10):
        table.__arrow_c_stream__()
        table.__arrow_c_schema__()


def test_the_stubs_are_strict_and_true() -> None:
    """mypy checks the package and an example, and that the stubs tell of what is built."""
    here = Path(__file__).parent
    check = [sys.executable, "-m", "mypy", "--strict", "--cache-dir=/dev/null", here / "example.py", here.parent / "python/onesweep"]
    checked = subprocess.run(check, capture_output=True, text=True, cwd=here.parent)
    assert checked.returncode == 0, checked.stdout + checked.stderr
    allowed = ["--mypy-config-file", here.parent / "pyproject.toml", "--ignore-missing-stub", "--ignore-unused-allowlist", "--allowlist", here / "stubtest.txt"]
    compare = [sys.executable, "-m", "mypy.stubtest", "onesweep", *allowed]
    compared = subprocess.run(compare, capture_output=True, text=True, cwd=here)
    assert compared.returncode == 0, compared.stdout + compared.stderr


def test_the_example_works(root: Path, tree: dict[str, bytes]) -> None:
    example = [sys.executable, Path(__file__).parent / "example.py", root, root / "gone"]
    ran = subprocess.run(example, capture_output=True, text=True)
    assert ran.returncode == 1, ran
    assert "gone: " in ran.stderr and f"{len(tree)} files" in ran.stdout, ran
