"""Files of a fleet as a data set of Ray Data: each node sweeps its own disks, and rows go where the data set goes.

    rows = onesweep.ray.read("/srv/mail")                               # of every node: path, bytes, attributes
    sums = onesweep.ray.read("/srv/mail", lambda f: {"path": f.path, "sha256": hashlib.sha256(f.data).hexdigest()})
    sums.write_parquet("/shared/sums")

The files of a node are planned there, dealt out to shares in the order of its disk, and each share is a task that is pinned to
the node. docs/ray.md tells what happens when a node is lost.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from operator import attrgetter
from typing import Any, TypeAlias, Unpack

from . import _onesweep, _shares
from ._errors import Error
from ._onesweep import File
from ._types import Options, Size, Text

try:
    import pyarrow as pa
    import ray
    import ray.data
    from ray.data.block import BlockAccessor, BlockMetadata
    from ray.data.datasource import Datasource, ReadTask
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy
except ImportError as error:
    raise ImportError("onesweep.ray needs Ray Data, which is not installed; with pip: pip install 'ray[data]'") from error

__all__ = ["LABEL", "Holder", "Share", "content", "failure", "holders", "read"]

LABEL = "onesweep-files"
"""The label of a node that says whose files it has: ``ray start --labels onesweep-files=mail-1``."""

Rows: TypeAlias = "Mapping[str, Any] | Iterable[Mapping[str, Any]] | pa.Table | None"
"""A row, rows, or nothing."""

_STAT = ["mode", "ino", "dev", "nlink", "uid", "gid", "size", "atime_ns", "mtime_ns", "ctime_ns"]
_SCHEMA = pa.schema(
    [
        ("host", pa.string()),
        ("path", pa.string()),
        ("path_bytes", pa.binary()),
        ("bytes", pa.large_binary()),
        ("stat", pa.struct([(name, pa.int64() if name.endswith("_ns") else pa.uint64()) for name in _STAT])),
        ("error", pa.string()),
    ]
)

_AT_ONCE = 4


@dataclass(frozen=True)
class Holder:
    """Who has files: a node, or all nodes with the same label, which mount the same ones."""

    name: str
    """The label, else the name of the host, with the node's number where several have that name."""
    node_id: str | None
    """The node; None for who has a label, since it may be another one after a restart."""


def holders() -> list[Holder]:
    """All that have files now: each label once, and each node without one."""
    # As Ray Data does it by itself, for a program that has not: the cluster of RAY_ADDRESS, or one on this machine.
    if not ray.is_initialized():
        ray.init()
    alive = [node for node in ray.nodes() if node["Alive"]]
    labelled = {node["Labels"][LABEL] for node in alive if LABEL in node["Labels"]}
    others = [node for node in alive if LABEL not in node["Labels"]]
    named = Counter(node["NodeManagerHostname"] for node in others)
    found = [Holder(name, None) for name in sorted(labelled)]
    for node in others:
        host, number = node["NodeManagerHostname"], node["NodeID"]
        found.append(Holder(host if named[host] == 1 and host not in labelled else f"{host}-{number[:8]}", number))
    return found


@dataclass(frozen=True)
class Share:
    """Files of one disk that one task reads: iterate it, and they come in the order of the disk."""

    host: str
    """The holder's name."""
    disk: str
    """The disk below, by its kernel name."""
    number: int
    """From 0 on, in the order of the disk. Host, disk and number are the same when the task is run again."""
    of: int
    """How many the disk has."""
    files: int
    """Names: a file with several ones comes once for each."""
    size: int
    """Bytes of the files when they were planned."""
    _packed: bytes = field(repr=False)
    _options: Options = field(repr=False)

    @property
    def paths(self) -> list[str]:
        return _shares.unpacked(self._packed)

    def __iter__(self) -> Iterator[File[str]]:
        """The files; raises for the first one that fails."""
        return self.read(None)

    def read(self, onerror: Callable[[Error], object] | None) -> Iterator[File[str]]:
        """The files, one for each of its names; failures go to ``onerror``."""
        return _shares.with_further_names(_shares.read(self.paths, onerror, self._options), onerror, self._options)


def content(file: File[str]) -> dict[str, Any]:
    """The row that a file is unless told otherwise: ``path``, ``bytes``, ``stat``, and ``path_bytes`` where the path is no UTF-8."""
    told = file.stat
    return {**_named(file.path), "bytes": bytes(file.data), "stat": {name: getattr(told, f"st_{name}") for name in _STAT}}


