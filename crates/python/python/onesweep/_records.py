"""Figures, as they are told. All numbers of bytes are bytes, all times seconds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import AnyStr, Generic


@dataclass(frozen=True, slots=True)
class Summary:
    """What a sweep did so far."""

    files: int = 0
    """Regular files handed over."""
    others: int = 0
    """Entries of other kinds handed over."""
    bytes: int = 0
    """Bytes of the files handed over."""
    errors: int = 0
    """Files that failed, and other failures."""
    cached_files: int = 0
    """Files that came from the page cache."""
    cached_bytes: int = 0
    """Their bytes."""
    streamed_files: int = 0
    """Files that are streamed."""
    streamed_bytes: int = 0
    """Their bytes."""
    reread_files: int = 0
    """Files read again through the file system."""
    reread_bytes: int = 0
    """Their bytes."""
    through_files: int = 0
    """Of a device: files that went through the file system from the start."""
    through_bytes: int = 0
    """Their bytes."""
    unmapped_files: int = 0
    """Files whose place is not known."""
    dirty_files: int = 0
    """Files of file systems that were not closed."""
    encrypted_files: int = 0
    """Files that came as they are encrypted on the disk."""
    requests: int = 0
    """Read requests."""
    bytes_read: int = 0
    """Bytes read from disk, gaps included."""
    peak_budget: int = 0
    """The most that the budget ever held."""
    taken_over_bytes: int = 0
    """Bytes that left the budget, since the program keeps them."""
    windows: int = 0
    """Parts that the tree was swept in."""
    cancelled: bool = False
    """Whether it ended early."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """What a plan costs."""

    disk: str
    """The disk model that the time is for."""
    files: int
    """Files with at least one byte to read."""
    fragments: int
    """Fragments."""
    without_address: int
    """Fragments whose place is not known."""
    requests: int
    """Reads."""
    seeks: int
    """Reads that don't begin where the one before ended."""
    useful: int
    """Bytes of the blocks that files have."""
    read: int
    """Bytes that come from the disk."""
    wasted: int
    """Those of them in gaps that are read through."""
    copied: int
    """Bytes that aren't read, since files share them."""
    passes: int
    """Runs of rising addresses."""
    bins: int
    """Passes that leave files to the next."""
    clean_ups: int
    """How often waiting files are completed before others begin."""
    peak_memory: int
    """The most bytes that files hold while they wait."""
    peak_unlimited: int
    """What that would be without a budget."""
    seconds: float
    """The time of the disk model; of several disks, which work side by side, that of the slowest."""


@dataclass(frozen=True, slots=True)
class DiskPlan:
    """The plan of one disk."""

    disk: str
    """The disks below, by their kernel names, joined with ``+``."""
    order: str
    """The order that was chosen, never auto."""
    remark: str | None
    """Why it isn't by fragment, when addresses mean nothing or the disk has no seeks."""
    estimate: Estimate
    """What it costs."""


@dataclass(frozen=True, slots=True)
class PlannedFile(Generic[AnyStr]):
    """A file of a plan, in the order of reading."""

    path: AnyStr
    """The path."""
    disk: str
    """The disk, by its kernel name."""
    address: int | None
    """The address on the device that gives it its place, if it is known."""
    fragments: int
    """Fragments."""
    size: int
    """Bytes."""
    is_dirty: bool
    """Whether its file system was not closed."""
    is_encrypted: bool
    """Whether it comes as it is encrypted on the disk."""


@dataclass(frozen=True, slots=True)
class Score:
    """Neighbouring blocks, and those of them that are neighbours on the device."""

    contiguous: int
    """Pairs that are neighbours on the device."""
    pairs: int
    """Pairs."""

    @property
    def ratio(self) -> float | None:
        """The first by the second, 0 to 1; None where there is no pair."""
        return self.contiguous / self.pairs if self.pairs else None


@dataclass(frozen=True, slots=True)
class LayoutSide:
    """As files lie, or as they would lie packed."""

    fragments: int
    """Runs of blocks."""
    layout: Score
    """The layout score: how much of each file lies in one piece."""
    dynamic: Score
    """The dynamic score: how much of what is read one after the other lies side by side."""
    seeks: int
    """Seeks of who reads file by file."""
    seconds: float
    """The time of the disk model for that."""


@dataclass(frozen=True, slots=True)
class Layout:
    """How the files of a directory lie, or those of several. From ``blocks`` on, files whose place is known count."""

    files: int
    """Files, each inode once."""
    placed_files: int
    """Those with blocks whose place is known."""
    fragmented_files: int
    """Those of them in more than one piece."""
    compressed_files: int
    """Compressed files."""
    unknown_files: int
    """Files whose place is not known."""
    blocks: int
    """Blocks."""
    bytes: int
    """Bytes of the blocks."""
    before: LayoutSide
    """As they lie."""
    packed: LayoutSide
    """In one piece each, side by side."""


@dataclass(frozen=True, slots=True)
class Directory(Generic[AnyStr]):
    """A directory with the files directly in it."""

    path: AnyStr
    """Its path."""
    disk: str
    """The disks below, by their kernel names."""
    device: str
    """The device of its file system, by its kernel name."""
    fs_type: str
    """The type of its file system."""
    block_bytes: int
    """Bytes of a block."""
    layout: Layout
    """How its files lie."""


@dataclass(frozen=True, slots=True)
class Sum(Generic[AnyStr]):
    """A name and the digest of its content."""

    path: AnyStr
    """The path."""
    digest: str
    """The digest, in hexadecimal."""


@dataclass(frozen=True, slots=True)
class Totals:
    """Sums over a directory."""

    bytes: int
    """Bytes as sizes tell them, but for directories."""
    directory_bytes: int
    """Bytes of directories as their sizes tell them."""
    allocated: int
    """Bytes that are allocated: what ``du`` tells."""
    freed: int
    """Bytes that removing it would free; 0 in a partial answer."""
    files: int
    """Regular files."""
    directories: int
    """Directories."""
    others: int
    """Everything else."""


@dataclass(frozen=True, slots=True)
class DirectoryTotals(Generic[AnyStr]):
    """What a directory comes to."""

    path: AnyStr
    """Its path."""
    total: Totals
    """With all that is below."""
    own: Totals
    """Without the directories in it."""
    newest: int | None
    """The newest change of a content, in seconds since 1970."""
    largest: int | None
    """Bytes of the largest file."""
    source: str
    """Who says so: ``server`` or ``walk``. What is mounted below may have been walked all the same."""
    is_exact: bool
    """Whether nothing is known to have changed since it was counted."""
    is_partial: bool
    """Whether something was left out that the user may not see."""
    harvested_at: int | None
    """When the server counted it, in seconds since 1970, or the first of what is mounted below; None for a walk."""
    unreadable: int
    """Directories below that could not be read."""
