"""Signal handlers, and other threads, that come to what is being waited for."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

# A handler that waits for ever can't be interrupted, so each of these is a process, and ends by a limit then.
LIMIT_S = 60

# Files of which one comes in a minute, and one that is read part by part for a minute; a handler that runs while one is waited for.
PROGRAM = """
import signal, sys, threading, time
import onesweep

root = sys.argv[1]
slowly = dict(bwlimit=1000, ignore_cache=True, budget="256K")

def after_a_while(handler):
    signal.signal(signal.SIGALRM, lambda *_: handler())
    signal.setitimer(signal.ITIMER_REAL, 0.2)

"""

BODIES = {
    "closes what it reads": """
files = onesweep.read(root, **slowly)
after_a_while(files.close)
try:
    list(files)
except onesweep.CancelledError:
    print("closed")
""",
    "closes sums": """
sums = onesweep.sum(root, **slowly)
after_a_while(sums.close)
try:
    list(sums)
except onesweep.CancelledError:
    print("closed")
""",
    "asks how far it is": """
files = onesweep.read(root, **slowly)
def ask():
    print(files.summary.errors, "failed")
    raise InterruptedError
after_a_while(ask)
try:
    list(files)
except InterruptedError:
    files.close()
    print("closed")
""",
    "asks for the next file": """
files = onesweep.read(root, **slowly)
def go_on():
    signal.signal(signal.SIGALRM, lambda *_: files.close())
    signal.setitimer(signal.ITIMER_REAL, 0.2)
    try:
        next(files)
    except onesweep.CancelledError:
        print("closed in it")
after_a_while(go_on)
try:
    list(files)
except onesweep.CancelledError:
    print("closed")
""",
    "asks for the next part": """
(file,) = onesweep.read(root + "/large", bwlimit=20_000, ignore_cache=True, budget="256K")
parts = file.chunks(64 << 10)
next(parts)  # the first one is not held back
def go_on():
    print(len(next(parts)))
after_a_while(go_on)
print(len(next(parts)))
rest = b"".join(parts)
print(len(rest))
""",
}

SAID = {
    "closes what it reads": "closed\n",
    "closes sums": "closed\n",
    "asks how far it is": "0 failed\nclosed\n",
    "asks for the next file": "closed in it\nclosed\n",
    # Each part comes once, whoever asks for it.
    "asks for the next part": "65536\n65536\n3392\n",
}


def ran(root: Path, body: str) -> str:
    for n in range(10):
        (root / f"f{n}").write_bytes(os.urandom(60_000))
    (root / "large").write_bytes(os.urandom(200_000))
    program = [sys.executable, "-c", PROGRAM + body, root]
    told = subprocess.run(program, capture_output=True, text=True, timeout=LIMIT_S)
    assert told.returncode == 0, told.stderr
    return told.stdout


@pytest.mark.parametrize("does", BODIES)
def test_a_handler_may_come_to_what_is_waited_for(root: Path, does: str) -> None:
    assert ran(root, BODIES[does]) == SAID[does]


def test_a_part_that_a_handler_broke_off_is_read_again(root: Path) -> None:
    body = """
(file,) = onesweep.read(root + "/large", bwlimit=20_000, ignore_cache=True, budget="256K")
parts = file.chunks(64 << 10)
first = next(parts)
def raise_it():
    raise InterruptedError
after_a_while(raise_it)
try:
    next(parts)
except InterruptedError:
    print("broken off")
print(first + b"".join(parts) == open(root + "/large", "rb").read())
"""
    assert ran(root, body) == "broken off\nTrue\n"


def test_how_far_it_is_can_be_asked_while_another_thread_waits(root: Path) -> None:
    """The next file comes in a minute, and no question waits for it, nor for the moments between two looks at signals."""
    body = """
files = onesweep.read(root, **slowly)
came = []
waiting = threading.Thread(target=lambda: came.extend(files), daemon=True)
waiting.start()
time.sleep(0.2)
before = len(came)
for _ in range(600):
    time.sleep(0.005)
    files.summary
print(len(came) - before, "came meanwhile")
threading.Thread(target=files.close).start()
"""
    assert ran(root, body) == "0 came meanwhile\n"
