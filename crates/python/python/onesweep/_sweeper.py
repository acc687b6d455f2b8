"""A process that sweeps for others: each of them asks for files and gets the next ones, with their content, by a socket.

Who asks gets what comes next, so nobody waits for files that are kept for somebody who doesn't ask; or files are dealt out by turns,
so that each of them gets the same ones when it is done again. It ends with the sweep, or when nobody is there any more, in whatever
way they went.
"""

from __future__ import annotations

import os
import pickle
import selectors
import signal
import socket
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from . import _onesweep, _shares
from ._ahead import Ahead, Item, Other
from ._errors import Error
from ._onesweep import File, Reader
from ._types import Options

Head: TypeAlias = tuple[Literal["file"], tuple[Any, ...], int] | Other
"""A file whose content comes: what is known of it, and how many bytes."""

LENGTH_BYTES = 8
"""A message is the length of its heads, the heads, and the content of their files one after the other."""
NUMBER_BYTES = 4
"""A worker tells its number first."""
ASK = b"?"
OVER = b"over"
"""Stands in a file when all has been given, so that it differs from a process that was killed."""

_BEGAN = 0
_PATIENCE_S = 2.0
"""So long it waits for those who haven't come yet: who comes first would have all of a small tree."""


@dataclass(frozen=True)
class Task:
    """What is to be swept, and for how many."""

    roots: list[str]
    options: Options
    workers: int
    is_dealt: bool = False


def _sweep(reader: Reader[str], told: Callable[[Error], None], options: Options, ahead: Ahead) -> None:
    try:
        for file in _shares.every_name(reader, told, options):
            ahead.put(file)
    except Exception as error:
        ahead.put(("raised", error))
    ahead.end()


def _sweep_or_die(reader: Reader[str], told: Callable[[Error], None], options: Options, ahead: Ahead) -> None:
    """What can't be handed over, as a panic of the library's, ends the process, which workers take for no end of the sweep."""
    try:
        _sweep(reader, told, options, ahead)
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
        os._exit(1)


class _Clients:
    """Those who are there, and those of them who wait for an answer."""

    def __init__(self, listener: socket.socket, come: socket.socket, ahead: Ahead, workers: int) -> None:
        self._listener, self._come, self._ahead, self._workers = listener, come, ahead, workers
        self._selector = selectors.DefaultSelector()
        self._selector.register(listener, selectors.EVENT_READ)
        self._selector.register(come, selectors.EVENT_READ)
        # It is closed by who began this process once it has come, or by its death.
        self._selector.register(_BEGAN, selectors.EVENT_READ)
        self._has_been_let_go = False
        self._there: set[socket.socket] = set()
        self._numbers: dict[socket.socket, int] = {}
        self._waiting: list[socket.socket] = []
        self._came = 0
        self._begins = time.monotonic() + _PATIENCE_S

    def serve(self) -> bool:
        """True when all was given, false when nobody is there any more."""
        while True:
            self._look(None if self._may_begin else max(0.0, self._begins - time.monotonic()))
            if self._has_been_let_go and not self._there:
                return False
            if self._may_begin:
                self._give()
                if self._ahead.is_over:
                    return True

    @property
    def _may_begin(self) -> bool:
        return self._came >= self._workers or time.monotonic() >= self._begins

    def _look(self, patience: float | None) -> None:
        # Who has come is known before it is known that nobody else has to.
        for key, _ in sorted(self._selector.select(patience), key=lambda event: event[0].fileobj == _BEGAN):
            if key.fileobj is self._listener:
                client, _ = self._listener.accept()
                self._selector.register(client, selectors.EVENT_READ)
                self._there.add(client)
                self._came += 1
            elif key.fileobj == _BEGAN:
                self._selector.unregister(_BEGAN)
                self._has_been_let_go = True
            elif key.fileobj is self._come:
                self._come.recv(4096)
            elif isinstance(key.fileobj, socket.socket):
                self._hear(key.fileobj)

    def _hear(self, client: socket.socket) -> None:
        length = len(ASK) if client in self._numbers else NUMBER_BYTES
        try:
            heard = client.recv(length, socket.MSG_WAITALL)
        except OSError:
            heard = b""
        if len(heard) < length:
            self._leave(client)
        elif client in self._numbers:
            self._waiting.append(client)
        else:
            self._numbers[client] = int.from_bytes(heard, "little")

    def _give(self) -> None:
        """To each of those who wait, in the order in which they asked, as long as there is something for it."""
        for client in list(self._waiting):
            number = self._numbers[client]
            items = self._ahead.take(number)
            # Who has all waits for those who haven't come yet: when nobody was there, they would find nobody.
            if items or (self._ahead.has_given([number]) and self._came >= self._workers):
                self._waiting.remove(client)
                self._answer(client, items)

    def _leave(self, client: socket.socket) -> None:
        self._selector.unregister(client)
        self._there.discard(client)
        if (number := self._numbers.pop(client, None)) is not None:
            self._ahead.leave(number)
        if client in self._waiting:
            self._waiting.remove(client)
        client.close()

    def _answer(self, client: socket.socket, items: list[Item]) -> None:
        try:
            for part in _message(items):
                client.sendall(part)
        except OSError:
            # Its process has ended, of which others are told by its loader.
            self._leave(client)


def _message(items: list[Item]) -> Iterator[bytes | memoryview]:
    heads: list[Head] = []
    contents: list[memoryview] = []
    for item in items:
        if not isinstance(item, File):
            heads.append(item)
        elif item.is_in_memory:
            content = item.data
            heads.append(("file", _onesweep._parts_of(item), len(content)))
            contents.append(content)
        else:
            heads.append(("stream", item.path))
    packed = pickle.dumps(heads, pickle.HIGHEST_PROTOCOL)
    start = len(packed).to_bytes(LENGTH_BYTES, "little") + packed
    if len(contents) == 1:
        yield start
        yield contents[0]
    else:
        yield b"".join([start, *contents])


def main(listening: int, over: int) -> None:
    """The process: takes its task from standard input, and tells there is a sweep on standard output, or why there is none."""
    # Who ends the others ends this one, too.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    listener = socket.socket(fileno=listening)
    task: Task = pickle.load(sys.stdin.buffer)
    come, wakes = socket.socketpair()
    ahead = Ahead(task.workers if task.is_dealt else 1, lambda: wakes.send(b"+"))
    reader: Reader[str] | None = None
    failure: Exception | None = None

    def told(error: Error) -> None:
        ahead.put(("told", error))

    try:
        reader = _onesweep.read(task.roots, onerror=told, **task.options)
    except Exception as error:
        failure = error
    with os.fdopen(os.dup(1), "wb") as answer:
        os.dup2(os.open(os.devnull, os.O_RDWR), 1)
        pickle.dump(failure, answer)
    if reader is None:
        return
    options: Options = {**task.options, "part": None}
    threading.Thread(target=_sweep_or_die, args=(reader, told, options, ahead), daemon=True).start()
    if _Clients(listener, come, ahead, task.workers).serve():
        os.pwrite(over, OVER, 0)
    sys.stderr.flush()
    # There may be a request to the disk that nobody waits for.
    os._exit(0)
