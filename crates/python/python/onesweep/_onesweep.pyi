"""What is built of Rust. `docs/python.md` has the guide."""

import os
from types import TracebackType
from typing import Any, AnyStr, Generic, Literal, Self, Unpack, final, overload

from ._errors import Error
from ._records import Directory, DirectoryTotals, DiskPlan, Estimate, Layout, PlannedFile, Sum, Summary
from ._types import (
    Algorithm,
    Bytes,
    BytesPaths,
    Kind,
    OnError,
    Options,
    Order,
    ReaderOrder,
    Size,
    Strategy,
    Text,
    TextPaths,
)

__version__: str

@final
class File(Generic[AnyStr]):
    """One entry of a swept tree. Its content counts against the budget as long as anybody has the file or a view of it."""

    @property
    def path(self) -> AnyStr:
        """The root as it was named, and the way from there: bytes where bytes were named."""
    @property
    def open_path(self) -> AnyStr:
        """Where it can be opened: its path, or its place in the snapshot."""
    def __fspath__(self) -> AnyStr: ...
    @property
    def stat(self) -> os.stat_result:
        """The attributes when it was looked at, without blocks."""
    @property
    def size(self) -> int: ...
    @property
    def kind(self) -> Kind: ...
    @property
    def data(self) -> memoryview:
        """The content, without a copy and not to be changed. That of a streamed file is read now, into memory beside the budget.

        Raises NoContentError, and for streamed files ReadError and ChangedError.
        """
    @property
    def is_in_memory(self) -> bool:
        """Whether the content is in memory: that of every regular file but the streamed ones."""
    def pread(self, size: int, offset: int = 0) -> bytes:
        """Up to so many bytes of the content from there on; less at the end alone."""
    def chunks(self, size: int = 1 << 20) -> Chunks:
        """The content part by part, each of them bytes."""
    def take(self) -> None:
        """Makes the content the program's own: it leaves the budget."""
    def release(self) -> None:
        """Gives the content up. BufferError while a memoryview looks at it. The end of a with block does so, too."""
    @property
    def links(self) -> tuple[AnyStr, ...]:
        """Further names of the inode that the sweep met."""
    @property
    def linked_to(self) -> AnyStr | None:
        """The name by which the inode was handed over in an earlier part of the tree; such a file has no content."""
    @property
    def link_target(self) -> AnyStr | None:
        """Where a symbolic link points."""
    @property
    def ranges(self) -> list[tuple[int, int]]:
        """The ranges of the content that are no holes."""
    @property
    def xattrs(self) -> dict[str, bytes]:
        """Extended attributes, with xattrs=True."""
    @property
    def route(self) -> Literal["no-read", "cached", "swept", "reread", "streamed"]:
        """By which way the content came."""
    @property
    def is_closing(self) -> bool:
        """Whether it is the second coming of a directory, after everything in it."""
    @property
    def is_in_snapshot(self) -> bool: ...
    @property
    def is_dirty(self) -> bool:
        """Whether its file system was not closed."""
    @property
    def is_encrypted(self) -> bool:
        """Whether the content comes as it is encrypted on the disk."""
    def __enter__(self) -> Self: ...
    def __exit__(
        self, kind: type[BaseException] | None = ..., value: BaseException | None = ..., trace: TracebackType | None = ..., /
    ) -> None: ...
    def __buffer__(self, flags: int, /) -> memoryview: ...

@final
class Chunks:
    def __iter__(self) -> Self: ...
    def __next__(self) -> bytes: ...

@final
class Reader(Generic[AnyStr]):
    """A running sweep. Leaving its with block, or forgetting it, ends it."""

    def __iter__(self) -> Self: ...
    def __next__(self) -> File[AnyStr]: ...
    @property
    def summary(self) -> Summary:
        """What it did so far."""
    def close(self) -> None: ...
    def __enter__(self) -> Self: ...
    def __exit__(
        self, kind: type[BaseException] | None = ..., value: BaseException | None = ..., trace: TracebackType | None = ..., /
    ) -> None: ...

@final
class PlannedFiles(Generic[AnyStr]):
    def __iter__(self) -> Self: ...
    def __next__(self) -> PlannedFile[AnyStr]: ...

@final
class Plan(Generic[AnyStr]):
    """A planned sweep: looked at, then carried out once."""

    @property
    def estimate(self) -> Estimate:
        """What it costs, on all disks together."""
    def estimate_with(self, order: Order, strategy: Strategy | None = None) -> Estimate:
        """What the same files would cost in another order and by another strategy."""
    @property
    def disks(self) -> list[DiskPlan]: ...
    def files(self) -> PlannedFiles[AnyStr]:
        """The files in the order in which they will be read."""
    @property
    def errors(self) -> list[Error]:
        """What failed while the plan was made; run() hands it over, too."""
    @property
    def is_partial(self) -> bool:
        """Whether the tree was larger than the limit of names, so that this is the plan of its first part."""
    def run(self) -> Reader[AnyStr]:
        """Carries it out. ValueError the second time."""
    def close(self) -> None: ...
    def __enter__(self) -> Self: ...
    def __exit__(
        self, kind: type[BaseException] | None = ..., value: BaseException | None = ..., trace: TracebackType | None = ..., /
    ) -> None: ...

