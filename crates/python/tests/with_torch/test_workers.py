"""Workers that read by one sweep: nothing twice, nothing left out, nobody waits for ever, nothing stays behind."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import onesweep
import onesweep.torch
import pytest
import torch
from sweepers import ODD_OPTIONS, add_odd_files, all_of_it, processes
from test_torch import as_they_are, load, name_and_worker
from torch.utils.data import DataLoader

OPTIONS: dict[str, Any] = {"order": "fragment"}


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where workers find each other; it must be empty in the end."""
    # Short, since PyTorch has sockets in it.
    with tempfile.TemporaryDirectory(prefix="plans-") as path:
        monkeypatch.setenv("TMPDIR", path)
        monkeypatch.setattr(tempfile, "tempdir", path)
        yield Path(path)
        assert not plans(Path(path)), "what workers share is left"
        for _ in range(500):
            if not processes():
                break
            time.sleep(0.01)
        assert not processes(), "processes are left"


def plans(temporary: Path) -> list[str]:
    return [name for name in os.listdir(temporary) if name.startswith("onesweep-")]


def after_a_while(f: onesweep.File[str]) -> str:
    """The first worker is slower than the others together."""
    info = torch.utils.data.get_worker_info()
    time.sleep(0.005 if info is None or info.id == 0 else 0)
    return f.path


def adds_a_file(root: str, f: onesweep.File[str]) -> str:
    """The tree changes before the last worker begins, and whenever a file is given."""
    name = f"more-{os.getpid()}-{time.monotonic_ns()}"
    Path(root).with_name(name).write_bytes(b"was not there")
    os.rename(Path(root).with_name(name), Path(root, "d0", name))
    return f.path


def slow_start(worker: int) -> None:
    time.sleep(0.3 * worker)


@pytest.mark.parametrize("workers, method", [(1, "fork"), (2, "fork"), (4, "fork"), (4, "spawn")])
def test_each_file_comes_once_while_the_tree_changes(
    root: Path, tree: dict[str, bytes], temporary: Path, workers: int, method: str
) -> None:
    data = onesweep.torch.Tree(root, partial(adds_a_file, str(root)), shuffle=0, **OPTIONS)
    loader: Any = DataLoader(
        data, batch_size=7, num_workers=workers, collate_fn=as_they_are, multiprocessing_context=method, worker_init_fn=slow_start
    )
    expected = set(tree)
    for _ in range(2):
        found = [path for batch in loader for path in batch]
        came = Counter(found)
        assert not [path for path in found if came[path] > 1]
        # The sweep may meet what was added while it walked.
        assert set(found) >= expected
        expected = {str(path) for path in root.rglob("*") if path.is_file()}
        assert len(expected) >= 2 * len(tree), "the next epoch has what was added"
    assert not plans(temporary), "nobody needs it any more"


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_a_seed_that_is_set_again_begins_a_new_sweep(root: Path, tree: dict[str, bytes], temporary: Path, method: str) -> None:
    """Epochs that look the same to workers: PyTorch's own seed is the same. The first ends before all workers have come."""
    data = onesweep.torch.Tree(root, name_and_worker, **OPTIONS)
    for n in range(3):
        torch.manual_seed(5)
        (root / f"more{n}").write_bytes(b"more")
        tree[str(root / f"more{n}")] = b"more"
        loader: Any = DataLoader(
            data, batch_size=2, num_workers=3, collate_fn=as_they_are, multiprocessing_context=method, worker_init_fn=slow_start
        )
        if n == 1:
            for _ in loader:
                break
            continue
        found = [item for batch in loader for item in batch]
        assert Counter(path for path, _, _ in found) == Counter(list(tree))
        assert {path: content for path, content, _ in found} == tree


def test_workers_that_stay_sweep_in_each_epoch(root: Path, tree: dict[str, bytes], temporary: Path) -> None:
    data = onesweep.torch.Tree(root, **OPTIONS)
    loader: Any = DataLoader(data, batch_size=5, num_workers=3, collate_fn=as_they_are, persistent_workers=True)
    for epoch in range(4):
        data.set_epoch(epoch)
        if epoch == 2:
            # Left in the middle; the next one is whole again.
            for _ in loader:
                break
            continue
        (root / f"more{epoch}").write_bytes(b"more")
        tree[str(root / f"more{epoch}")] = b"more"
        if epoch == 3:
            tree[str(root / "more2")] = b"2"
            (root / "more2").write_bytes(b"2")
        assert Counter(path for batch in loader for path, _ in batch) == Counter(list(tree))
    del loader


