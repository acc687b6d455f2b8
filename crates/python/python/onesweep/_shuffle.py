"""A shuffle that holds so many bytes, and no more."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from random import Random
from typing import TypeVar

T = TypeVar("T")

_BLOCK = 4096
_BESIDE = 1024


def held_bytes(size: int) -> int:
    """What a file of that size takes while it is held: its blocks, and what is known of it."""
    return -(-size // _BLOCK) * _BLOCK + _BESIDE


def shuffled(items: Iterable[tuple[T, int]], limit: int, random: Random) -> Iterator[T]:
    """Gives items with their sizes in another order, and never holds more than ``limit`` bytes. Those larger than that pass."""
    held: list[tuple[T, int]] = []
    total = 0
    for item, size in items:
        if size > limit:
            yield item
            continue
        while total + size > limit:
            taken, taken_size = _take(held, random)
            total -= taken_size
            yield taken
        held.append((item, size))
        total += size
        del item
    while held:
        yield _take(held, random)[0]


def _take(held: list[tuple[T, int]], random: Random) -> tuple[T, int]:
    at = random.randrange(len(held))
    held[at], held[-1] = held[-1], held[at]
    return held.pop()
