"""Reading and walking."""

from __future__ import annotations

import gc
import os
import shutil
import stat
import threading
import weakref
from pathlib import Path

import onesweep
import pytest


def test_every_file_comes_whole(root: Path, tree: dict[str, bytes]) -> None:
    for options in ({}, {"budget": "1M"}, {"budget": 1 << 20, "order": "inode"}, {"one_at_a_time": True}):
        found = {f.path: bytes(f.data) for f in onesweep.read(root, **options)}  # type: ignore[arg-type]
        assert found == tree


def test_attributes_are_those_of_stat(root: Path, tree: dict[str, bytes]) -> None:
    for f in onesweep.read(root):
        is_stat = os.lstat(f.path)
        for name in dir(is_stat):
            # The file system tells blocks and the time of the last read later than we look.
            if name.startswith("st_") and name not in ("st_blocks", "st_blksize", "st_atime", "st_atime_ns"):
                assert getattr(f.stat, name) == getattr(is_stat, name), name
        assert isinstance(f.stat, os.stat_result) and stat.S_ISREG(f.stat.st_mode)
        assert f.size == f.stat.st_size == len(f.data)
        assert f.kind == "file"
        assert os.fspath(f) == f.open_path == f.path
        assert repr(f) == f"<onesweep.File {f.path!r}: file, {f.size} bytes>"
        assert not (f.is_closing or f.is_in_snapshot or f.is_dirty or f.is_encrypted)


def test_data_is_a_view_without_a_copy(root: Path) -> None:
    (root / "a").write_bytes(b"content")
    (f,) = onesweep.read(root)
    one, two = f.data, memoryview(f)
    assert one.obj is f and two.obj is f
    assert one.readonly and one == b"content" and one.format == "B" and one.contiguous
    with pytest.raises(TypeError):
        one[0] = 1
    with pytest.raises(BufferError, match="memoryview"):
        f.release()
    one.release()
    two.release()
    f.release()
    with pytest.raises(onesweep.NoContentError) as raised:
        f.data
    assert isinstance(raised.value, OSError) and isinstance(raised.value, ValueError)
    assert raised.value.filename == f.path
    assert f.stat.st_size == 7, "attributes stay"


def test_views_outlive_file_iterator_and_module_use(root: Path, tree: dict[str, bytes]) -> None:
    views = {}
    reader = onesweep.read(root)
    for f in reader:
        views[f.path] = f.data
    gone = weakref.ref(reader)
    del reader, f
    gc.collect()
    assert gone() is None
    shutil.rmtree(root)
    assert {path: bytes(view) for path, view in views.items()} == tree


def test_a_file_in_a_with_block_gives_its_memory_back(root: Path) -> None:
    (root / "a").write_bytes(b"x" * 1000)
    for f in onesweep.read(root):
        with f as same:
            assert same is f
            with f.data as view:
                assert len(view) == 1000
        with pytest.raises(onesweep.NoContentError):
            f.data


def test_who_keeps_everything_gets_everything(root: Path) -> None:
    """Far more than the budget: what is kept leaves it."""
    for n in range(64):
        (root / f"f{n}").write_bytes(bytes([n]) * (16 << 10))
    with onesweep.read(root, budget="64K") as reader:
        kept = list(reader)
    assert sorted(f.data[0] for f in kept) == list(range(64))
    assert all(len(f.data) == 16 << 10 for f in kept)
    summary = reader.summary
    assert summary.files == 64 and summary.errors == 0 and not summary.cancelled
    assert summary.taken_over_bytes > 0
    assert summary.peak_budget <= 64 << 10


def test_what_was_done_so_far_is_told_at_any_time(root: Path) -> None:
    for n in range(64):
        (root / f"f{n}").write_bytes(bytes(16 << 10))
    done = []
    with onesweep.read(root, budget="64K") as reader:
        for f in reader:
            f.release()
            done.append(reader.summary.files)
    assert done == sorted(done) and done[0] < 64, "the budget holds four of them"
    assert reader.summary.files == 64


def test_views_stay_when_their_file_leaves_the_budget(root: Path) -> None:
    for n in range(64):
        (root / f"f{n}").write_bytes(bytes([n]) * (16 << 10))
    views = [f.data for f in onesweep.read(root, budget="64K")]
    assert sorted(view[-1] for view in views) == list(range(64))
    assert all(view == bytes(view[:1]) * (16 << 10) for view in views)


