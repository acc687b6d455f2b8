"""Ctrl-C, forks, and workers in processes of their own."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import onesweep
import pytest


def interrupt_when(is_waiting: threading.Event) -> threading.Thread:
    """Sends SIGINT to this process once the main thread waits."""

    def send() -> None:
        is_waiting.wait()
        time.sleep(0.2)
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=send)
    thread.start()
    return thread


def slow(root: Path, **options: Any) -> onesweep.Reader:
    """A sweep that takes minutes."""
    for n in range(50):
        (root / f"f{n}").write_bytes(os.urandom(60_000))
    return onesweep.read(root, bwlimit=1000, ignore_cache=True, budget="256K", **options)


def test_ctrl_c_in_the_middle_of_an_iteration(root: Path) -> None:
    reader = slow(root)
    waiting = threading.Event()
    sender = interrupt_when(waiting)
    began = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        waiting.set()
        for _ in reader:
            pass
    sender.join()
    assert time.monotonic() - began < 60, "it doesn't wait for the sweep, which takes minutes"
    reader.close()
    with pytest.raises(onesweep.CancelledError):
        next(reader)


def test_ctrl_c_ends_a_with_block_and_leaves_nothing(root: Path) -> None:
    waiting = threading.Event()
    with pytest.raises(KeyboardInterrupt):
        with slow(root) as reader:
            sender = interrupt_when(waiting)
            waiting.set()
            for _ in reader:
                pass
    sender.join()
    del reader
    gc.collect()


@pytest.mark.parametrize("function", ["sum", "table"])
def test_ctrl_c_ends_other_functions(root: Path, function: str) -> None:
    for n in range(50):
        (root / f"f{n}").write_bytes(os.urandom(60_000))
    waiting = threading.Event()
    sender = interrupt_when(waiting)
    with pytest.raises(KeyboardInterrupt):
        waiting.set()
        if function == "sum":
            list(onesweep.sum(root, bwlimit=1000, ignore_cache=True, budget="256K"))
        else:
            while True:
                onesweep.table([root] * 300)
    sender.join()


def test_a_handler_that_does_not_raise_ends_nothing(root: Path) -> None:
    (root / "a").write_bytes(b"1" * 3000)
    told: list[int] = []
    before = signal.signal(signal.SIGUSR1, lambda number, frame: told.append(number))
    try:
        reader = onesweep.read(root, bwlimit=10_000, ignore_cache=True)
        timer = threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGUSR1))
        timer.start()
        assert len(list(reader)) == 1
        timer.join()
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert told == [signal.SIGUSR1]


def test_other_threads_run_while_one_waits(root: Path) -> None:
    reader = slow(root)
    counted = 0

    def wait() -> None:
        with pytest.raises(onesweep.CancelledError):
            list(reader)

    waiter = threading.Thread(target=wait)
    waiter.start()
    until = time.monotonic() + 0.5
    while time.monotonic() < until:
        counted += 1
    reader.close()
    waiter.join()
    assert counted > 1000


def read(path: str) -> dict[str, bytes]:
    return {str(f.path): bytes(f.data) for f in onesweep.read(path)}


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_workers_in_processes(root: Path, tree: dict[str, bytes], method: str) -> None:
    workers = [sys.executable, Path(__file__).parent / "workers.py", method, root]
    ran = subprocess.run(workers, capture_output=True, text=True, timeout=300)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.split() == [str(len(tree)), str(sum(map(len, tree.values())))]


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_what_was_begun_before_a_fork_stays_with_the_parent(root: Path, tree: dict[str, bytes]) -> None:
    reader = onesweep.read(root, budget="1M")
    plan = onesweep.plan(root)
    kept = [next(reader) for _ in range(20)]
    views = [f.data for f in kept]
    child = os.fork()
    if child == 0:
        code = 1
        try:
            for use in (lambda: next(reader), lambda: reader.summary, lambda: plan.estimate, plan.run):
                try:
                    use()
                except RuntimeError as error:
                    assert "fork" in str(error)
                else:
                    raise AssertionError("it was used")
            reader.close()
            plan.close()
            assert all(bytes(view) == tree[str(f.path)] for f, view in zip(kept, views)), "bytes are there"
            views.clear()
            kept.clear()
            del reader, plan
            gc.collect()
            assert read(str(root)) == tree, "a sweep of the child's own"
            code = 0
        except BaseException:
            import traceback

            traceback.print_exc()
        finally:
            os._exit(code)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    assert len(list(reader)) == len(tree) - 20
    assert len(list(plan.run())) == len(tree)


def test_the_end_of_the_interpreter_ends_sweeps(root: Path, tree: dict[str, bytes]) -> None:
    """A reader that lives in a module's globals is dropped while Python ends."""
    text = f"import onesweep; reader = onesweep.read({str(root)!r}, budget='64K'); f = next(reader); view = f.data; print(len(view))"
    ended = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, timeout=120)
    assert ended.returncode == 0 and ended.stderr == "", ended
    text = f"import onesweep, threading; r = onesweep.read({str(root)!r}, budget='64K', bwlimit=1000, ignore_cache=True)\n"
    text += "threading.Thread(target=lambda: list(r), daemon=True).start()"
    ended = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, timeout=120)
    assert ended.returncode == 0, ended
