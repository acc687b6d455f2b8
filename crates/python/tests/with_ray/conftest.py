"""One fleet for all tests of Ray."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import ray
from fleet import QUIET, Fleet, until


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
