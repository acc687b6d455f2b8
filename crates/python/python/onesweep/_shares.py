"""Shares: a plan cut into pieces that lie side by side on a disk, each of them for one reader."""

from __future__ import annotations

import heapq
import os
import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from operator import itemgetter
from typing import TypeAlias

from . import _onesweep
from ._errors import Error, RootError
from ._onesweep import File, Reader
from ._records import PlannedFile
from ._types import Options

_FILES_MAX = 1 << 16

_WINDOWS_MAX = 1 << 12

_BYTES_OF_FILE = 512
"""A planned file is reckoned to take so many, with its path."""

_SHARE_OF_MEMORY = 4

_BY_ADDRESS = ("fragment", "first-extent")

Names: TypeAlias = dict[tuple[int, int], list[str]]
"""Names of files that were given by another one, by device and inode; the next one last."""


@dataclass(frozen=True)
class DiskFiles:
    """What lies on one disk, in the order in which it is read."""

    disk: str
    order: str
    files: list[PlannedFile[str]]

    @property
    def seeks(self) -> bool:
        return self.order != "directory"


@dataclass(frozen=True)
class Planned:
    disks: list[DiskFiles]
    errors: list[Error]


def planned(roots: list[str], options: Options) -> Planned | None:
    """What there is, by disks, cached or not. Where there are more names than the catalogue holds, the tree is looked at in as
    many windows as that takes, each with a part of its names. Nothing when the directories alone don't fit."""
    whole = _window(roots, options)
    if whole is not None:
        return whole
    index, of, seed = (*(options.get("part") or (0, 1)), 0)[:3]
    windows = 1
    first = None
    # A part that doesn't fit is known soon: its plan ends where the catalogue is full.
    while first is None:
        windows *= 2
        if not _is_possible(windows, windows * of):
            return None
        first = _window(roots, {**options, "part": (windows * index, windows * of, seed)})
    found = [first]
    room = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // _SHARE_OF_MEMORY // _BYTES_OF_FILE - _number(first)
    # Parts are not quite as large as each other. One that doesn't fit is the two of twice as many that have its files.
    left = [(number, windows) for number in range(windows - 1, 0, -1)]
    while left:
        number, windows = left.pop()
        window = _window(roots, {**options, "part": (windows * index + number, windows * of, seed)})
        if window is not None:
            found.append(window)
            room -= _number(window)
            if room < 0:
                # Else the process would be killed for its memory, and begin anew.
                raise MemoryError("there are more files than a plan has memory for on this machine; name parts of the tree")
        elif _is_possible(2 * windows, 2 * windows * of):
            left += [(2 * number + 1, 2 * windows), (2 * number, 2 * windows)]
        else:
            return None
    return _together(found)


def _number(plan: Planned) -> int:
    return sum(len(disk.files) for disk in plan.disks)


def _is_possible(windows: int, parts: int) -> bool:
    return windows <= _WINDOWS_MAX and parts < 1 << 32


def _together(windows: list[Planned]) -> Planned:
    """The order of each disk, whichever window had the file, so that all shares together are one sweep of it."""
    by_disk: dict[str, list[DiskFiles]] = {}
    errors: dict[tuple[type[Error], str], Error] = {}
    for window in windows:
        for files in window.disks:
            by_disk.setdefault(files.disk, []).append(files)
        # A directory that can't be read is told of by each.
        for error in window.errors:
            errors.setdefault((type(error), str(error)), error)
    return Planned([_one_disk(disk, parts) for disk, parts in by_disk.items()], list(errors.values()))


def _one_disk(disk: str, parts: list[DiskFiles]) -> DiskFiles:
    order = next((part.order for part in parts if part.seeks), "directory")
    # Each is in order already; where nothing turns that is the order of the directories, and one may come after the other.
    if order == "directory":
        return DiskFiles(disk, order, [file for part in parts for file in part.files])
    if order in _BY_ADDRESS:
        by_place = heapq.merge(*(part.files for part in parts), key=lambda file: file.address or 0)
        return DiskFiles(disk, order, list(by_place))
    # By what it goes isn't told. Names are dealt out by chance, so that half of each part is on the first half of the disk.
    placed = heapq.merge(*(_placed(part.files) for part in parts), key=itemgetter(0))
    return DiskFiles(disk, order, [file for _, file in placed])


