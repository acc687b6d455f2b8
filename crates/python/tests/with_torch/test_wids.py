"""The index that `onesweep shard` writes, read by wids, which needs PyTorch."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import wids
from samples import samples, shard


def test_wids_gives_every_sample_by_its_number(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = samples(root)
    out = tmp_path / "out"
    assert len(shard(root, out, "--max-count", "11")) == 9
    index = json.loads((out / "index.json").read_text())
    assert sum(part["nsamples"] for part in index["shardlist"]) == len(expected)
    monkeypatch.setenv("WIDS_CACHE", str(tmp_path / "cache"))
    data = wids.ShardListDataset(str(out / "index.json"), transformations=[], keep=True)
    assert len(data) == len(expected)
    read = {}
    # Backwards, since that is what it is for.
    for number in reversed(range(len(data))):
        sample = data[number]
        read[sample["__key__"]] = {name.lstrip("."): value.read() for name, value in sample.items() if name.startswith(".")}
    assert read == expected
    data.close()
