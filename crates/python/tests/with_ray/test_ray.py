"""Files of a fleet as a data set, on a real Ray of a head and two nodes (`make ray-test`)."""

from __future__ import annotations

import hashlib
import io
import os
import shutil
import tarfile
import threading
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import onesweep
import onesweep.ray
import pyarrow as pa
import pytest
import ray
import ray.data
from conftest import alive
from fleet import Fleet, until


def labels() -> dict[str, str]:
    return {node["NodeID"]: node["Labels"].get(onesweep.ray.LABEL, "none") for node in ray.nodes()}


def where_it_runs(f: onesweep.File[str]) -> dict[str, Any]:
    return {"node": ray.get_runtime_context().get_node_id(), "path": f.path}


def test_rows_are_path_bytes_and_stat_of_each_file(fleet: Fleet, trees: dict[tuple[str, str], bytes]) -> None:
    rows = onesweep.ray.read(fleet.disk, on=["a", "b"], share="200K").take_all()
    assert {(row["host"], row["path"]): row["bytes"] for row in rows} == trees and len(rows) == len(trees)
    for row in rows:
        told = os.stat(fleet.files(row["host"]) / Path(row["path"]).relative_to(fleet.disk))
        stat = row["stat"]
        assert (stat["size"], stat["ino"], stat["mode"], stat["mtime_ns"]) == (told.st_size, told.st_ino, told.st_mode, told.st_mtime_ns)
        assert row["error"] is None and row["path_bytes"] is None


def test_tasks_run_where_the_files_are(fleet: Fleet, trees: dict[tuple[str, str], bytes]) -> None:
    names = labels()
    rows = onesweep.ray.read(fleet.disk, where_it_runs, on=["a", "b"], share="100K").take_all()
    assert Counter((names[row["node"]], row["path"]) for row in rows) == Counter(list(trees))
    one = onesweep.ray.read([fleet.disk / "d0", str(fleet.disk / "d1")], where_it_runs, on="b").take_all()
    assert {names[row["node"]] for row in one} == {"b"} and len(one) == 48


def test_files_are_hashed_searched_and_packed(fleet: Fleet, trees: dict[tuple[str, str], bytes], tmp_path: Path) -> None:
    def look(f: onesweep.File[str]) -> dict[str, Any]:
        return {"path": f.path, "sha256": hashlib.sha256(f.data).hexdigest(), "found": b"a 7" in bytes(f.data)}

    rows = onesweep.ray.read(fleet.disk, look, on=["a", "b"], share="1M").take_all()
    expected = Counter((path, hashlib.sha256(data).hexdigest(), b"a 7" in data) for (_, path), data in trees.items())
    assert Counter((row["path"], row["sha256"], row["found"]) for row in rows) == expected

    out = str(tmp_path)

    def pack(share: onesweep.ray.Share) -> dict[str, Any]:
        name = f"{out}/{share.host}-{share.disk.replace('/', '-')}-{share.number:06}.tar"
        with tarfile.open(f"{name}.partial", "w") as tar:
            for f in share:
                member = tarfile.TarInfo(f.path.lstrip("/"))
                member.size = f.size
                tar.addfile(member, io.BytesIO(f.data))
        os.replace(f"{name}.partial", name)
        return {"shard": name, "files": share.files, "host": share.host}

    shards = onesweep.ray.read(fleet.disk, per_share=pack, on=["a", "b"], share="300K").take_all()
    assert len(shards) > 4 and sum(shard["files"] for shard in shards) == len(trees)
    packed = {}
    for shard in shards:
        with tarfile.open(shard["shard"]) as tar:
            for member in tar:
                content = tar.extractfile(member)
                assert content is not None
                packed[shard["host"], "/" + member.name] = content.read()
    assert packed == trees


def test_rows_may_be_many_none_or_tables(fleet: Fleet, trees: dict[tuple[str, str], bytes]) -> None:
    def some(f: onesweep.File[str]) -> list[dict[str, Any]]:
        return [{"path": f.path, "at": at} for at in range(f.size % 3)]

    rows = onesweep.ray.read(fleet.disk, some, on="a").take_all()
    assert len(rows) == sum(len(data) % 3 for (disk, _), data in trees.items() if disk == "a")
    assert onesweep.ray.read(fleet.disk, lambda f: None, on="a").take_all() == []
    tables = onesweep.ray.read(fleet.disk, lambda f: pa.table({"size": [f.size]}), on="a").take_all()
    assert sum(row["size"] for row in tables) == sum(len(data) for (disk, _), data in trees.items() if disk == "a")


