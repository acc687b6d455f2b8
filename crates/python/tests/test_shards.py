"""What `onesweep shard` writes, read by those for whom it is written."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import webdataset
from samples import samples, shard

# It leaves shards open, for Python to close.
pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")

def test_webdataset_reads_every_sample_once(root: Path, tmp_path: Path) -> None:
    expected = samples(root)
    for number, options in enumerate([["--max-count", "7"], ["--max-size", "60K", "--shuffle", "0"], ["--seed", "3"]]):
        shards = shard(root, tmp_path / f"out{number}", *options)
        assert len(shards) > 3 or number == 2
        with_names = list(webdataset.WebDataset(shards, shardshuffle=False))
        read = {s["__key__"]: {name: data for name, data in s.items() if not name.startswith("__")} for s in with_names}
        assert read == expected and len(with_names) == len(expected)
        assert all(s["__url__"] in shards for s in with_names)


def test_the_order_of_samples_is_that_of_the_seed(root: Path, tmp_path: Path) -> None:
    samples(root)
    os.sync()

    def keys(name: str, seed: str) -> list[str]:
        shards = shard(root, tmp_path / name, "--seed", seed, "--max-count", "10")
        return [s["__key__"] for s in webdataset.WebDataset(shards, shardshuffle=False)]

    assert keys("a", "1") == keys("b", "1") != keys("c", "2")
