"""The shuffle of `onesweep.torch`, and what is told where PyTorch or Ray isn't there."""

from __future__ import annotations

import subprocess
import sys
from random import Random

import pytest
from onesweep._shuffle import held_bytes, shuffled


def test_a_shuffle_never_holds_more_than_it_may() -> None:
    held = most = 0

    def items() -> object:
        nonlocal held, most
        for n in range(2000):
            size = held_bytes(n * 37 % 50_000)
            held += size
            yield n, size

    came = []
    for n in shuffled(items(), 400_000, Random(1)):  # type: ignore[arg-type]
        held -= held_bytes(n * 37 % 50_000)
        most = max(most, held)
        came.append(n)
    assert sorted(came) == list(range(2000)) and came != sorted(came)
    # Beside what it holds there is what has just come and finds no room.
    assert most <= 400_000 + held_bytes(50_000) and held == 0


def test_a_shuffle_is_that_of_its_seed() -> None:
    items = [(n, held_bytes(100)) for n in range(500)]
    orders = [list(shuffled(items, 100_000, Random(seed))) for seed in (1, 1, 2)]
    assert orders[0] == orders[1] != orders[2]
    assert list(shuffled(items, 0, Random(1))) == list(range(500)), "without room the order stays"
    assert list(shuffled([(0, 9000), (1, 10), (2, 10)], 100, Random(1)))[0] == 0, "what is too large passes"


@pytest.mark.parametrize(("module", "says"), [("torch", "pip install torch"), ("ray", "pip install 'ray[data]'")])
def test_what_is_missing_is_told(module: str, says: str) -> None:
    """Whether or not they are there."""
    text = f"import sys; sys.modules[{module!r}] = None; import onesweep.{module}"
    ran = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True)
    assert ran.returncode == 1 and f"ImportError: onesweep.{module} needs" in ran.stderr and says in ran.stderr, ran
    assert subprocess.run([sys.executable, "-c", f"import sys; sys.modules[{module!r}] = None; import onesweep"]).returncode == 0
