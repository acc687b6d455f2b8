"""Totals of directories: from a server that answers, refuses, talks nonsense, ends and never answers; by a walk else."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import onesweep
import pytest


def figures(begins: int) -> dict[str, int]:
    names = ["bytes", "directory_bytes", "allocated", "freed", "files", "directories", "others"]
    return {name: begins + n for n, name in enumerate(names)}


HEAD: dict[str, Any] = {"lines": 1, "partial": False, "exact": True, "harvested_at": 9, "unreadable": 10}
ROW: dict[str, Any] = {"name": "", "depth": 0, "total": figures(1000), "own": figures(2000), "newest": 7, "largest": 8}
ANSWERS: dict[str, list[object]] = {
    "answers": [{"answer": HEAD}, ROW],
    "partial": [{"answer": HEAD | {"exact": False, "partial": True}}, ROW | {"newest": None, "largest": None}],
    "without": [{"answer": HEAD | {"lines": 0}}],
    "untracked": [{"refused": "not_tracked"}],
    "denied": [{"refused": "denied"}],
    "fails": [{"refused": {"failed": "the store is in pieces"}}],
}


class StandIn:
    """A server that answers by the name of the directory."""

    def __init__(self, path: Path) -> None:
        self.asked: list[str] = []
        self.is_asked = threading.Event()
        self.path = path
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.bind(str(path))
        self.socket.listen()
        self.thread = threading.Thread(target=self.serve)
        self.thread.start()

    def serve(self) -> None:
        while True:
            try:
                connection, _ = self.socket.accept()
            except OSError:
                return
            with connection:
                self.answer(connection)

    def answer(self, connection: socket.socket) -> None:
        said, fds, _, _ = socket.recv_fds(connection, 65536, 1)
        if not fds:
            return
        name = Path(os.readlink(f"/proc/self/fd/{fds[0]}")).name
        os.close(fds[0])
        self.asked.append(json.loads(said)["freshness"])
        self.is_asked.set()
        if name == "never":
            connection.recv(1)  # until the asker goes
        elif name == "nonsense":
            connection.sendall(b"what?\n")
        else:
            connection.sendall(b"".join(json.dumps(line).encode() + b"\n" for line in ANSWERS.get(name, [])))

    def end(self) -> None:
        self.socket.shutdown(socket.SHUT_RDWR)
        self.socket.close()
        self.thread.join()


@pytest.fixture
def server(tmp_path: Path) -> Iterator[StandIn]:
    server = StandIn(tmp_path / "socket")
    yield server
    server.end()


def test_a_server_is_asked(root: Path, server: StandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("answers", "partial"):
        (root / name).mkdir()
    for freshness in ("exact", "cached", "synced"):
        told = onesweep.du(root / "answers", socket=server.path, freshness=freshness)  # type: ignore[arg-type]
        assert told.source == "server" and told.is_exact and not told.is_partial
        assert told.total == onesweep.Totals(**figures(1000)) and told.own == onesweep.Totals(**figures(2000))
        assert (told.newest, told.largest, told.harvested_at, told.unreadable) == (7, 8, 9, 10)
    assert server.asked == ["exact", "cached", "synced"]
    monkeypatch.setenv("ONESWEEP_SOCKET", str(server.path))
    told = onesweep.du(root / "partial")
    assert told.source == "server" and told.is_partial and not told.is_exact
    assert told.newest is None and told.largest is None


@pytest.mark.parametrize("name", ["untracked", "denied"])
def test_what_a_server_does_not_track_is_walked(root: Path, server: StandIn, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    (root / name).mkdir()
    with pytest.raises(onesweep.ServiceError, match="doesn't track it") as raised:
        onesweep.du(root / name, socket=server.path)
    assert raised.value.filename == str(root / name)
    monkeypatch.setenv("ONESWEEP_SOCKET", str(server.path))
    assert onesweep.du(root / name).source == "walk"
    assert len(server.asked) == 2


@pytest.mark.parametrize(
    ("name", "text"),
    [("fails", "in pieces"), ("nonsense", "expected"), ("ends", "end of file"), ("without", "data")],
)
def test_a_server_that_fails_is_told(root: Path, server: StandIn, name: str, text: str) -> None:
    (root / name).mkdir()
    with pytest.raises(onesweep.ServiceError, match=text) as raised:
        onesweep.du(root / name, socket=server.path)
    assert raised.value.filename == str(root / name)


def test_ctrl_c_ends_a_question(root: Path, server: StandIn) -> None:
    (root / "never").mkdir()

    def interrupt() -> None:
        server.is_asked.wait()
        time.sleep(0.1)
        os.kill(os.getpid(), signal.SIGINT)

    sender = threading.Thread(target=interrupt)
    sender.start()
    with pytest.raises(KeyboardInterrupt):
        onesweep.du(root / "never", socket=server.path)
    sender.join()


def du_of(path: Path) -> tuple[int, int]:
    """What GNU du tells: allocated bytes, and inodes."""
    blocks = subprocess.run(["du", "-s", "-B1", path], capture_output=True, text=True, check=True).stdout.split()[0]
    inodes = subprocess.run(["du", "-s", "--inodes", path], capture_output=True, text=True, check=True).stdout.split()[0]
    return int(blocks), int(inodes)


def test_it_is_walked_where_no_server_answers(root: Path, tree: dict[str, bytes], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ONESWEEP_SOCKET", str(root / "nowhere"))
    os.link(next(iter(tree)), root / "link")
    os.sync()
    for freshness in ("exact", "cached", "synced"):
        told = onesweep.du(root, freshness=freshness)  # type: ignore[arg-type]
        assert (told.source, told.is_exact, told.is_partial, told.unreadable) == ("walk", True, False, 0)
        assert told.total.bytes == sum(map(len, tree.values()))
        assert told.total.files == len(tree)
        assert told.largest == 300_000 and told.harvested_at is None and told.newest
        inodes = told.total.files + told.total.directories + told.total.others
        assert (told.total.allocated, inodes) == du_of(root)
        assert told.own.files <= told.total.files and told.path == str(root)
    assert onesweep.du(os.fsencode(root), one_file_system=True).path == os.fsencode(root)


def test_it_fails_as_it_should(root: Path) -> None:
    with pytest.raises(onesweep.RootError) as raised:
        onesweep.du(root / "gone")
    assert isinstance(raised.value, FileNotFoundError) and raised.value.filename == str(root / "gone")
    (root / "file").write_bytes(b"")
    with pytest.raises(NotADirectoryError):
        onesweep.du(root / "file")
    with pytest.raises(onesweep.ServiceError, match="no server listens") as served:
        onesweep.du(root, socket=root / "nowhere")
    assert served.value.errno == 2
    with pytest.raises(ValueError, match="unknown freshness"):
        onesweep.du(root, freshness="stale")  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        onesweep.du(3)  # type: ignore[arg-type]
