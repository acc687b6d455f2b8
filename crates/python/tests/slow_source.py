"""A file system that is slow once it is asked for what it is slow at: by FUSE, as root. It serves until its standard input ends.

Arguments: where to mount it, and what comes slowly: `names` (a listing that never ends), `attributes` (of 20,000 files) or `content`
(of a file of 256 MiB). It writes "mounted", "begun" once it was asked for some of that, and at its end how often it was asked since.
"""

from __future__ import annotations

import ctypes
import os
import select
import signal
import struct
import sys
import time

FORGET, BATCH_FORGET, INTERRUPT = 2, 42, 36
LOOKUP, GETATTR, OPEN, READ, STATFS, RELEASE, FLUSH, INIT, OPENDIR, READDIR, RELEASEDIR = 1, 3, 14, 15, 17, 18, 25, 26, 27, 28, 29
ENOENT, ENOSYS = 2, 38
ROOT, LARGE, FIRST = 1, 2, 1000
FILES, LARGE_BYTES = 20_000, 256 << 20
DIRECTORY, REGULAR = 0o040755, 0o100644
FOR_EVER = 1 << 30
# What each request takes, after so many that cost nothing.
SLOWLY, FREE = 0.05, 3

slow_at = {"names": {READDIR}, "attributes": {LOOKUP, GETATTR}, "content": {READ}}


def attributes(node: int) -> bytes:
    size = LARGE_BYTES if node == LARGE else 10
    mode = DIRECTORY if node == ROOT else REGULAR
    times = (1_000_000_000,) * 3
    return struct.pack("<6Q10I", node, size, -(-size // 512), *times, 0, 0, 0, mode, 1, 0, 0, 0, 4096, 0)


def entry(node: int) -> bytes:
    return struct.pack("<4Q2I", node, 0, FOR_EVER, 0, 0, 0) + attributes(node)


def listing(what: str, offset: int, size: int) -> bytes:
    if what == "content":
        names = [] if offset else [(b"large", LARGE, 1)]
    elif what == "names":
        names = [(b"%d" % n, FIRST + n, n + 1) for n in range(offset, offset + 8)]
    else:
        names = [(b"%d" % n, FIRST + n, n + 1) for n in range(offset, min(FILES, offset + size // 40))]
    packed = b""
    for name, node, following in names:
        one = struct.pack("<2Q2I", node, following, len(name), REGULAR >> 12) + name
        one += bytes(-len(one) % 8)
        if len(packed) + len(one) > size:
            break
        packed += one
    return packed


def answer(what: str, opcode: int, node: int, body: bytes) -> bytes | int:
    """What a request is told: bytes, or an error."""
    if opcode == INIT:
        return struct.pack("<4I2H2I2H8I", 7, 31, 0, 0, 12, 9, 4096, 1, 0, 0, *(0,) * 8)
    if opcode == LOOKUP:
        name = body[:-1]
        if name == b"large":
            return entry(LARGE)
        return entry(FIRST + int(name)) if name.isdigit() else -ENOENT
    if opcode == GETATTR:
        return struct.pack("<Q2I", 0, 0, 0) + attributes(node)
    if opcode in (OPEN, OPENDIR):
        return struct.pack("<Q2I", 0, 0, 0)
    if opcode == READDIR:
        _, offset, size = struct.unpack_from("<2QI", body)
        return listing(what, offset, size)
    if opcode == READ:
        _, offset, size = struct.unpack_from("<2QI", body)
        return bytes(size) if node == LARGE else bytes(10)[offset : offset + size]
    if opcode == STATFS:
        return struct.pack("<5Q4I6I", 1 << 20, 1 << 20, 1 << 20, 1 << 20, 1 << 20, 4096, 255, 4096, *(0,) * 7)
    return b"" if opcode in (RELEASE, RELEASEDIR, FLUSH) else -ENOSYS


def serve(fd: int, what: str) -> int:
    """Until the input ends; gives how often it was asked for what is slow after it began to be."""
    asked = 0
    while True:
        ready, _, _ = select.select([fd, 0], [], [])
        if 0 in ready:
            return max(0, asked - FREE)
        request = os.read(fd, 1 << 20)
        _, opcode, unique, node = struct.unpack_from("<2I2Q", request)
        if opcode in (FORGET, BATCH_FORGET, INTERRUPT):
            continue
        if opcode in slow_at[what] and node != (ROOT if what == "attributes" and opcode == GETATTR else 0):
            asked += 1
            if asked == FREE:
                print("begun", flush=True)
            if asked > FREE:
                # One call takes long, so that a signal comes in the middle of it.
                time.sleep(SLOWLY)
        told = answer(what, opcode, node, request[40:])
        error, told = (told, b"") if isinstance(told, int) else (0, told)
        try:
            os.write(fd, struct.pack("<IiQ", 16 + len(told), error, unique) + told)
        except FileNotFoundError:  # who asked has gone
            pass


def main(at: str, what: str) -> None:
    # Nothing stays mounted, however it ends.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    libc = ctypes.CDLL(None, use_errno=True)
    fd = os.open("/dev/fuse", os.O_RDWR)
    options = f"fd={fd},rootmode=40000,user_id=0,group_id=0,max_read=4096"
    if libc.mount(b"slow", os.fsencode(at), b"fuse", 1, options.encode()):
        raise OSError(ctypes.get_errno(), "mount")
    try:
        print("mounted", flush=True)
        print(serve(fd, what), flush=True)
    finally:
        # Lazily: who hangs on it would hang for ever. What is asked of it then fails.
        libc.umount2(os.fsencode(at), 2)
        os.close(fd)


if __name__ == "__main__":
    main(*sys.argv[1:])
