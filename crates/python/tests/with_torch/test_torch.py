"""Trees for PyTorch, by the real one (`make torch-test`)."""

from __future__ import annotations

import os
import pickle
import socket
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import onesweep
import onesweep.torch
import pytest
import torch
import torch.distributed
import torch.multiprocessing
from torch.utils.data import DataLoader

HERE = Path(__file__).parent


def as_they_are(items: list[Any]) -> list[Any]:
    return items


def name_and_worker(f: onesweep.File[str]) -> tuple[str, bytes, int]:
    info = torch.utils.data.get_worker_info()
    return f.path, bytes(f.data), -1 if info is None else info.id


def load(tree: onesweep.torch.Tree[Any], workers: int, **options: Any) -> list[Any]:
    loader: Any = DataLoader(tree, batch_size=7, num_workers=workers, collate_fn=as_they_are, **options)
    return [item for batch in loader for item in batch]


@pytest.mark.parametrize("workers", [0, 1, 3])
@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_workers_read_everything_once(root: Path, tree: dict[str, bytes], workers: int, method: str) -> None:
    context = method if workers else None
    for shuffle in (0, "100K", "64M"):
        if method == "spawn" and shuffle == 0:
            continue
        data = onesweep.torch.Tree(root, name_and_worker, shuffle=shuffle)
        found = load(data, workers, multiprocessing_context=context)
        assert Counter(path for path, _, _ in found) == Counter(list(tree))
        assert {path: content for path, content, _ in found} == tree
        assert {worker for _, _, worker in found} == ({-1} if workers == 0 else set(range(workers)))


def test_ranks_share_a_tree(root: Path, tree: dict[str, bytes]) -> None:
    found: list[str] = []
    for rank in range(3):
        data = onesweep.torch.Tree([root], rank=rank, world_size=3)
        mine = load(data, 2)
        assert all(content == tree[path] for path, content in mine) and mine
        found += [path for path, _ in mine]
    assert Counter(found) == Counter(list(tree))


