"""In which order workers read when that can be repeated: the plan of their rank, dealt out by turns, and shuffled no further than it may be."""

from __future__ import annotations

import os
import random
from collections import Counter
from pathlib import Path
from typing import Any

import onesweep
import onesweep.torch
import pytest
from onesweep._shuffle import held_bytes
from test_torch import load, name_and_worker

# On a disk without seeks a plan goes by directories unless it is told otherwise.
OPTIONS: dict[str, Any] = {"order": "fragment", "repeatable": True}


@pytest.fixture
def scattered(root: Path) -> dict[str, bytes]:
    """Files whose names tell nothing of their places."""
    rng = random.Random(5)
    names = [f"d{n % 9}/{n:03}" for n in range(400)]
    rng.shuffle(names)
    expected = {}
    for n, name in enumerate(names):
        path = root / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(rng.randbytes(rng.choice([500, 5_000, 40_000])))
        expected[str(path)] = path.read_bytes()
        if n % 7 == 0:
            os.sync()
    os.sync()
    return expected


def planned(root: Path, index: int, of: int, seed: int = 0) -> list[onesweep.PlannedFile[str]]:
    with onesweep.plan(root, order="fragment", part=(index, of, seed), ignore_cache=True) as plan:
        return list(plan.files())


def by_worker(tree: onesweep.torch.Tree[Any], workers: int, method: str = "fork") -> list[list[str]]:
    """What each worker has read, in its order."""
    orders: list[list[str]] = [[] for _ in range(workers)]
    for path, _, worker in load(tree, workers, multiprocessing_context=method):
        orders[worker].append(path)
    return orders


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_the_part_of_a_rank_is_dealt_to_its_workers_as_it_was_planned(root: Path, scattered: dict[str, bytes], method: str) -> None:
    ranks, workers = 2, 3
    read: list[str] = []
    for rank in range(ranks):
        tree = onesweep.torch.Tree(root, name_and_worker, shuffle=0, seed=9, rank=rank, world_size=ranks, **OPTIONS)
        of_rank = planned(root, rank, ranks, 9)
        for number, paths in enumerate(by_worker(tree, workers, method)):
            files = of_rank[number::workers]
            assert paths == [file.path for file in files], (rank, number)
            places = [file.address for file in files if file.address is not None]
            assert places == sorted(places) and len(places) > 40, "that is the order of the disk"
            read += paths
    assert Counter(read) == Counter(list(scattered)), "nothing twice, nothing left out"
    whole = [file.path for file in planned(root, 0, 1)]
    assert whole != sorted(whole), "it isn't that of the names"


def test_each_worker_shuffles_by_seed_and_epoch(root: Path, scattered: dict[str, bytes]) -> None:
    def orders(seed: int, epoch: int, rank: int = 0) -> list[list[str]]:
        tree = onesweep.torch.Tree(root, name_and_worker, shuffle="200K", seed=seed, rank=rank, world_size=2, **OPTIONS)
        tree.set_epoch(epoch)
        return by_worker(tree, 3)

    epochs = [orders(4, epoch) for epoch in range(3)]
    assert epochs == [orders(4, epoch) for epoch in range(3)], "the same once more"
    for number in range(3):
        own = [epoch[number] for epoch in epochs]
        assert len({tuple(order) for order in own}) == 3, "another order in each epoch"
        assert len({frozenset(order) for order in own}) == 1, "of the same files, which the page cache may hold"
    other = orders(5, 0)
    assert [set(order) for order in other] != [set(order) for order in epochs[0]], "another seed deals anew"
    both = [path for rank in (0, 1) for order in orders(4, 2, rank) for path in order]
    assert Counter(both) == Counter(list(scattered))


def test_a_shuffle_holds_no_more_than_it_may(root: Path, scattered: dict[str, bytes]) -> None:
    """What was read and not given yet: all files of the plan up to the last one that was given, but those given."""
    limit = 200_000
    tree = onesweep.torch.Tree(root, name_and_worker, shuffle=limit, **OPTIONS)
    for number, paths in enumerate(by_worker(tree, 2)):
        files = planned(root, 0, 1)[number::2]
        turn = {file.path: at for at, file in enumerate(files)}
        held, read, most = 0, 0, 0
        waiting: set[int] = set()
        for path in paths:
            while read <= turn[path]:
                waiting.add(read)
                held += held_bytes(files[read].size)
                read += 1
            most = max(most, held)
            waiting.remove(turn[path])
            held -= held_bytes(files[turn[path]].size)
        assert not waiting and limit // 3 < most <= limit, most