def test_what_is_taken_leaves_the_budget(root: Path) -> None:
    (root / "a").write_bytes(b"x" * 5000)
    reader = onesweep.read(root)
    f = next(reader)
    view = f.data
    f.take()
    f.take()
    assert reader.summary.taken_over_bytes == 8192, "whole blocks"
    assert view == f.data == b"x" * 5000 == f.pread(9000)
    assert f.pread(10, 4995) == b"xxxxx" and f.pread(1, 5000) == b"" == f.pread(1, 1 << 60)
    assert list(reader) == []


def test_large_files_are_streamed(root: Path) -> None:
    content = os.urandom(3 << 20)
    (root / "large").write_bytes(content)
    (root / "small").write_bytes(b"s")
    files = {f.path: f for f in onesweep.read(root, budget="4M")}
    large, small = files[str(root / "large")], files[str(root / "small")]
    assert (large.route, large.is_in_memory, small.is_in_memory) == ("streamed", False, True)
    with pytest.raises(BufferError):
        memoryview(large)
    assert large.data == content and large.data.readonly
    assert large.pread(100, 1000) == content[1000:1100]
    assert large.pread(1 << 40, len(content) - 5) == content[-5:]
    assert b"".join(large.chunks()) == content
    assert [len(chunk) for chunk in large.chunks(1 << 21)] == [1 << 21, 1 << 20]
    assert list(small.chunks(1)) == [b"s"]
    with pytest.raises(ValueError, match="never end"):
        large.chunks(0)


def test_a_stream_that_changes_is_told(root: Path) -> None:
    (root / "large").write_bytes(bytes(3 << 20))
    (f,) = onesweep.read(root, budget="4M")
    os.truncate(root / "large", 1 << 20)
    with pytest.raises(onesweep.ChangedError) as raised:
        f.data
    assert raised.value.filename == str(root / "large") and raised.value.errno is None
    with pytest.raises(onesweep.ChangedError):
        list(f.chunks())


def test_walk_tells_everything_and_reads_nothing(root: Path) -> None:
    (root / "d").mkdir()
    (root / "d" / "f").write_bytes(b"123")
    (root / "l").symlink_to("d/f")
    os.mkfifo(root / "p")
    with onesweep.walk(root, entries="all") as entries:
        found = [(Path(e.path).name, e.kind, e.is_closing, e.link_target) for e in entries]
    assert ("f", "file", False, None) in found and ("l", "symlink", False, "d/f") in found
    assert ("p", "fifo", False, None) in found
    assert [name for name, kind, closing, _ in found if kind == "directory" and closing] == ["d", "tree"]
    (f,) = onesweep.walk(root)
    assert f.size == 3 and not f.is_in_memory and f.route == "no-read"
    for content in (lambda: f.data, lambda: f.pread(1), lambda: f.chunks(), lambda: f.take()):
        with pytest.raises(onesweep.NoContentError):
            content()


def test_hard_links_come_once(root: Path) -> None:
    (root / "a").write_bytes(b"x")
    os.link(root / "a", root / "b")
    (f,) = onesweep.read(root)
    assert {f.path, *f.links} == {str(root / "a"), str(root / "b")}
    assert f.linked_to is None and f.stat.st_nlink == 2


def test_attributes_and_holes(root: Path) -> None:
    path = root / "a"
    with open(path, "wb") as file:
        file.truncate(1 << 20)
        file.seek(512 << 10)
        file.write(b"x")
    os.setxattr(path, "user.colour", b"red")
    os.sync()
    (f,) = onesweep.read(root, xattrs=True)
    assert f.xattrs["user.colour"] == b"red"
    assert f.data[512 << 10] == ord("x") and not any(f.data[: 512 << 10])
    assert all(start < end <= f.size for start, end in f.ranges)
    assert sum(end - start for start, end in f.ranges) <= f.size
    assert next(onesweep.read(root)).xattrs == {}


@pytest.mark.parametrize("name", [b"plain", "gr\u00fcn \u732b".encode(), b"\xff\xfe \x80", b"new\nline"])
def test_paths_are_what_was_named(root: Path, name: bytes) -> None:
    directory = os.fsencode(root)
    with open(os.path.join(directory, name), "wb") as file:
        file.write(b"1")
    (as_bytes,) = onesweep.read(directory)
    (as_text,) = onesweep.read(str(root))
    (as_path,) = onesweep.read([root])
    assert as_bytes.path == os.path.join(directory, name)
    assert as_text.path == as_path.path == os.fsdecode(os.path.join(directory, name))
    with open(as_text, "rb") as file, open(as_bytes, "rb") as same:
        assert file.read() == same.read() == b"1"
    # What came out goes in.
    assert [f.path for f in onesweep.read([as_text.path])] == [as_text.path]
    assert [f.path for f in onesweep.read([as_bytes.path])] == [as_bytes.path]


