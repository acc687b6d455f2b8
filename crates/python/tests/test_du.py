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
from contextlib import ExitStack, contextmanager
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
        self.questions: list[dict[str, Any]] = []
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
                while self.answer(connection):
                    pass

    def answer(self, connection: socket.socket) -> bool:
        """Answers one question; false at the end."""
        said, fds, _, _ = socket.recv_fds(connection, 65536, 1)
        if not fds:
            return False
        name = Path(os.readlink(f"/proc/self/fd/{fds[0]}")).name
        os.close(fds[0])
        self.questions.append(json.loads(said) | {"name": name})
        self.is_asked.set()
        if name == "never":
            connection.recv(1)  # until the asker goes
        elif name == "nonsense":
            connection.sendall(b"what?\n")
        elif name in ANSWERS:
            connection.sendall(b"".join(json.dumps(line).encode() + b"\n" for line in ANSWERS[name]))
            return True
        return False

    def asked(self, what: str) -> list[Any]:
        return [question.get(what) for question in self.questions]

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
    assert server.asked("freshness") == ["exact", "cached", "synced"]
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
    assert len(server.questions) == 2


@pytest.mark.parametrize(
    ("name", "text"),
    [("fails", "in pieces"), ("nonsense", "expected"), ("ends", "end of file"), ("without", "data")],
)
def test_a_server_that_fails_is_told(root: Path, server: StandIn, name: str, text: str) -> None:
    (root / name).mkdir()
    with pytest.raises(onesweep.ServiceError, match=text) as raised:
        onesweep.du(root / name, socket=server.path)
    assert raised.value.filename == str(root / name)


