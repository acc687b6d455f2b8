"""Workers of a loader that read a tree together: one sweep by a process of its own, which gives who asks what comes next for it."""

from __future__ import annotations

import os
import pickle
import socket
import subprocess
import sys
from collections.abc import Generator, Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass

from . import _onesweep, _shares
from ._ahead import Other
from ._onesweep import File
from ._rounds import Rounds, opened
from ._sweeper import ASK, LENGTH_BYTES, NUMBER_BYTES, OVER, Head, Task
from ._types import OnError, Options

_END_S = 1.0
"""So long who began the process waits for its end, which comes by itself when all others have gone, too."""


@dataclass(frozen=True)
class Place:
    """Where a worker stands."""

    rank: int
    world_size: int
    number: int
    workers: int

    @property
    def part(self) -> tuple[int, int]:
        """Its number among all workers of all ranks."""
        return self.rank * self.workers + self.number, self.world_size * self.workers


def files(
    roots: list[str],
    place: Place,
    seed: int,
    rounds: Rounds | None,
    key: str,
    onerror: OnError,
    options: Options,
    *,
    is_dealt: bool = False,
) -> Generator[File[str], None, None]:
    """What one worker reads of the rank's files: all names, each once over the workers whose loader has that key.

    What is dealt comes by turns, in the order of the sweep, so that each worker gets the same again. Without ``rounds``, and where
    files can't be opened by their paths, each worker sweeps a part of its own.
    """
    if rounds is None or place.workers == 1 or not _may_share(roots, options):
        index, of = place.part
        yield from _part(roots, (index, of, seed), onerror, options)
        return
    of_rank: Options = {**options, "part": (place.rank, place.world_size, seed)}
    begun: list[subprocess.Popen[bytes]] = []

    def begin(directory: str) -> None:
        begun.append(_begun(directory, Task(roots, of_rank, place.workers, is_dealt)))

    def enter(directory: str, stack: ExitStack) -> _Sweep:
        return _Sweep(directory, place.number, stack)

    try:
        joined = rounds.join(f"{key} {place.rank} {place.world_size}", place.number, place.workers, begin, enter)
    finally:
        for process in begun:
            _let_go(process)
    try:
        yield from joined.shared.files(onerror, options)
    except GeneratorExit:
        rounds.break_off(joined)
        raise
    except BaseException:
        joined.finish()
        raise
    else:
        joined.finish()
    finally:
        for process in begun:
            with suppress(subprocess.TimeoutExpired):
                process.wait(_END_S)


def _part(roots: list[str], part: tuple[int, int, int], onerror: OnError, options: Options) -> Iterator[File[str]]:
    """A sweep of its own."""
    mine: Options = {**options, "part": part}
    return _shares.every_name(_onesweep.read(roots, onerror=onerror, **mine), onerror, options)


def _may_share(roots: list[str], options: Options) -> bool:
    """Those that are streamed have to be opened by their paths, which can't be where they are in an image or a snapshot."""
    if any(options.get(name) for name in ("device", "snapshot", "lost")):
        return False
    if not sys.executable or getattr(sys, "frozen", False):
        # There is no interpreter that could be begun.
        return False
    if options.get("metadata") not in ("auto", "tables"):
        return True
    base = os.fsdecode(options.get("base") or "")
    return all(os.path.isdir(os.path.join(base, root)) for root in roots)


def _begun(directory: str, task: Task) -> subprocess.Popen[bytes]:
    """The process that sweeps, which listens in that directory."""
    with ExitStack() as stack:
        listener = stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
        listener.bind(_address(directory, stack))
        listener.listen(task.workers)
        over = opened(f"{directory}/over", os.O_WRONLY | os.O_CREAT, stack)
        code = f"import sys; sys.path[:] = {sys.path!r}; from onesweep._sweeper import main; main({listener.fileno()}, {over})"
        process = subprocess.Popen(
            [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, pass_fds=(listener.fileno(), over)
        )
    assert process.stdin is not None and process.stdout is not None
    with process.stdout:
        with suppress(BrokenPipeError):
            process.stdin.write(pickle.dumps(task))
            process.stdin.flush()
        answer = process.stdout.read()
    failure: Exception | None = pickle.loads(answer) if answer else _has_ended()
    if failure is not None:
        _let_go(process)
        process.wait()
        raise failure
    return process


def _let_go(process: subprocess.Popen[bytes]) -> None:
    """Until then it waits for somebody to come, however long that takes."""
    assert process.stdin is not None
    with suppress(BrokenPipeError):
        process.stdin.close()


def _address(directory: str, stack: ExitStack) -> str:
    """Of a socket: at most 107 bytes, however long the path is."""
    return f"/proc/self/fd/{opened(directory, os.O_RDONLY | os.O_DIRECTORY, stack)}/socket"


def _has_ended() -> Exception:
    return ChildProcessError("the process that reads for the workers has ended before it had read everything")


class _Sweep:
    """What a worker has of the sweep of all: open as long as the stack."""

    def __init__(self, directory: str, number: int, stack: ExitStack) -> None:
        self._over = opened(f"{directory}/over", os.O_RDONLY, stack)
        self._socket = stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
        with ExitStack() as until_connected, suppress(ConnectionError):
            self._socket.connect(_address(directory, until_connected))
            self._socket.sendall(number.to_bytes(NUMBER_BYTES, "little"))

    def files(self, onerror: OnError, options: Options) -> Iterator[File[str]]:
        """What this worker gets; each of them when it is asked for."""
        while held := self._asked():
            held.reverse()
            while held:
                item = held.pop()
                if isinstance(item, File):
                    yield item
                elif item[0] == "stream":
                    yield from _shares.read([item[1]], onerror, options)
                elif item[0] == "told" and onerror is not None:
                    onerror(item[1])
                else:
                    raise item[1]

    def _asked(self) -> list[File[str] | Other]:
        """The next ones; nothing when all have been given. An answer is taken whole, so that who gives it doesn't wait."""
        try:
            self._socket.sendall(ASK)
            length = int.from_bytes(self._received(LENGTH_BYTES), "little")
            heads: list[Head] = pickle.loads(self._received(length))
            return [_onesweep._file_of(head[1], self._received(head[2])) if head[0] == "file" else head for head in heads]
        except (OSError, EOFError) as error:
            if os.pread(self._over, len(OVER), 0) == OVER:
                return []
            raise _has_ended() from error

    def _received(self, size: int) -> bytes:
        parts = []
        while size:
            part = self._socket.recv(size, socket.MSG_WAITALL)
            if not part:
                raise EOFError
            parts.append(part)
            size -= len(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)