@final
class Directories(Generic[AnyStr]):
    def __iter__(self) -> Self: ...
    def __next__(self) -> Directory[AnyStr]: ...
    @property
    def total(self) -> Layout:
        """The sum of what was handed over."""
    def close(self) -> None: ...
    def __enter__(self) -> Self: ...
    def __exit__(
        self, kind: type[BaseException] | None = ..., value: BaseException | None = ..., trace: TracebackType | None = ..., /
    ) -> None: ...

@final
class Sums(Generic[AnyStr]):
    def __iter__(self) -> Self: ...
    def __next__(self) -> Sum[AnyStr]: ...
    def close(self) -> None: ...
    def __enter__(self) -> Self: ...
    def __exit__(
        self, kind: type[BaseException] | None = ..., value: BaseException | None = ..., trace: TracebackType | None = ..., /
    ) -> None: ...

@final
class Table:
    """Rows for names, by Arrow's PyCapsule interface: ``pyarrow.table(t)``, ``polars.DataFrame(t)``."""

    @property
    def num_rows(self) -> int: ...
    @property
    def column_names(self) -> list[str]: ...
    @property
    def nbytes(self) -> int: ...
    def __len__(self) -> int: ...
    def __arrow_c_schema__(self) -> object: ...
    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object: ...



def _parts_of(file: File[str]) -> tuple[Any, ...]:
    """What is known of a regular file but its content, to be pickled."""

def _file_of(parts: tuple[Any, ...], content: bytes) -> File[str]:
    """The file again, in another process."""

def _bytes_of(value: Size) -> int:
    """A number of bytes, or a text like "256M"."""

@overload
def read(paths: BytesPaths, *, onerror: OnError = None, **options: Unpack[Options]) -> Reader[bytes]: ...
@overload
def read(paths: TextPaths, *, onerror: OnError = None, **options: Unpack[Options]) -> Reader[str]:
    """Reads all named files, and all below the named directories, in the order of the disk.

    onerror is called with each file that failed, and the sweep goes on. Without it the exception is raised by the iteration; who
    catches it can go on with next(). What ends a sweep is raised in any case.

    Raises RootError, DeviceError, SnapshotError, SystemError; ValueError and TypeError for arguments that can't be.
    """

@overload
def walk(paths: BytesPaths, *, onerror: OnError = None, **options: Unpack[Options]) -> Reader[bytes]: ...
@overload
def walk(paths: TextPaths, *, onerror: OnError = None, **options: Unpack[Options]) -> Reader[str]:
    """As read, without content: names and attributes. entries="all" gives directories and all else, too."""

@overload
def plan(paths: BytesPaths, *, onerror: OnError = None, **options: Unpack[Options]) -> Plan[bytes]: ...
@overload
def plan(paths: TextPaths, *, onerror: OnError = None, **options: Unpack[Options]) -> Plan[str]:
    """Walks, maps and plans; reads no content."""

@overload
def layout(
    paths: BytesPaths, reader: ReaderOrder = None, *, onerror: OnError = None, **options: Unpack[Options]
) -> Directories[bytes]: ...
@overload
def layout(
    paths: TextPaths, reader: ReaderOrder = None, *, onerror: OnError = None, **options: Unpack[Options]
) -> Directories[str]:
    """How the files directly in each directory lie for who reads them one by one in that order, and how packed ones would."""

@overload
def sum(
    paths: BytesPaths,
    algorithm: Algorithm = None,
    *,
    threads: int | None = None,
    onerror: OnError = None,
    **options: Unpack[Options],
) -> Sums[bytes]: ...
@overload
def sum(
    paths: TextPaths,
    algorithm: Algorithm = None,
    *,
    threads: int | None = None,
    onerror: OnError = None,
    **options: Unpack[Options],
) -> Sums[str]:
    """The digest of each file, as hashing ends. Default BLAKE3, on as many threads as there are processors."""

@overload
def du(
    path: Bytes,
    *,
    socket: Text | Bytes | None = None,
    freshness: Literal["exact", "cached", "synced"] = "exact",
    one_file_system: bool = False,
) -> DirectoryTotals[bytes]: ...
@overload
def du(
    path: Text,
    *,
    socket: Text | Bytes | None = None,
    freshness: Literal["exact", "cached", "synced"] = "exact",
    one_file_system: bool = False,
) -> DirectoryTotals[str]:
    """What a directory comes to: asked of `onesweep serve` without a crawl, else walked. With a socket named, that server has to
    answer: ServiceError. What is mounted below is in it unless `one_file_system`, told in the same way; there what a server doesn't
    track is walked."""

def table(paths: TextPaths | BytesPaths, *, onerror: OnError = None, **options: Unpack[Options]) -> Table:
    """The metadata of a walk, a row for each name."""
