"""What a sweep is ahead of those it reads for: one lane for whoever asks first, or one for each of them."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable
from typing import Literal, TypeAlias

from ._errors import Error
from ._onesweep import File

Failed: TypeAlias = tuple[Literal["told"], Error] | tuple[Literal["raised"], Exception]
Other: TypeAlias = tuple[Literal["stream"], str] | Failed
"""A file that is to be read at that path, or why one failed, or the sweep."""
Item: TypeAlias = File[str] | Other

_MESSAGE_BYTES = 256 << 10
_MESSAGE_FILES = 16

_SHARED_BYTES = 1 << 20
_SHARED_FILES = 64
_DEALT_BYTES = 64 << 20
_DEALT_FILES = 1 << 14
"""A loader takes a batch of each worker by turns: so much may wait for the others meanwhile."""


class Ahead:
    """What has come and was not taken yet, between the thread that sweeps and the one that gives.

    In one lane is what counts against the budget of the sweep, so it is not much. With more lanes files are dealt out by turns:
    who gets which is decided by the order of the sweep alone, and what waits there is beside the budget. ``wake`` is called when
    there is something where nothing was.
    """

    def __init__(self, lanes: int, wake: Callable[[], object]) -> None:
        self._lanes: list[deque[tuple[Item, int]]] = [deque() for _ in range(lanes)]
        self._is_dealt = lanes > 1
        self._max_bytes, self._max_files = (_DEALT_BYTES, _DEALT_FILES) if self._is_dealt else (_SHARED_BYTES, _SHARED_FILES)
        self._turn = 0
        self._bytes = self._files = 0
        self._hungry: set[int] = set()
        self._left: set[int] = set()
        self._is_over = False
        self._changed = threading.Condition()
        self._wake = wake

    def put(self, item: Item) -> None:
        """Waits while there is much; no longer than until somebody has nothing. Who has enough then reads its own by the path."""
        if self._is_dealt:
            item = _apart(item)
        size = _size(item)
        with self._changed:
            lane = self._turn % len(self._lanes)
            if not _is_failure(item):
                self._turn += 1
            self._changed.wait_for(lambda: self._has_room or self._hungry or lane in self._left)
            if lane in self._left:
                return
            if not self._has_room and lane not in self._hungry and isinstance(item, File):
                item, size = ("stream", item.path), 0
            self._lanes[lane].append((item, size))
            self._bytes += size
            self._files += 1
            if len(self._lanes[lane]) == 1:
                self._hungry.discard(lane)
                self._wake()

    def end(self) -> None:
        with self._changed:
            self._is_over = True
            self._wake()

    def take(self, number: int) -> list[Item]:
        """What there is for that worker, for one message."""
        taken: list[Item] = []
        total = 0
        with self._changed:
            at = number % len(self._lanes)
            lane = self._lanes[at]
            while lane and len(taken) < _MESSAGE_FILES and (not taken or total + lane[0][1] <= _MESSAGE_BYTES):
                item, size = lane.popleft()
                taken.append(item)
                total += size
            self._forget(len(taken), total)
            if not taken:
                self._hungry.add(at)
            self._changed.notify()
        return taken

    def leave(self, number: int) -> None:
        """That worker takes nothing any more. What was dealt to it is nobody's."""
        if not self._is_dealt:
            return
        with self._changed:
            lane = self._lanes[number]
            self._forget(len(lane), sum(size for _, size in lane))
            lane.clear()
            self._left.add(number)
            self._hungry.discard(number)
            self._changed.notify()

    def has_given(self, numbers: Iterable[int]) -> bool:
        """Nothing will come for them any more."""
        with self._changed:
            return self._is_over and not any(self._lanes[number % len(self._lanes)] for number in numbers)

    @property
    def is_over(self) -> bool:
        return self.has_given(range(len(self._lanes)))

    @property
    def _has_room(self) -> bool:
        return self._bytes < self._max_bytes and self._files < self._max_files

    def _forget(self, files: int, size: int) -> None:
        self._files -= files
        self._bytes -= size


def _size(item: Item) -> int:
    return item.size if isinstance(item, File) and item.is_in_memory else 0


def _is_failure(item: Item) -> bool:
    return not isinstance(item, File) and item[0] != "stream"


def _apart(item: Item) -> Item:
    """Without what the sweep has to wait for: its memory, and a file that is open."""
    if not isinstance(item, File):
        return item
    if not item.is_in_memory:
        return ("stream", item.path)
    item.take()
    return item