def _placed(files: list[PlannedFile[str]]) -> list[tuple[float, PlannedFile[str]]]:
    return [(number / len(files), file) for number, file in enumerate(files)]


def _window(roots: list[str], options: Options) -> Planned | None:
    """The same of what the catalogue holds at a time; nothing when that isn't all."""
    uncached: Options = {"ignore_cache": True, **options}
    with _onesweep.plan(roots, **uncached) as plan:
        if plan.is_partial:
            return None
        orders = {disk.disk: disk.order for disk in plan.disks}
        by_disk: dict[str, list[PlannedFile[str]]] = {}
        for file in plan.files():
            by_disk.setdefault(file.disk, []).append(file)
        return Planned([DiskFiles(disk, orders.get(disk, "inode"), files) for disk, files in by_disk.items()], plan.errors)


def groups(
    files: Iterable[PlannedFile[str]], limit: int, bytes_of: Callable[[PlannedFile[str]], int]
) -> Iterator[list[PlannedFile[str]]]:
    """Files that follow each other, together no more than so many bytes unless it is one."""
    group: list[PlannedFile[str]] = []
    total = 0
    for file in files:
        size = bytes_of(file)
        if group and (total + size > limit or len(group) >= _FILES_MAX):
            yield group
            group, total = [], 0
        group.append(file)
        total += size
    if group:
        yield group


def packed(files: Iterable[PlannedFile[str]]) -> bytes:
    return zlib.compress(b"\0".join(os.fsencode(file.path) for file in files))


def unpacked(paths: bytes) -> list[str]:
    return [os.fsdecode(path) for path in zlib.decompress(paths).split(b"\0")]


def every_name(reader: Reader[str], onerror: Callable[[Error], object] | None, options: Options) -> Iterator[File[str]]:
    """What a sweep gives, and after that the further names of its files, each as a file."""
    with reader:
        yield from with_further_names(reader, onerror, options)


def with_further_names(
    found: Iterable[File[str]], onerror: Callable[[Error], object] | None, options: Options
) -> Iterator[File[str]]:
    """The same of files that come otherwise."""
    waiting: Names = {}
    yield from _firsts(found, waiting)
    # Names of one file that are read together are one file again, so each round gives the next name of each, and looks up no other.
    while waiting:
        names = [of.pop() for of in waiting.values()]
        waiting = {by: of for by, of in waiting.items() if of}
        for start in range(0, len(names), _FILES_MAX):
            some = names[start : start + _FILES_MAX]
            inside = {name for name in some if _is_in_image(name, options)}
            for in_images in (False, True):
                alike = [name for name in some if (name in inside) == in_images]
                yield from _firsts(read(alike, onerror, options, in_images=in_images), waiting)


def _is_in_image(name: str, options: Options) -> bool:
    """Whether it is that of a file in an image (``disk.img:/home/file``), which has no such path."""
    return ":/" in name and not os.path.lexists(os.path.join(os.fsdecode(options.get("base") or ""), name))


def _firsts(found: Iterable[File[str]], waiting: Names) -> Iterator[File[str]]:
    """Each file by its first name; the others wait, by their file."""
    for file in found:
        further = [*reversed(file.links)]
        if file.linked_to is not None:
            further.append(file.path)
        if further:
            waiting.setdefault((file.stat.st_dev, file.stat.st_ino), []).extend(further)
        if file.linked_to is None:
            yield file


def read(
    paths: list[str], onerror: Callable[[Error], object] | None, options: Options, *, in_images: bool = False
) -> Iterator[File[str]]:
    """Files of a share in the order of the disk. What was a file when it was planned is read as nothing else:
    not as the image of a disk, nor as the directory that may be there now."""
    if not paths:
        return
    alone: Options = {**options, "recursive": False}
    if not in_images:
        alone["metadata"] = "walk"
    try:
        reader = _onesweep.read(paths, onerror=onerror, **alone)
    except RootError as error:
        if onerror is None:
            raise
        # None is there any more. The exception tells of one.
        if len(paths) == 1:
            onerror(error)
            return
        for path in paths:
            yield from read([path], onerror, options, in_images=in_images)
        return
    with reader:
        yield from reader
