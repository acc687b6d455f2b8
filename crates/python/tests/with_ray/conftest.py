"""One fleet for all tests of Ray."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
import ray
from fleet import QUIET, Fleet, until

SIZES = [0, 1, 4096, 5000, 20_000, 70_000]


@pytest.fixture(autouse=True)
def nothing_is_left() -> Iterator[None]:
    """Ray keeps threads and descriptors of its own."""
    yield


@pytest.fixture(scope="session")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    os.environ.update(QUIET)
    fleet = Fleet(tmp_path_factory.mktemp("fleet"))
    try:
        until("the head", lambda: _connected(fleet))
        for name in "ab":
            fleet.start(name, disk=name, label=name)
        until("the nodes", lambda: fleet.has(3))
        ray.data.DataContext.get_current().enable_progress_bars = False
        yield fleet
    except BaseException:
        print(fleet.logs())
        raise
    finally:
        ray.shutdown()
        fleet.stop()


def _connected(fleet: Fleet) -> bool:
    if fleet.nodes["head"].poll() is not None:
        raise AssertionError(fleet.logs())
    here = str(Path(__file__).parent)
    path = os.pathsep.join([here, os.environ.get("PYTHONPATH", "")])
    ray.init(address=fleet.address, log_to_driver=False, logging_level="ERROR", runtime_env={"env_vars": {"PYTHONPATH": path}})
    return True


def alive() -> list[str]:
    return [node["NodeID"] for node in ray.nodes() if node["Alive"]]


@pytest.fixture
def trees(fleet: Fleet) -> dict[tuple[str, str], bytes]:
    """Other files on each disk, with the same names; by disk and path."""
    expected = {}
    for disk in "ab":
        root = fleet.files(disk)
        for old in root.iterdir():
            shutil.rmtree(old) if old.is_dir() else old.unlink()
        for n in range(120):
            path = root / f"d{n % 5}" / f"f{n}"
            path.parent.mkdir(exist_ok=True)
            data = f"{disk} {n}".encode() * (SIZES[n % 6] // 5 + 1)
            path.write_bytes(data[: SIZES[n % 6]])
            expected[disk, str(fleet.disk / path.relative_to(root))] = data[: SIZES[n % 6]]
    os.sync()
    return expected