def test_two_loaders_at_the_same_time(root: Path, tree: dict[str, bytes], temporary: Path) -> None:
    data = onesweep.torch.Tree(root, **OPTIONS)
    one: Any = DataLoader(data, batch_size=None, num_workers=2)
    other: Any = DataLoader(data, batch_size=None, num_workers=3)
    both = list(zip(one, other))
    for side in (0, 1):
        assert Counter(pair[side][0] for pair in both) == Counter(list(tree))


def test_nobody_waits_for_who_is_not_asked(root: Path, temporary: Path) -> None:
    """One worker's share is many batches, the others' are few; each stops when two of its batches wait."""
    for n in range(200):
        (root / f"a{n:03}").write_bytes(b"")
    for n in range(40):
        (root / f"b{n:03}").write_bytes(bytes([n]) * 100_000)
    data = onesweep.torch.Tree(root, after_a_while, shuffle=0, budget="1M", **OPTIONS)
    for batch_size, prefetch in ((1, 1), (64, 2)):
        loader: Any = DataLoader(
            data, batch_size=batch_size, num_workers=4, prefetch_factor=prefetch, collate_fn=as_they_are, timeout=60
        )
        found = []
        for batch in loader:
            found += batch
            time.sleep(0.001)
        assert len(found) == len(set(found)) == 240


def kills_itself(f: onesweep.File[str]) -> str:
    info = torch.utils.data.get_worker_info()
    if info is not None and info.id == 0:
        os.kill(os.getpid(), signal.SIGKILL)
    return f.path


def test_a_worker_that_is_killed_is_an_error_and_the_next_epoch_is_whole(
    root: Path, tree: dict[str, bytes], temporary: Path
) -> None:
    data = onesweep.torch.Tree(root, kills_itself, **OPTIONS)
    torch.manual_seed(6)
    with pytest.raises(RuntimeError, match="exited unexpectedly"):
        load(data, 3)
    data._transform = after_a_while
    torch.manual_seed(6)
    assert Counter(load(data, 3)) == Counter(list(tree))
    del data


def kills_the_sweeper(f: onesweep.File[str]) -> str:
    for number in processes():
        os.kill(number, signal.SIGKILL)
    return f.path


def test_a_sweep_that_is_killed_is_an_error_and_no_end(root: Path, temporary: Path) -> None:
    """What was sent before is given; nobody takes that for all."""
    for n in range(400):
        (root / f"f{n:03}").write_bytes(b"x" * 50_000)
    data = onesweep.torch.Tree(root, kills_the_sweeper, shuffle=0)
    found: list[str] = []
    with pytest.raises(ChildProcessError, match="has ended before"):
        for batch in DataLoader(data, batch_size=1, num_workers=3, collate_fn=as_they_are):
            found += batch
    assert len(found) == len(set(found)) < 400
    data._transform = after_a_while
    assert len(set(load(data, 3))) == 400


def temporary_of_its_own(worker: int) -> None:
    tempfile.tempdir = tempfile.mkdtemp()


def test_workers_meet_whatever_they_take_for_temporary(root: Path, tree: dict[str, bytes], temporary: Path) -> None:
    data = onesweep.torch.Tree(root)
    found = load(data, 3, worker_init_fn=temporary_of_its_own)
    assert Counter(path for path, _ in found) == Counter(list(tree))


def fails_in_one(f: onesweep.File[str]) -> str:
    info = torch.utils.data.get_worker_info()
    if info is not None and info.id == 0:
        raise ValueError("cannot be decoded")
    return f.path


def test_others_read_on_when_one_fails(root: Path, temporary: Path) -> None:
    for n in range(400):
        (root / f"f{n:03}").write_bytes(b"x" * 5000)
    data = onesweep.torch.Tree(root, fails_in_one, shuffle=0)
    batches = iter(DataLoader(data, batch_size=1, num_workers=3, collate_fn=as_they_are))
    with pytest.raises(ValueError, match="cannot be decoded"):
        list(batches)
    found = [path for batch in batches for path in batch]
    # What the first one was told goes with it.
    assert len(found) == len(set(found)) >= 300


def test_files_are_as_if_the_worker_had_read_them(root: Path, tree: dict[str, bytes], temporary: Path) -> None:
    add_odd_files(root)
    alone = load(onesweep.torch.Tree(root, all_of_it, **ODD_OPTIONS), 1)
    assert {item[8] for item in alone} == {"read", "no-read", "streamed"}
    assert sorted(load(onesweep.torch.Tree(root, all_of_it, **ODD_OPTIONS), 3)) == sorted(alone)