@pytest.mark.parametrize("name", ["fails", "nonsense", "ends", "without"])
def test_where_the_usual_server_fails_it_is_walked(root: Path, server: StandIn, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    (root / name).mkdir()
    (root / name / "file").write_bytes(b"1" * 5000)
    monkeypatch.setenv("ONESWEEP_SOCKET", str(server.path))
    told = onesweep.du(root / name)
    assert (told.source, told.total.bytes) == ("walk", 5000) and server.asked("name") == [name]


BYTES = 1_000_000


@contextmanager
def mounted(top: Path, *names: str) -> Iterator[None]:
    """File systems in these directories, each with a file, and one of those files on another file."""
    with ExitStack() as stack:

        def mount(at: Path, *how: Any) -> None:
            subprocess.run(["mount", *how, at], check=True)
            stack.callback(subprocess.run, ["umount", at], check=True)

        for name in names:
            (top / name).mkdir(parents=True)
            mount(top / name, "-t", "tmpfs", "none")
            (top / name / "file").write_bytes(b"1" * BYTES)
        (top / "covered").write_bytes(b"")
        mount(top / "covered", "--bind", top / names[0] / "file")
        yield


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting takes root")
@pytest.mark.parametrize("last", ["ends", "denied"])
def test_what_is_mounted_below_counts_as_in_a_walk(root: Path, server: StandIn, last: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The server tells of each file system by itself. What it doesn't track is walked, with what is mounted in that."""
    top = root / "answers"
    top.mkdir()
    # One that was named may not fail.
    named: dict[str, Any] = {"socket": server.path} if last == "denied" else {}
    monkeypatch.setenv("ONESWEEP_SOCKET", str(server.path))
    with mounted(top, "a/untracked", "a/untracked/in", "b/answers", f"c/{last}"):
        told = onesweep.du(top, **named)
        assert server.asked("name") == ["answers", "untracked", "answers", last] and not any(server.asked("one_file_system"))
        server.questions.clear()
        alone = onesweep.du(top, one_file_system=True, **named)
        assert server.asked("one_file_system") == [True]
        monkeypatch.setenv("ONESWEEP_SOCKET", str(root / "nowhere"))
        walked = onesweep.du(top)
    one, two = figures(1000), figures(2000)
    assert alone.total == onesweep.Totals(**one) and alone.own == onesweep.Totals(**two)
    # The file on another one is a file of the directory's, as in a walk.
    assert (told.own.bytes, told.own.files) == (two["bytes"] + BYTES, two["files"] + 1)
    assert (walked.own.bytes, walked.own.files) == (BYTES, 1)
    # Two file systems, and a file on another one.
    assert (told.total.bytes, told.total.files) == (2 * one["bytes"] + 4 * BYTES, 2 * one["files"] + 4)
    assert (told.source, told.is_exact, told.is_partial) == ("server", True, False)
    assert (told.largest, told.harvested_at, told.unreadable) == (BYTES, 9, 20) and told.newest == walked.newest
    # There the server doesn't say what it says of the others.
    assert (walked.total.bytes, walked.total.files) == (5 * BYTES, 5)


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting takes root")
def test_what_may_count_twice_is_walked(root: Path, server: StandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    """A place of the file system itself, which the directory and that have names of one inode in."""
    top, place = root / "answers", root / "leads"
    (top / "leads").mkdir(parents=True)
    place.mkdir()
    (place / "file").write_bytes(b"1" * BYTES)
    os.link(place / "file", top / "file")
    monkeypatch.setitem(ANSWERS, "answers", [{"answer": HEAD | {"leads_out": True}}, ROW])
    monkeypatch.setitem(ANSWERS, "leads", [{"answer": HEAD | {"leads_out": True}}, ROW])
    with ExitStack() as stack:
        subprocess.run(["mount", "--bind", place, top / "leads"], check=True)
        stack.callback(subprocess.run, ["umount", top / "leads"], check=True)
        told = onesweep.du(top, socket=server.path)
        assert (told.source, told.total.bytes, told.total.files) == ("walk", BYTES, 1)
        # Who takes what is stored has nothing read.
        cached = onesweep.du(top, socket=server.path, freshness="cached")
        assert (cached.source, cached.total.bytes) == ("server", 2 * figures(1000)["bytes"])
        monkeypatch.setitem(ANSWERS, "leads", [{"answer": HEAD}, ROW])
        assert onesweep.du(top, socket=server.path).source == "server"


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting takes root")
def test_what_is_left_out_below_is_left_out_above(root: Path, server: StandIn) -> None:
    top = root / "answers"
    top.mkdir()
    with mounted(top, "partial"):
        told = onesweep.du(top, socket=server.path)
    assert told.is_partial and not told.is_exact and told.total.freed == told.own.freed == 0


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


def test_ctrl_c_before_the_question_ends_it(root: Path, tmp_path: Path) -> None:
    """It comes while the server takes nobody, so that there is nothing yet that it could shut down."""
    (root / "never").mkdir()
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(tmp_path / "socket"))
    listener.listen(0)
    with listener, socket.socket(socket.AF_UNIX) as first:
        # With this one all places are taken.
        first.connect(str(tmp_path / "socket"))
        is_interrupted = threading.Event()
        has_gone: list[bool] = []

        def interrupted(number: int, frame: object) -> None:
            is_interrupted.set()
            raise KeyboardInterrupt

        def serve() -> None:
            time.sleep(0.3)
            os.kill(os.getpid(), signal.SIGINT)
            is_interrupted.wait()
            # Until that is heeded.
            time.sleep(0.3)
            listener.accept()[0].close()
            asker, _ = listener.accept()
            with asker:
                asker.settimeout(60)
                try:
                    while asker.recv(65536):
                        pass
                    has_gone.append(True)
                except TimeoutError:
                    has_gone.append(False)

        before = signal.signal(signal.SIGINT, interrupted)
        server = threading.Thread(target=serve)
        server.start()
        try:
            with pytest.raises(KeyboardInterrupt):
                onesweep.du(root / "never", socket=tmp_path / "socket")
        finally:
            signal.signal(signal.SIGINT, before)
            server.join()
        assert has_gone == [True], "it asks on, and would wait for an answer"


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