def test_what_fails_is_a_row_or_ends_the_job(fleet: Fleet, trees: dict[tuple[str, str], bytes]) -> None:
    """Files that go between the plan and the reading."""
    name = "f\udcff"
    (fleet.files("a") / name).write_bytes(b"odd")
    rows = onesweep.ray.read(fleet.disk, on=["a"])
    strict = onesweep.ray.read(fleet.disk, where_it_runs, on=["a"])
    told = onesweep.ray.read(fleet.disk, where_it_runs, on=["a"], onerror=lambda error: {"path": error.filename, "node": type(error).__name__})
    beyond = onesweep.ray.read(fleet.disk, on=["a"], onerror=lambda error: {"path": error.filename, "kind": type(error).__name__})
    silent = onesweep.ray.read(fleet.disk, on=["a"], onerror=nothing)
    gone = fleet.files("a") / "d0"
    lost = {str(fleet.disk / path.relative_to(fleet.files("a"))) for path in gone.iterdir()}
    shutil.rmtree(gone)
    by_path = {row["path"]: row for row in rows.take_all()}
    assert {path for path, row in by_path.items() if row["error"]} == lost
    assert all(path in by_path[path]["error"] and by_path[path]["bytes"] is None for path in lost)
    assert by_path[f"{fleet.disk}/f\ufffd"]["path_bytes"] == os.fsencode(f"{fleet.disk}/{name}")
    with pytest.raises(Exception, match="No such file"):
        strict.take_all()
    assert {row["path"] for row in told.take_all() if len(row["node"]) < 30} == lost
    assert silent.count() == len(silent.take_all()) == len(by_path) - len(lost)
    with pytest.raises(Exception, match="onerror makes kind, which the rows of files don't have"):
        beyond.take_all()
    (fleet.files("a") / name).unlink()


def test_a_file_with_several_names_is_a_row_for_each(fleet: Fleet, trees: dict[tuple[str, str], bytes]) -> None:
    """Wherever the borders of shares lie: `count` tells what `take_all` gives."""
    folder = fleet.files("a") / "linked"
    folder.mkdir()
    (folder / "one").write_bytes(bytes(1000))
    for name in ("two", "three"):
        os.link(folder / "one", folder / name)
    names = [f"{fleet.disk}/linked/{name}" for name in ("one", "two", "three")]
    for share in ("1000", "2000", "1M"):
        rows = onesweep.ray.read(fleet.disk / "linked", on="a", share=share)
        assert rows.count() == 3
        assert Counter((row["path"], len(row["bytes"])) for row in rows.take_all()) == Counter((name, 1000) for name in names)
    shares = onesweep.ray.read(fleet.disk / "linked", per_share=lambda share: {"told": share.files, "came": len(list(share))}, on="a")
    assert shares.take_all() == [{"told": 3, "came": 3}]
    shutil.rmtree(folder)


def test_more_names_than_the_catalogue_holds_are_rows_all_the_same(fleet: Fleet, trees: dict[tuple[str, str], bytes]) -> None:
    folder = fleet.files("a") / "many"
    for number in range(2000):
        path = folder / f"d{number % 20}" / f"f{number}"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(f"{number}".encode())
    rows = onesweep.ray.read(fleet.disk / "many", on="a", share="1K", catalog_limit="64K")
    assert rows.count() == 2000
    expected = {f"{fleet.disk}/many/d{number % 20}/f{number}": f"{number}".encode() for number in range(2000)}
    assert Counter((row["path"], row["bytes"]) for row in rows.take_all()) == Counter(expected.items())
    shutil.rmtree(folder)


def nothing(error: onesweep.Error) -> None:
    """Makes no row of a failure."""