def rank_of_many(rank: int, port: int, root: str, out: str, method: str) -> None:
    where = f"tcp://127.0.0.1:{port}"
    early: Any = onesweep.torch.Tree(root)
    torch.distributed.init_process_group("gloo", init_method=where, rank=rank, world_size=2)
    paths = [path for path, _ in load(early, 2, multiprocessing_context=method)]
    Path(out, str(rank)).write_text("\n".join(paths))
    torch.distributed.barrier()
    torch.distributed.destroy_process_group()


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_ranks_of_a_process_group_are_found(root: Path, tree: dict[str, bytes], tmp_path: Path, method: str) -> None:
    """Also by workers that are spawned and know of no group, of a tree that was made before the group."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    out = tmp_path / "out"
    out.mkdir()
    text = f"import test_torch as t, torch.multiprocessing as m; m.spawn(t.rank_of_many, ({port}, {str(root)!r}, {str(out)!r}, {method!r}), 2)"
    script = tmp_path / "ranks.py"
    script.write_text(f"if __name__ == '__main__':\n    {text}\n")
    ran = subprocess.run([sys.executable, script], env={**os.environ, "PYTHONPATH": search_path()}, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    found = [path for rank in "01" for path in (out / rank).read_text().split("\n")]
    assert Counter(found) == Counter(list(tree))


def search_path() -> str:
    return os.pathsep.join([str(HERE), *filter(None, sys.path)])


def order(data: onesweep.torch.Tree[Any], workers: int = 0) -> list[str]:
    return [path for path, _ in load(data, workers)]


def test_the_seed_and_the_epoch_decide(root: Path, tree: dict[str, bytes]) -> None:
    os.sync()
    data = onesweep.torch.Tree(root, seed=3, repeatable=True)
    first = order(data)
    assert order(data) == first, "the same until the epoch changes"
    data.set_epoch(1)
    second = order(data)
    assert second != first and sorted(second) == sorted(first) == sorted(tree)
    assert order(onesweep.torch.Tree(root, seed=4, repeatable=True)) != first
    again = onesweep.torch.Tree(root, seed=3, repeatable=True)
    assert order(again) == first and order(pickle.loads(pickle.dumps(again))) == first
    again.set_epoch(1)
    assert order(again) == second
    assert order(again, 2) == order(again, 2)
    unshuffled = onesweep.torch.Tree(root, shuffle=0, repeatable=True)
    assert order(unshuffled) == [f.path for f in onesweep.read(root, ignore_cache=True, one_at_a_time=True)]


def test_workers_that_stay_see_the_epoch(root: Path, tree: dict[str, bytes]) -> None:
    for method in ("fork", "spawn"):
        data = onesweep.torch.Tree(root, repeatable=True)
        loader: Any = DataLoader(
            data, batch_size=None, num_workers=1, persistent_workers=True, multiprocessing_context=method
        )
        orders = []
        for epoch in (0, 0, 1):
            data.set_epoch(epoch)
            orders.append([path for path, _ in loader])
        assert orders[0] == orders[1] != orders[2] and sorted(orders[0]) == sorted(orders[2]) == sorted(tree)
        # Its workers end with it.
        del loader


def test_each_name_of_a_file_comes_once(root: Path, tree: dict[str, bytes]) -> None:
    for n, path in enumerate(list(tree)[:60]):
        os.link(path, root / f"link{n}")
        tree[str(root / f"link{n}")] = tree[path]
    for workers in (0, 3):
        found = load(onesweep.torch.Tree(root), workers)
        assert Counter(path for path, _ in found) == Counter(list(tree)) and dict(found) == tree
    windows: Any = onesweep.torch.Tree(root, catalog_limit=1)
    assert Counter(order(windows)) == Counter(list(tree))


def test_large_files_and_left_loops(root: Path) -> None:
    (root / "large").write_bytes(os.urandom(3 << 20))
    for n in range(20):
        (root / f"f{n}").write_bytes(b"x" * 50_000)
    for shuffle in ("1M", "64M"):
        found: Any = dict(iter(onesweep.torch.Tree(root, shuffle=shuffle, budget="4M")))
        assert found[str(root / "large")] == (root / "large").read_bytes() and len(found) == 21
    for _ in onesweep.torch.Tree(root, budget="64K", large="64K"):
        break
    # The fixture counts threads and descriptors.


def test_failures_are_raised_or_told(root: Path, tree: dict[str, bytes]) -> None:
    told: list[onesweep.Error] = []
    with pytest.raises(onesweep.RootError):
        list(onesweep.torch.Tree(root / "gone"))
    both = [root, root / "gone"]
    with pytest.raises(OSError, match="gone"):
        list(onesweep.torch.Tree(both))
    assert len(list(onesweep.torch.Tree(both, onerror=told.append))) == len(tree)
    assert [str(error.filename) for error in told] == [str(root / "gone")]
    for method in ("fork", "spawn"):
        with pytest.raises(onesweep.RootError, match="gone"):
            load(onesweep.torch.Tree(root / "gone"), 1, multiprocessing_context=method)


def test_wrong_arguments(root: Path) -> None:
    wrong: list[tuple[type[Exception], str, dict[str, Any]]] = [
        (ValueError, "rank and world_size", {"rank": 0}),
        (ValueError, "no rank 2 of 2", {"rank": 2, "world_size": 2}),
        (ValueError, "seed", {"seed": -1}),
        (TypeError, "part", {"part": (0, 2)}),
        (ValueError, "12Q", {"shuffle": "12Q"}),
    ]
    for kind, match, options in wrong:
        with pytest.raises(kind, match=match):
            onesweep.torch.Tree(root, **options)


def test_the_example_works_and_is_that_of_the_docs(root: Path) -> None:
    for n in range(50):
        for directory in ("cat", "dog"):
            (root / directory).mkdir(exist_ok=True)
            (root / directory / f"{n}.raw").write_bytes(bytes([n]) * 300)
    (root / "notes.txt").write_bytes(b"no image")
    example = HERE / "example.py"
    environment = {**os.environ, "PYTHONPATH": search_path()}
    ran = subprocess.run([sys.executable, example, root], env=environment, capture_output=True, text=True)
    assert ran.stdout.split("\n")[:2] == [f"epoch {epoch}: 100 images, 50 of cats" for epoch in (0, 1)], ran
    code = example.read_text().split("\n", 2)[2].strip()
    assert code in (HERE.parents[3] / "docs/python.md").read_text()
