"""Ctrl-C within one call, of a source so slow that the call would take a quarter of an hour, or never end."""

from __future__ import annotations

import os
import select
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="mounting takes root")

# The signal is sent by a thread of Python: it gets to run while the call goes on, so the call doesn't hold the lock.
PROGRAM = """
import os, signal, sys, threading
import onesweep

signal.signal(signal.SIGINT, signal.default_int_handler)
root = sys.argv[1]
named = [f"{root}/{n}" for n in range(20_000)]

def interrupt():
    sys.stdin.readline()
    print("sends", flush=True)
    os.kill(os.getpid(), signal.SIGINT)

threading.Thread(target=interrupt, daemon=True).start()
try:
    %s
except KeyboardInterrupt:
    print("interrupted", flush=True)
else:
    print("went to its end", flush=True)
"""

# What is left to ask would take many times as many.
MOST_AFTERWARDS = 400


@pytest.fixture
def mounted(root: Path, request: pytest.FixtureRequest) -> Iterator[subprocess.Popen[str]]:
    source = [sys.executable, Path(__file__).parent / "slow_source.py", root, request.param]
    server = subprocess.Popen(source, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert server.stdout is not None and server.stdin is not None
    try:
        assert server.stdout.readline() == "mounted\n"
        yield server
    finally:
        server.stdin.close()
        server.stdout.read()
        server.stdout.close()
        server.wait()


def interrupted(root: Path, source: subprocess.Popen[str], call: str) -> None:
    """Runs the call in a process of its own, interrupts it in the middle, and looks that it ends there."""
    assert source.stdout is not None and source.stdin is not None
    program = subprocess.Popen(
        [sys.executable, "-c", PROGRAM % call, root], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        while not select.select([source.stdout], [], [], 0.1)[0]:
            assert program.poll() is None, program.communicate()
        assert source.stdout.readline() == "begun\n"
        # Not reached when the call takes no notice: then this is where it ends.
        said, complained = program.communicate("now\n", timeout=60)
    finally:
        program.kill()
        # Before who hangs on it is waited for.
        source.stdin.close()
        program.wait()
        if program.stdout is not None and program.stderr is not None:
            program.stdout.close()
            program.stderr.close()
    assert (said, complained, program.returncode) == ("sends\ninterrupted\n", "", 0)
    assert int(source.stdout.read()) < MOST_AFTERWARDS


CALLS = {
    "plan": "onesweep.plan(root)",
    "layout": "next(onesweep.layout(root))",
    "walk": "next(onesweep.walk(root))",
    "read": "next(onesweep.read(root))",
    "sum": "next(onesweep.sum(root))",
    "table": "onesweep.table(root)",
    "du": "onesweep.du(root)",
}


@pytest.mark.parametrize("mounted", ["names"], indirect=True)
@pytest.mark.parametrize("function", CALLS)
def test_within_one_directory(root: Path, mounted: subprocess.Popen[str], function: str) -> None:
    interrupted(root, mounted, CALLS[function])


@pytest.mark.parametrize("mounted", ["attributes"], indirect=True)
@pytest.mark.parametrize("function", CALLS)
def test_while_files_are_looked_at(root: Path, mounted: subprocess.Popen[str], function: str) -> None:
    call = CALLS[function]
    # A file that was looked at would be the first one already.
    interrupted(root, mounted, call if "next" not in call else f"list({call.removeprefix('next(')}")


@pytest.mark.parametrize("mounted", ["attributes"], indirect=True)
@pytest.mark.parametrize("function", ["plan", "walk"])
def test_while_named_files_are_looked_for(root: Path, mounted: subprocess.Popen[str], function: str) -> None:
    interrupted(root, mounted, f"list(onesweep.{function}(named))" if function == "walk" else "onesweep.plan(named)")


@pytest.mark.parametrize("mounted", ["content"], indirect=True)
@pytest.mark.parametrize(
    "call",
    [
        "next(files).data",
        "next(files).pread(200 << 20, 12345)",
        "next(next(files).chunks(100 << 20))",
        "next(onesweep.sum(root, budget='16M'))",
    ],
)
def test_within_the_content_of_a_file(root: Path, mounted: subprocess.Popen[str], call: str) -> None:
    interrupted(root, mounted, f"files = onesweep.read(root, budget='16M'); {call}")


@pytest.mark.parametrize("mounted", ["content"], indirect=True)
def test_a_stream_over_a_slow_line_comes_whole(root: Path, mounted: subprocess.Popen[str]) -> None:
    """However many bytes are asked for at a time."""
    text = "import sys, onesweep; files = onesweep.read(sys.argv[1], budget='16M'); print(next(files).pread(3 << 18, 5) == bytes(3 << 18))"
    ran = subprocess.run([sys.executable, "-c", text, root], capture_output=True, text=True, timeout=300)
    assert ran.stdout == "True\n", ran
