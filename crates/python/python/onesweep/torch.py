"""Trees for PyTorch: the workers of a rank read its part of a tree in the order of the disk, by one sweep.

    data = onesweep.torch.Tree("/data/images", transform=decode, shuffle="256M", seed=7)
    loader = torch.utils.data.DataLoader(data, batch_size=64, num_workers=4)
    for epoch in range(10):
        data.set_epoch(epoch)
        for batch in loader: ...
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from random import Random
from typing import Any, Generic, TypeVar, Unpack

from . import _onesweep
from ._onesweep import File
from ._rounds import Rounds
from ._shuffle import held_bytes, shuffled
from ._types import OnError, Options, Size, Text
from ._workers import Place, files

try:
    import torch
    import torch.distributed
    import torch.utils.data
except ImportError as error:
    raise ImportError("onesweep.torch needs PyTorch, which is not installed; with pip: pip install torch") from error

__all__ = ["Tree", "content"]

T = TypeVar("T")


def content(file: File[str]) -> Any:
    """The path and the bytes of a file: what a tree gives when it is told of no other way."""
    return file.path, bytes(file.data)


class Tree(torch.utils.data.IterableDataset[T], Generic[T]):
    """Every name of a regular file in a tree once in each epoch, over all workers of all ranks.

    ``transform`` makes of each file what the loop gets; its content is in memory until then. ``shuffle`` is what waits for its
    turn, at most, in bytes, beside the budget of the sweep, in each worker; 0 keeps the order of the disk. Without ``rank`` and
    ``world_size`` those of ``torch.distributed`` count, where it was begun. ``repeatable`` gives the same order for the same seed,
    epoch, workers and ranks as long as the files lie where they lay, on one disk: nothing is taken from the cache first, one
    request is made at a time, and files are dealt out to the workers by turns.
    """

    def __init__(
        self,
        paths: Text | Iterable[Text],
        transform: Callable[[File[str]], T] = content,
        *,
        shuffle: Size = "64M",
        seed: int = 0,
        rank: int | None = None,
        world_size: int | None = None,
        repeatable: bool = False,
        onerror: OnError = None,
        **options: Unpack[Options],
    ) -> None:
        super().__init__()
        if (rank is None) != (world_size is None):
            raise ValueError("give rank and world_size, or neither of both")
        if rank is not None and world_size is not None and not 0 <= rank < world_size:
            raise ValueError(f"there is no rank {rank} of {world_size}: ranks are numbered from 0")
        if not 0 <= seed < 1 << 64:
            raise ValueError(f"the seed {seed} is out of range; give 0 to 2**64 - 1")
        for taken in ("part", "entries"):
            if taken in options:
                raise TypeError(f"{taken} is decided by the workers and can't be given")
        self._paths = [os.fspath(path) for path in ([paths] if isinstance(paths, (str, os.PathLike)) else paths)]
        self._transform = transform
        self._shuffle = _onesweep._bytes_of(shuffle)
        self._seed = seed
        self._rank = None if rank is None or world_size is None else (rank, world_size)
        self._onerror = onerror
        self._options: Options = {"ignore_cache": True, "one_at_a_time": True, **options} if repeatable else options
        # In memory that workers share, since those that stay from epoch to epoch (persistent_workers) have to see it, too.
        self._epoch = torch.zeros((), dtype=torch.int64).share_memory_()
        # Who asks first gets a file, which nobody can repeat.
        self._is_dealt = repeatable
        self._rounds = Rounds()
        self._turn = 0

    def set_epoch(self, epoch: int) -> None:
        """Shuffles in another way from the next ``iter()`` on. All ranks have to set the same epoch."""
        self._epoch.fill_(epoch)

    def __getstate__(self) -> dict[str, Any]:
        # Workers that are spawned know of no rank but this one.
        return {**self.__dict__, "_rank": self._place()}

    def _place(self) -> tuple[int, int]:
        if self._rank is not None:
            return self._rank
        distributed = torch.distributed
        if distributed.is_available() and distributed.is_initialized():
            return distributed.get_rank(), distributed.get_world_size()
        return 0, 1

    def __iter__(self) -> Iterator[T]:
        worker = torch.utils.data.get_worker_info()
        if worker is None:
            return self._items(0, 1, "")
        # All workers of a loader are told of one seed but for their numbers, and those that stay begin as often as the others.
        self._turn += 1
        return self._items(worker.id, worker.num_workers, f"{os.getppid()} {worker.seed - worker.id} {self._turn}")

    def _items(self, number: int, workers: int, key: str) -> Iterator[T]:
        place = Place(*self._place(), number, workers)
        index, of = place.part
        random = Random(f"{self._seed} {int(self._epoch)} {index} {of}")
        found = files(
            self._paths, place, self._seed, self._rounds, key, self._onerror, self._options, is_dealt=self._is_dealt
        )
        with closing(found):
            sized = ((self._held(file), held_bytes(file.size)) for file in found)
            for file in shuffled(sized, self._shuffle, random):
                yield self._transform(file)

    def _held(self, file: File[str]) -> File[str]:
        """What waits for its turn must not keep the sweep waiting."""
        if self._shuffle and file.is_in_memory and file.size:
            file.take()
        return file