def failure(error: Error) -> dict[str, Any]:
    """The row that a file is which failed, unless told otherwise: ``path`` and ``error``."""
    return {**_named(error.filename), "error": str(error)}


def _named(path: str | bytes | None) -> dict[str, Any]:
    exact = b"" if path is None else os.fsencode(path)
    text = exact.decode(errors="replace")
    return {"path": text, "path_bytes": None if text.encode() == exact else exact}


def read(
    paths: Text | Iterable[Text],
    per_file: Callable[[File[str]], Rows] | None = None,
    *,
    per_share: Callable[[Share], Rows] | None = None,
    onerror: Callable[[Error], Rows] | None = None,
    on: Iterable[str] | None = None,
    share: Size = "64M",
    at_once: int | None = None,
    num_cpus: float = 1,
    **options: Unpack[Options],
) -> ray.data.Dataset:
    """Files below the paths on each holder as rows.

    ``per_file`` makes rows of a file; it must make the same of the same file, since a task whose node is lost is run again.
    ``per_share`` makes rows of all files of a share together. ``onerror`` makes rows of a failure. Without any of them, rows are
    what ``content`` and ``failure`` make, with the name of the holder as ``host``; with one of the first two and without
    ``onerror`` a failure ends the job.

    ``on`` names the holders, all unless told otherwise. ``share`` is how many bytes of files make a share. ``at_once`` tasks read
    from one disk: one from a disk that seeks, four from others.

    The files are looked up now, and read when the data set is. Raises the exceptions of ``onesweep.plan``, and LookupError for
    holders that aren't there.
    """
    if per_file is not None and per_share is not None:
        raise TypeError("give per_file or per_share, not both")
    if per_share is not None and onerror is not None:
        raise TypeError("per_share tells Share.read of its own onerror; leave out onerror")
    roots = [os.fspath(path) for path in ([paths] if isinstance(paths, (str, os.PathLike)) else paths)]
    share_bytes = _onesweep._bytes_of(share)
    chosen = _chosen(on)
    planned = [_plan.options(num_cpus=num_cpus, **_pin(holder)).remote(holder.name, roots, share_bytes, options) for holder in chosen]
    with_default = per_file is None and per_share is None
    onerror = failure if onerror is None and with_default else onerror
    work = _Work(per_file or content, per_share, onerror, _SCHEMA if with_default else None)
    sets = []
    for holder, (disks, errors) in zip(chosen, ray.get(planned)):
        if errors and onerror is None:
            raise errors[0]
        if errors and onerror is not None:
            rows = [_rows(onerror(error), holder.name if with_default else None) for error in errors]
            sets.append(ray.data.from_blocks([_block([row for some in rows for row in some], work.schema)]))
        for disk in disks:
            source = _Disk(holder, disk.shares, work)
            tasks = at_once or (1 if disk.seeks else _AT_ONCE)
            sets.append(_read_datasource(source, min(tasks, len(disk.shares)), num_cpus, _pin(holder)))
    if not sets:
        return ray.data.from_arrow(_SCHEMA.empty_table() if with_default else pa.table({}))
    return sets[0].union(*sets[1:]) if len(sets) > 1 else sets[0]


def _read_datasource(source: _Disk, concurrency: int, num_cpus: float, pin: dict[str, Any]) -> ray.data.Dataset:
    if "label_selector" in pin:
        return ray.data.read_datasource(source, concurrency=concurrency, num_cpus=num_cpus, **pin)
    return ray.data.read_datasource(source, concurrency=concurrency, num_cpus=num_cpus, ray_remote_args=pin)


def _chosen(on: Iterable[str] | None) -> list[Holder]:
    there = {holder.name: holder for holder in holders()}
    if on is None:
        return list(there.values())
    named = [on] if isinstance(on, str) else list(on)
    missing = [name for name in named if name not in there]
    if missing:
        raise LookupError(f"no node holds the files of {', '.join(missing)}; there are {', '.join(there)}")
    return [there[name] for name in named]


def _pin(holder: Holder) -> dict[str, Any]:
    """A task waits for a node of its label; a node without one can't come back, so its tasks fail when it is lost."""
    if holder.node_id is None:
        return {"label_selector": {LABEL: holder.name}}
    return {"scheduling_strategy": NodeAffinitySchedulingStrategy(holder.node_id, soft=False)}


