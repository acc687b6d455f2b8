"""How processes that know nothing of each other find each other: the first that comes makes what all of them use.

A round is what the workers of a loader do in one epoch. What they share is found in files below a directory of its own for temporary
files, which goes away when the last worker has them open. Locks are those of the kernel on files (``flock``), which end with who
holds them.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import secrets
import shutil
import stat
import tempfile
import weakref
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import Generic, TypeVar

T = TypeVar("T")

_DONE = b"done"


class Round(Generic[T]):
    """A worker's place in a round, and what it has of what is shared. Left with ``Rounds.finish`` or ``Rounds.break_off``."""

    def __init__(self, path: str, open_files: ExitStack, alive: int, shared: T) -> None:
        self.path = path
        self.shared = shared
        self._open_files, self._alive = open_files, alive

    def finish(self) -> None:
        """There is nothing left for this worker."""
        os.pwrite(self._alive, _DONE, 0)
        self.leave()

    def leave(self) -> None:
        self._open_files.close()


class Rounds:
    """Where the rounds of a loader are found: by all copies of this object on one machine."""

    def __init__(self) -> None:
        self._path = os.path.join(os.path.abspath(tempfile.gettempdir()), f"onesweep-{secrets.token_hex(16)}")
        # Rounds that were left before all had come stay until then.
        weakref.finalize(self, _remove, self._path, os.getpid())

    def __getstate__(self) -> str:
        # Workers may have other directories for temporary files, and would not meet there.
        return self._path

    def __setstate__(self, path: str) -> None:
        directory, name = os.path.split(path)
        # On another machine the directory may be missing.
        self._path = path if os.path.isdir(directory) else os.path.join(tempfile.gettempdir(), name)

    def join(
        self, key: str, number: int, of: int, make: Callable[[str], None], enter: Callable[[str, ExitStack], T]
    ) -> Round[T]:
        """The round of the workers with that key, of whom this one has that number and comes once.

        ``make`` puts into a directory what is shared, if this worker is the first; ``enter`` opens what is in it, until it is left.
        """
        name = hashlib.sha256(f"{key} {of}".encode()).hexdigest()[:16]
        with self._door():
            serials = sorted(int(entry.rpartition("-")[2]) for entry in os.listdir(self._path) if entry.startswith(name))
            path = os.path.join(self._path, f"{name}-{serials[-1] if serials else 0}")
            if not serials or not _may_join(path, number):
                path = os.path.join(self._path, f"{name}-{serials[-1] + 1 if serials else 0}")
                self._make(path, make)
            joined = _join(path, number, enter)
            if len(_numbers(path)) == of:
                shutil.rmtree(path)
                self._remove_if_empty()
            return joined

    def break_off(self, joined: Round[T]) -> None:
        """Leaves a round that ends early: when nobody else is in it, nobody will come."""
        joined.leave()
        if not os.path.isdir(joined.path):
            return
        with self._door():
            with suppress(FileNotFoundError):
                if not any(_is_alive(joined.path, number) for number in _numbers(joined.path)):
                    shutil.rmtree(joined.path)
            self._remove_if_empty()

    def _make(self, path: str, make: Callable[[str], None]) -> None:
        """A round that is there is whole."""
        making = os.path.join(self._path, "making")
        shutil.rmtree(making, ignore_errors=True)
        os.mkdir(making, 0o700)
        try:
            make(making)
        except BaseException:
            shutil.rmtree(making)
            raise
        os.rename(making, path)

    @contextmanager
    def _door(self) -> Iterator[None]:
        """One comes in at a time. Who comes out last takes the door away, so that it may be another one now."""
        with ExitStack() as stack:
            while not self._has_opened(stack):
                pass
            try:
                yield
            except BaseException:
                self._remove_if_empty()
                raise

    def _has_opened(self, stack: ExitStack) -> bool:
        path = os.path.join(self._path, "door")
        try:
            with suppress(FileExistsError):
                os.mkdir(self._path, 0o700)
            told = os.lstat(self._path)
            if not stat.S_ISDIR(told.st_mode) or told.st_uid != os.geteuid():
                raise PermissionError(f"{self._path} is somebody else's")
            door = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except FileNotFoundError:
            return False
        with ExitStack() as mine:
            mine.callback(os.close, door)
            fcntl.flock(door, fcntl.LOCK_EX)
            if not _is_there(door, path):
                return False
            stack.push(mine.pop_all())
            return True

    def _remove_if_empty(self) -> None:
        if os.listdir(self._path) == ["door"]:
            shutil.rmtree(self._path)


def _remove(path: str, maker: int) -> None:
    # A fork's copies are not what the directory waits for.
    if os.getpid() == maker:
        shutil.rmtree(path, ignore_errors=True)


def _is_there(file: int, path: str) -> bool:
    try:
        return os.path.samestat(os.fstat(file), os.stat(path))
    except FileNotFoundError:
        return False


def _numbers(path: str) -> list[int]:
    """Those who came."""
    return [int(name.rpartition("-")[2]) for name in os.listdir(path) if name.startswith("worker-")]


def _may_join(path: str, number: int) -> bool:
    """A round that somebody has left in the middle is an earlier one: a loader that is asked again may look the same."""
    others = _numbers(path)
    return number not in others and all(_is_alive(path, other) or _is_done(path, other) for other in others)


def _is_alive(path: str, number: int) -> bool:
    with ExitStack() as stack:
        worker = opened(f"{path}/worker-{number}", os.O_RDONLY, stack)
        try:
            fcntl.flock(worker, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        return False


def _is_done(path: str, number: int) -> bool:
    with open(f"{path}/worker-{number}", "rb") as worker:
        return worker.read() == _DONE


def _join(path: str, number: int, enter: Callable[[str, ExitStack], T]) -> Round[T]:
    with ExitStack() as stack:
        alive = opened(f"{path}/worker-{number}", os.O_RDWR | os.O_CREAT, stack)
        fcntl.flock(alive, fcntl.LOCK_EX)
        shared = enter(path, stack)
        return Round(path, stack.pop_all(), alive, shared)


def opened(path: str, flags: int, stack: ExitStack) -> int:
    """A descriptor that is open as long as the stack."""
    file = os.open(path, flags | os.O_CLOEXEC, 0o600)
    stack.callback(os.close, file)
    return file
