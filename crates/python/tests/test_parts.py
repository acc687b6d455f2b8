"""Parts of a tree."""

from __future__ import annotations

import os
from itertools import pairwise
from pathlib import Path

import onesweep
import pytest
from onesweep import _shares
from onesweep._types import Options


def paths(root: Path, part: tuple[int, int] | tuple[int, int, int]) -> set[str]:
    found = [str(f.path) for f in onesweep.read(root, part=part)]
    assert len(found) == len(set(found))
    return set(found)


@pytest.mark.parametrize("of", [1, 2, 5, 400])
def test_each_file_is_in_one_part(root: Path, tree: dict[str, bytes], of: int) -> None:
    parts = [paths(root, (index, of)) for index in range(of)]
    assert sum(map(len, parts)) == len(tree) and set().union(*parts) == set(tree)
    assert of > 5 or all(parts), "each has something"
    assert {str(f.path) for f in onesweep.plan(root, part=(0, of)).files()} == parts[0]
    assert set().union(*(paths(root, (index, of, 3)) for index in range(of))) == set(tree)


def test_a_part_is_the_same_whatever_is_named(root: Path, tree: dict[str, bytes]) -> None:
    whole = paths(root, (1, 3))
    one_by_one = {str(f.path) for f in onesweep.read(sorted(tree), part=(1, 3))}
    assert one_by_one == whole
    assert paths(root, (1, 3, 5)) != whole, "another seed deals anew"
    assert {str(f.path) for f in onesweep.read(root, part=(1, 3), exclude=["d1", "d2"])} == {
        path for path in whole if not path.startswith((f"{root}/d1/", f"{root}/d2/"))
    }


def test_samples_stay_together(root: Path) -> None:
    for n in range(40):
        for end in ("jpg", "json", "seg.png"):
            (root / f"{n}.{end}").write_bytes(b"1")
    for index in range(4):
        keys = [os.path.basename(path).split(".")[0] for path in paths(root, (index, 4))]
        assert all(keys.count(key) == 3 for key in keys)


@pytest.mark.parametrize("order", ["inode", "directory"])
def test_windows_of_a_plan_are_one_sweep(root: Path, order: str) -> None:
    for n in range(3000):
        (root / f"f{n}").write_bytes(b"1")
    small: Options = {"catalog_limit": "64K", "order": order}
    assert _shares._window([str(root)], small) is None, "it takes several"
    plan = _shares.planned([str(root)], small)
    assert plan is not None
    [disk] = plan.disks
    assert sorted(f.path for f in disk.files) == sorted(str(f.path) for f in onesweep.plan(root, ignore_cache=True).files())
    if order == "inode":
        numbers = [os.stat(f.path).st_ino for f in disk.files]
        far = (max(numbers) - min(numbers)) // 4
        assert all(one - other < far for one, other in pairwise(numbers)), "the head never goes far back"


def test_directories_and_names_of_hard_links(root: Path) -> None:
    (root / "d").mkdir()
    for n in range(10):
        (root / f"f{n}").write_bytes(b"1")
        os.link(root / f"f{n}", root / "d" / f"g{n}")
    names: list[str] = []
    for index in range(3):
        for f in onesweep.walk(root, part=(index, 3), entries="all"):
            if f.kind == "file":
                names += [f.path, *f.links]
    assert sorted(names) == sorted([*(str(root / f"f{n}") for n in range(10)), *(str(root / "d" / f"g{n}") for n in range(10))])


def test_parts_that_are_none(root: Path) -> None:
    for wrong in ((2, 2), (0, 0)):
        with pytest.raises(ValueError, match="no part"):
            onesweep.read(root, part=wrong)
    for odd in ((1,), (1, 2, 3, 4), "0/2"):
        with pytest.raises((TypeError, ValueError)):
            onesweep.read(root, part=odd)  # type: ignore[arg-type]