@dataclass(frozen=True)
class _DiskShares:
    seeks: bool
    shares: list[Share]


@ray.remote(max_retries=-1)
def _plan(host: str, roots: list[str], share_bytes: int, options: Options) -> tuple[list[_DiskShares], list[Error]]:
    """What a node has, by disks, dealt out in their order. It is kept with the driver, so that no loss of a node deals it anew."""
    plan = _shares.planned(roots, options)
    if plan is None:
        raise MemoryError(
            f"{host}: catalog_limit holds neither all directories nor a part of the names (those that are the same up to their "
            "first dot are in one part); raise it, or name parts of the tree"
        )
    dealt = []
    for disk in plan.disks:
        groups = list(_shares.groups(disk.files, share_bytes, attrgetter("size")))
        shares = [
            Share(host, disk.disk, number, len(groups), len(group), sum(file.size for file in group), _shares.packed(group), options)
            for number, group in enumerate(groups)
        ]
        dealt.append(_DiskShares(disk.seeks, shares))
    return dealt, plan.errors


@dataclass(frozen=True)
class _Work:
    per_file: Callable[[File[str]], Rows]
    per_share: Callable[[Share], Rows] | None
    onerror: Callable[[Error], Rows] | None
    schema: Any


class _Disk(Datasource):  # type: ignore[misc]
    """The shares of one disk."""

    def __init__(self, holder: Holder, shares: list[Share], work: _Work) -> None:
        super().__init__()
        self._holder, self._shares, self._work = holder, shares, work

    def get_name(self) -> str:
        return f"Sweep({self._holder.name})"

    def estimate_inmemory_data_size(self) -> int:
        return sum(share.size for share in self._shares)

    def get_read_tasks(self, parallelism: int, per_task_row_limit: int | None = None, data_context: Any = None) -> list[ReadTask]:
        # How many there are is decided by the files: whoever splits them would break the sweep.
        return [
            ReadTask(partial(_do, share, self._work), self._metadata(share), per_task_row_limit=per_task_row_limit)
            for share in self._shares
        ]

    def _metadata(self, share: Share) -> BlockMetadata:
        # Of what others make of a file or of a failure, nobody knows how many rows it is.
        is_one_each = self._work.schema is not None and self._work.onerror is failure
        rows = share.files if is_one_each else None
        return BlockMetadata(num_rows=rows, size_bytes=share.size, input_files=None, exec_stats=None)


def _do(share: Share, work: _Work) -> list[Any]:
    """One block, whole or not at all, and the same when it is made again: rows are in the order of the plan, however files came."""
    if work.per_share is not None:
        return _blocks(_rows(work.per_share(share), None), None)
    host = share.host if work.schema is not None else None
    made: dict[str, list[Any]] = {}
    onerror = work.onerror

    def complain(error: Error) -> None:
        assert onerror is not None
        made.setdefault(os.fsdecode(error.filename or b""), []).extend(_rows(onerror(error), host))

    for file in share.read(None if onerror is None else complain):
        made.setdefault(file.path, []).extend(_rows(work.per_file(file), host))
    rows = [row for path in share.paths for row in made.pop(path, [])]
    return _blocks(rows + [row for path in sorted(made) for row in made[path]], work.schema)


def _rows(made: Rows, host: str | None) -> list[Any]:
    if made is None:
        return []
    if isinstance(made, (Mapping, pa.Table)):
        made = [made]  # type: ignore[list-item]
    return [{"host": host, **row} if host is not None else row for row in made]


def _blocks(rows: list[Any], schema: Any) -> list[Any]:
    return [_block(rows, schema)] if rows else []


def _block(rows: list[Any], schema: Any) -> Any:
    if schema is not None:
        # A table of that schema leaves out what it doesn't have, without a word.
        if unknown := sorted({name for row in rows for name in row} - set(schema.names)):
            raise ValueError(
                f"onerror makes {', '.join(unknown)}, which the rows of files don't have; give per_file, too, or make {', '.join(schema.names)}"
            )
        return pa.Table.from_pylist(rows, schema=schema)
    tables = [row for row in rows if isinstance(row, pa.Table)]
    if tables:
        if len(tables) < len(rows):
            raise TypeError("make tables of all files, or rows of all")
        return pa.concat_tables(tables, promote_options="default")
    names = dict.fromkeys(name for row in rows for name in row)
    return BlockAccessor.batch_to_block({name: [row.get(name) for row in rows] for name in names})