def test_more_than_fits_the_budget(root: Path, temporary: Path) -> None:
    rng = random.Random(3)
    expected = {str(root / f"f{n:03}"): rng.randbytes(rng.choice([0, 3_000, 900_000])) for n in range(120)}
    for path, content in expected.items():
        Path(path).write_bytes(content)
    for shuffle in (0, "4M"):
        assert dict(load(onesweep.torch.Tree(root, shuffle=shuffle, budget="4M"), 3)) == expected


def test_failures_of_workers_that_share(root: Path, tree: dict[str, bytes], temporary: Path) -> None:
    for method in ("fork", "spawn"):
        with pytest.raises(onesweep.RootError, match="gone"):
            load(onesweep.torch.Tree(root / "gone", **OPTIONS), 2, multiprocessing_context=method)
        both: list[Any] = [root, root / "gone"]
        with pytest.raises(OSError, match="gone"):
            load(onesweep.torch.Tree(both, **OPTIONS), 2, multiprocessing_context=method)
    # Workers are processes, so what they are told is told in a file.
    told = temporary / "told"
    data = onesweep.torch.Tree(both, onerror=lambda error: told.open("a").write(f"{error.filename}\n") and None, **OPTIONS)
    assert Counter(path for path, _ in load(data, 3)) == Counter(list(tree))
    assert told.read_text() == f"{root / 'gone'}\n", "by one of them"


def removes_the_rest(f: onesweep.File[str]) -> str:
    for path in Path(f.path).parent.glob("*"):
        if str(path) != f.path:
            path.unlink(missing_ok=True)
    time.sleep(0.5)
    return f.path


def test_files_that_vanish_meanwhile(root: Path, temporary: Path) -> None:
    # More than the budget and what is ahead of those who ask, so that some are not read yet.
    for n in range(64):
        (root / f"f{n:02}").write_bytes(b"x" * 400_000)
    expected = {str(path) for path in root.iterdir()}
    told = temporary / "told"

    def onerror(error: onesweep.Error) -> None:
        with told.open("a") as file:
            file.write(f"{error.filename}\n")

    data = onesweep.torch.Tree(root, removes_the_rest, shuffle=0, onerror=onerror, budget="4M", **OPTIONS)
    found, failed = load(data, 2), told.read_text().split()
    # One that is removed while it is read may be read, or fail.
    assert found and failed and Counter(found + failed) == Counter(expected)


def test_files_that_are_named_one_by_one(root: Path, tree: dict[str, bytes], temporary: Path) -> None:
    found = load(onesweep.torch.Tree(list(tree), name_and_worker, **OPTIONS), 3)
    assert Counter(path for path, _, _ in found) == Counter(list(tree)) and len({worker for _, _, worker in found}) == 3


def test_trees_larger_than_the_catalogue(root: Path, tree: dict[str, bytes], temporary: Path) -> None:
    few: Any = {"catalog_limit": 1, **OPTIONS}
    assert Counter(path for path, _ in load(onesweep.torch.Tree(root, **few), 3)) == Counter(list(tree))


def mkfs(image: Path, *options: Any) -> None:
    with image.open("wb") as file:
        file.truncate(64 << 20)
    path = os.pathsep.join([os.environ["PATH"], "/usr/sbin", "/sbin"])
    if shutil.which("mkfs.ext4", path=path) is None:
        pytest.skip("there is no mkfs.ext4")
    subprocess.run(["mkfs.ext4", "-q", "-F", *options, image], check=True, env={**os.environ, "PATH": path})


def test_files_of_an_image_can_not_be_named(root: Path, tree: dict[str, bytes], temporary: Path, tmp_path: Path) -> None:
    image = tmp_path / "disk.img"
    mkfs(image, "-d", root)
    found = load(onesweep.torch.Tree(image, metadata="auto", **OPTIONS), 2)
    assert len(found) == len(tree) and Counter(content for _, content in found) == Counter(tree.values())


def test_a_file_that_looks_like_a_disk_is_a_file(root: Path, tree: dict[str, bytes], temporary: Path) -> None:
    image = root / "disk.img"
    mkfs(image)
    tree[str(image)] = image.read_bytes()
    assert dict(load(onesweep.torch.Tree(root, metadata="auto", **OPTIONS), 2)) == tree
