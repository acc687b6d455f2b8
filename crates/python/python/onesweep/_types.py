"""What functions take, for type checkers."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from typing import Literal, TypeAlias, TypedDict

from ._errors import Error

Text: TypeAlias = str | os.PathLike[str]
TextPaths: TypeAlias = Text | int | Iterable[Text] | list[int]
"""Paths, or open descriptors, which stay the caller's."""
Bytes: TypeAlias = bytes | os.PathLike[bytes]
BytesPaths: TypeAlias = Bytes | Iterable[Bytes]
Size: TypeAlias = int | str
"""Bytes, or a text like "256M" (powers of 1024) or "1GB" (of 1000)."""
OnError: TypeAlias = Callable[[Error], object] | None
Order: TypeAlias = Literal[
    "auto", "fragment", "first-extent", "inode", "inode-per-directory", "first-extent-per-directory", "directory"
]
Strategy: TypeAlias = Literal["vanilla", "unmerged", "merged"]
Kind: TypeAlias = Literal["file", "directory", "symlink", "fifo", "socket", "char-device", "block-device"]
ReaderOrder: TypeAlias = Literal["readdir", "inode", "name"] | None
Algorithm: TypeAlias = Literal["blake3", "sha256", "md5"] | None


class Options(TypedDict, total=False):
    """How is read; None is as if it were left out. docs/options.md of the repository has more about each."""

    budget: Size | None
    large: Size | None
    catalog_limit: Size | None
    order: Order | None
    strategy: Strategy | None
    reassembly: Literal["auto", "deferred", "on-demand", "first-fit"] | None
    threshold: Size | None
    metadata: Literal["walk", "auto", "tables"] | None
    entries: Literal["files", "all"] | None
    cache: Literal["untouched", "fill"] | None
    device: bool | None
    snapshot: bool | None
    freeze_limit: float | None
    one_file_system: bool | None
    follow_roots: bool | None
    gitignore: bool | None
    recursive: bool | None
    exclude: str | bytes | Iterable[str | bytes] | None
    part: tuple[int, int] | tuple[int, int, int] | None
    xattrs: bool | None
    ignore_cache: bool | None
    addresses: bool | None
    force_dirty: bool | None
    logdev: Text | Bytes | None
    rtdev: Text | Bytes | None
    lost: bool | None
    bwlimit: Size | None
    idle: bool | None
    queue_depth: int | None
    one_at_a_time: bool | None
    in_batches: bool | None
    gap: Size | None
    max_request: Size | None
    disk: str | None
    base: Text | Bytes | None