def test_paths_may_be_open_descriptors(root: Path, tree: dict[str, bytes]) -> None:
    fd = os.open(root, os.O_RDONLY)
    try:
        found = {f.path: bytes(f.data) for f in onesweep.read([fd])}
    finally:
        os.close(fd)
    assert {path.replace(f"/proc/self/fd/{fd}", str(root)): data for path, data in found.items()} == tree
    with pytest.raises(onesweep.RootError, match="descriptor") as raised:
        onesweep.read(987654)
    assert raised.value.errno == 9


def test_several_paths_of_any_kind(root: Path) -> None:
    for name in "abc":
        (root / name).write_bytes(name.encode())
    named = (path for path in [root / "a", str(root / "c")])
    assert sorted(bytes(f.data) for f in onesweep.read(named)) == [b"a", b"c"]
    assert [bytes(f.data) for f in onesweep.read(["b"], base=root)] == [b"b"]
    assert list(onesweep.read(root, exclude=["a", b"b", "c"])) == []
    assert [f.path for f in onesweep.read(root, exclude="[ab]")] == [str(root / "c")]
    assert [f.kind for f in onesweep.walk(root, entries="all", recursive=False)] == ["directory", "directory"]


def test_threads_share_a_reader_and_have_their_own(root: Path, tree: dict[str, bytes]) -> None:
    shared = onesweep.read(root)
    lock, found, own = threading.Lock(), {}, []

    def work() -> None:
        mine = {f.path: bytes(f.data) for f in onesweep.read(root)}
        for f in shared:
            with lock:
                assert f.path not in found
                found[f.path] = bytes(f.data)
        own.append(mine)

    workers = [threading.Thread(target=work) for _ in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert found == tree and own == [tree] * 4


def test_abandoned_iterators_leave_nothing(root: Path, tree: dict[str, bytes]) -> None:
    for taken in (0, 1, 50):
        reader = onesweep.read(root, budget="1M")
        for _ in range(taken):
            next(reader)
        del reader
    for f in onesweep.read(root):
        break
    # The fixture counts threads and descriptors.


def test_a_reader_in_a_cycle_is_collected(root: Path, tree: dict[str, bytes]) -> None:
    class Owner:
        def complain(self, error: OSError) -> None: ...

    owner = Owner()
    owner.reader = onesweep.read(root, onerror=owner.complain)  # type: ignore[attr-defined]
    gone = weakref.ref(owner)
    del owner
    gc.collect()
    assert gone() is None


def test_closing_ends_it(root: Path, tree: dict[str, bytes]) -> None:
    with onesweep.read(root) as reader:
        next(reader)
    with pytest.raises(onesweep.CancelledError) as raised:
        next(reader)
    assert raised.value.errno == 125
    reader.close()
    assert reader.summary.cancelled
    with onesweep.read(root) as reader:
        assert len(list(reader)) == len(tree)
    assert list(reader) == [] and not reader.summary.cancelled, "what has ended can't be closed early"


def test_closing_from_another_thread_ends_the_wait(root: Path) -> None:
    (root / "a").write_bytes(b"1" * 60_000)
    os.mkfifo(root / "fifo")
    # So slow that the reader surely waits.
    for n in range(50):
        (root / f"f{n}").write_bytes(os.urandom(60_000))
    reader = onesweep.read(root, bwlimit=1000, ignore_cache=True, budget="256K")
    closer = threading.Timer(0.3, reader.close)
    closer.start()
    with pytest.raises(onesweep.CancelledError):
        for _ in reader:
            pass
    closer.join()


def test_summary_counts(root: Path, tree: dict[str, bytes]) -> None:
    with onesweep.read(root) as reader:
        assert reader.summary.windows <= 1
        for _ in reader:
            pass
    summary = reader.summary
    assert (summary.files, summary.errors) == (len(tree), 0)
    assert summary.bytes == sum(map(len, tree.values()))
    assert "files=301" in repr(summary)