@pytest.mark.parametrize(
    ("per_file", "onerror", "rows"),
    [
        ([], {}, 7),
        ([], {"onerror": onesweep.ray.failure}, 7),
        ([], {"onerror": nothing}, None),
        ([where_it_runs], {}, None),
        ([where_it_runs], {"onerror": nothing}, None),
    ],
)
def test_rows_are_told_ahead_where_each_file_is_one(
    per_file: list[Any], onerror: dict[str, Any], rows: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ray adds them up for `count`, and reads nothing then. No cluster is needed for that."""
    share = onesweep.ray.Share("a", "sda", 0, 1, 7, 700, b"", {})
    disk = onesweep.ray._DiskShares(True, [share])
    monkeypatch.setattr(onesweep.ray, "_chosen", lambda on: [onesweep.ray.Holder("a", None)])
    monkeypatch.setattr(onesweep.ray, "_plan", SimpleNamespace(options=lambda **_: SimpleNamespace(remote=lambda *_: ([disk], []))))
    monkeypatch.setattr(onesweep.ray.ray, "get", lambda planned: planned)
    monkeypatch.setattr(onesweep.ray, "_read_datasource", lambda source, *_: source)
    source: Any = onesweep.ray.read("/srv", *per_file, **onerror)
    assert [task.metadata.num_rows for task in source.get_read_tasks(1)] == [rows]


def test_holders_are_named_and_missing_ones_told(fleet: Fleet, trees: dict[tuple[str, str], bytes]) -> None:
    found = onesweep.ray.holders()
    assert [holder.name for holder in found[:2]] == ["a", "b"] and found[0].node_id is None and len(found) == 3
    with pytest.raises(LookupError, match="no node holds the files of c; there are a, b"):
        onesweep.ray.read(fleet.disk, on=["a", "c"])
    with pytest.raises(ray.exceptions.RayTaskError, match="gone"):
        onesweep.ray.read(fleet.disk / "gone", on="a")
    with pytest.raises(TypeError, match="not both"):
        onesweep.ray.read(fleet.disk, where_it_runs, per_share=lambda share: None)


def test_a_node_is_lost_and_another_has_its_files(fleet: Fleet, trees: dict[tuple[str, str], bytes], tmp_path: Path) -> None:
    """It dies in the middle, with what it has made in its memory; the next one with its label mounts the same disk."""
    came = tmp_path / "came"

    def slow(f: onesweep.File[str]) -> dict[str, Any]:
        import time

        # In the middle of what b has.
        if f.path.endswith("/f61") and ray.get_runtime_context().get_node_id() in victims:
            came.touch()
            time.sleep(3600)
        return {"path": f.path, "data": bytes(f.data), "node": ray.get_runtime_context().get_node_id()}

    victims = [node for node, label in labels().items() if label == "b"]
    job = onesweep.ray.read(fleet.disk, slow, on=["a", "b"], share="400K", at_once=2)
    rows: list[dict[str, Any]] = []
    failed: list[BaseException] = []

    def collect() -> None:
        try:
            rows.extend(job.materialize().take_all())
        except BaseException as error:
            failed.append(error)

    collector = threading.Thread(target=collect)
    collector.start()
    until("the middle", came.exists)
    fleet.kill("b")
    until("the loss", lambda: len(alive()) == 2)
    fleet.start("b2", disk="b", label="b")
    until("the other", lambda: fleet.has(3))
    collector.join()
    assert not failed, failed
    names = labels()
    assert Counter((names[row["node"]], row["path"]) for row in rows) == Counter(list(trees))
    assert {(names[row["node"]], row["path"]): row["data"] for row in rows} == trees
    (middle,) = (row["node"] for row in rows if names[row["node"]] == "b" and row["path"].endswith("/f61"))
    assert middle not in victims


def test_a_node_is_lost_and_one_that_was_there_all_the_time_has_its_files(
    fleet: Fleet, trees: dict[tuple[str, str], bytes], tmp_path: Path
) -> None:
    """Two nodes mount the same disk under one label; one dies in the middle and nobody replaces it."""
    (first,) = (name for name in fleet.nodes if name.startswith("b"))
    node_of = {first: node for node, label in labels().items() if label == "b" and node in alive()}
    fleet.start("b-twin", disk="b", label="b")
    until("the twin", lambda: fleet.has(4))
    (node_of["b-twin"],) = {node for node, label in labels().items() if label == "b" and node in alive()} - set(node_of.values())
    came = tmp_path / "came"

    def slow(f: onesweep.File[str]) -> dict[str, Any]:
        import time

        node = ray.get_runtime_context().get_node_id()
        if f.path.endswith("/f61") and not came.exists():
            (tmp_path / "comes").write_text(node)
            (tmp_path / "comes").rename(came)
            time.sleep(3600)
        return {"path": f.path, "data": bytes(f.data), "node": node}

    job = onesweep.ray.read(fleet.disk, slow, on=["b"], share="400K", at_once=2)
    killed: list[str] = []

    def kill() -> None:
        until("the middle", came.exists)
        (name,) = (name for name, node in node_of.items() if node == came.read_text())
        fleet.kill(name)
        killed.append(node_of.pop(name))

    killer = threading.Thread(target=kill)
    killer.start()
    rows = job.take_all()
    killer.join()
    until("the loss", lambda: len(alive()) == 3)
    (survivor,) = node_of.values()
    assert Counter(row["path"] for row in rows) == Counter(path for disk, path in trees if disk == "b")
    assert {("b", row["path"]): row["data"] for row in rows} == {key: data for key, data in trees.items() if key[0] == "b"}
    (middle,) = (row["node"] for row in rows if row["path"].endswith("/f61"))
    assert middle == survivor and killed and survivor not in killed


def test_the_loss_of_a_node_without_a_label_ends_the_job(fleet: Fleet, trees: dict[tuple[str, str], bytes], tmp_path: Path) -> None:
    """Nobody else has its files, so nobody may say that all were read."""
    before = set(alive())
    fleet.start("c", disk="a", label=None)
    until("the node", lambda: fleet.has(4))
    (node,) = set(alive()) - before
    (holder,) = (holder for holder in onesweep.ray.holders() if holder.node_id == node)
    came = tmp_path / "came"

    def wait(f: onesweep.File[str]) -> dict[str, Any]:
        import time

        came.touch()
        time.sleep(3600)
        return {"path": f.path}

    job = onesweep.ray.read(fleet.disk, wait, on=[holder.name])
    killer = threading.Thread(target=lambda: (until("the task", came.exists), fleet.kill("c")))
    killer.start()
    with pytest.raises(Exception, match="(?i)node"):
        job.take_all()
    killer.join()
