"""Errors: of arguments, of sweeps, of files."""

from __future__ import annotations

import copy
import errno
import os
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import onesweep
import pytest
from onesweep import _errors


@pytest.mark.parametrize(
    ("arguments", "options", "kind", "text"),
    [
        ((), {}, TypeError, "paths"),
        ((3.5,), {}, TypeError, "not iterable|float"),
        (([3.5],), {}, TypeError, "PathLike"),
        ((["a", b"a"],), {}, TypeError, "str or as bytes"),
        (("a\0b",), {}, ValueError, "null byte"),
        (([],), {}, ValueError, "no path was given"),
        (("/",), {"colour": 1}, TypeError, "unexpected keyword argument 'colour'"),
        (("/",), {"colour": None}, TypeError, "unexpected keyword argument 'colour'"),
        (("/",), {"budget": "much"}, ValueError, "no size"),
        (("/",), {"budget": -1}, OverflowError, None),
        (("/",), {"budget": 1.5}, TypeError, None),
        (("/",), {"budget": 1}, ValueError, "too small"),
        (("/",), {"large": "1G"}, ValueError, "can't wait in a budget"),
        (("/",), {"order": "sideways"}, ValueError, "unknown order"),
        (("/",), {"strategy": "none"}, ValueError, "unknown strategy"),
        (("/",), {"reassembly": "none"}, ValueError, "unknown way of reassembly"),
        (("/",), {"reassembly": "auto", "threshold": 1}, ValueError, "leave out one"),
        (("/",), {"metadata": "none"}, ValueError, "unknown source"),
        (("/",), {"entries": "some"}, ValueError, "unknown choice of entries"),
        (("/",), {"cache": "no"}, ValueError, "unknown policy"),
        (("/",), {"disk": "floppy"}, ValueError, "unknown disk model"),
        (("/",), {"freeze_limit": -1}, ValueError, None),
        (("/",), {"queue_depth": 0}, ValueError, "queue depth"),
        (("/",), {"max_request": 5}, ValueError, "multiple"),
        (("/",), {"bwlimit": 0}, ValueError, "never end"),
        (("/",), {"onerror": 3}, TypeError, "callable"),
        (("/",), {"exclude": [3]}, TypeError, None),
        (("/",), {"device": "yes"}, TypeError, None),
    ],
)
def test_arguments_that_can_not_be(arguments: tuple[Any, ...], options: dict[str, Any], kind: type, text: str | None) -> None:
    for function in (onesweep.read, onesweep.walk, onesweep.plan, onesweep.layout, onesweep.sum, onesweep.table):
        with pytest.raises(kind, match=text):
            function(*arguments, **options)


def test_only_devices_are_read_through_their_gaps(root: Path) -> None:
    for function in (onesweep.read, onesweep.walk, onesweep.plan, onesweep.sum, onesweep.table):
        with pytest.raises(ValueError, match="device"):
            function(root, strategy="merged")
    assert list(onesweep.layout(root, strategy="merged")) == [], "it reads nothing"


def test_every_option_is_taken(root: Path) -> None:
    (root / "a").write_bytes(b"1")
    options: dict[str, Any] = {
        "budget": "1M", "large": 1000, "catalog_limit": "1M", "order": "inode", "strategy": "vanilla", "reassembly": "first-fit",
        "metadata": "auto", "entries": "all", "cache": "fill", "device": False, "snapshot": False, "freeze_limit": 1.5,
        "one_file_system": True, "follow_roots": True, "gitignore": True, "recursive": True, "exclude": ["x"], "xattrs": True,
        "ignore_cache": True, "addresses": True, "force_dirty": True, "logdev": "/none", "rtdev": "/none", "lost": True, "bwlimit": "1G",
        "idle": True, "queue_depth": 2, "one_at_a_time": True, "in_batches": True, "gap": "4K", "max_request": "64K", "disk": "ssd",
        "base": "/", "onerror": print,
    }  # fmt: skip
    assert [f.kind for f in onesweep.read(root, **options)] == ["directory", "file", "directory"]
    assert [f.kind for f in onesweep.read(root, threshold="8K")] == ["file"]
    assert [f.kind for f in onesweep.read(root, **dict.fromkeys(options))] == ["file"], "None is as if left out"


def test_roots_that_can_not_be_used(root: Path) -> None:
    with pytest.raises(FileNotFoundError) as raised:
        onesweep.read(root / "gone")
    error = raised.value
    assert isinstance(error, onesweep.RootError) and isinstance(error, onesweep.SweepError)
    assert isinstance(error, onesweep.Error) and isinstance(error, OSError)
    assert (error.errno, error.filename, error.strerror) == (2, str(root / "gone"), "No such file or directory")
    assert str(error).startswith(f"{root}/gone: ")
    with pytest.raises(onesweep.RootError) as raised:
        onesweep.read(os.fsencode(root / "gone"))
    assert raised.value.filename == os.fsencode(root / "gone")


def test_device_and_snapshot_that_can_not_be() -> None:
    with pytest.raises(onesweep.DeviceError) as device:
        onesweep.read("/proc/self/limits", device=True)
    assert device.value.filename == "/proc/self/limits" and device.value.errno is None
    with pytest.raises(onesweep.SnapshotError) as snapshot:
        onesweep.read("/proc/self/limits", snapshot=True)
    assert snapshot.value.filename == "/proc/self/limits"
    assert snapshot.value.errno == (errno.EOPNOTSUPP if os.geteuid() == 0 else errno.EPERM)


def test_who_may_not_read_the_device_or_hold_writers_is_told_so_by_class() -> None:
    script = """
import os, onesweep
if os.geteuid() == 0:
    os.setgroups([])
    os.setgid(65534)
    os.setuid(65534)
for option, path in ("snapshot", "/proc/self/limits"), ("device", "/"):
    try:
        onesweep.read(path, **{option: True}).close()
    except onesweep.SweepError as error:
        print(type(error).__name__, isinstance(error, PermissionError), error.errno, error, sep="|")
"""
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    snapshot, *device = [line.split("|", 3) for line in run.stdout.splitlines()]
    assert snapshot[:3] == ["SnapshotError", "True", str(errno.EPERM)], run.stdout
    # What lies below / differs: where there is a device that may not be opened, the kernel has said so.
    for name, is_permission, number, text in device:
        expected = ("True", str(errno.EACCES)) if "Permission denied" in text else ("False", number)
        assert (name, is_permission, number) == ("DeviceError", *expected), text


def unreadable(root: Path) -> Path:
    """A tree in which one of three paths fails."""
    for name in "ab":
        (root / name).write_bytes(name.encode())
    return root / "gone"


def test_a_failure_is_raised_and_the_sweep_goes_on(root: Path) -> None:
    gone = unreadable(root)
    reader = onesweep.read([gone, root / "a", root / "b"])
    found, failed = [], []
    while True:
        try:
            found.append(bytes(next(reader).data))
        except StopIteration:
            break
        except onesweep.FileError as error:
            failed.append(error)
    assert sorted(found) == [b"a", b"b"]
    (error,) = failed
    assert isinstance(error, onesweep.ReadError) and isinstance(error, FileNotFoundError)
    assert error.filename == str(gone) and error.errno == 2
    assert reader.summary.errors == 1


def test_failures_go_to_onerror(root: Path) -> None:
    gone = unreadable(root)
    paths = [gone, root / "a"]
    for sweep in (onesweep.read, onesweep.walk, onesweep.sum, onesweep.layout):
        failed: list[onesweep.Error] = []
        found = list(sweep(paths, onerror=failed.append))  # type: ignore[operator]
        assert len(found) == 1, sweep
        assert [(type(e).__name__, e.filename) for e in failed] == [("ReadError", str(gone))], sweep
        with pytest.raises(onesweep.ReadError):
            list(sweep(paths))  # type: ignore[operator]
    failed = []
    assert onesweep.table(paths, onerror=failed.append).num_rows == 1 and len(failed) == 1
    with pytest.raises(onesweep.ReadError):
        onesweep.table(paths)
    with onesweep.plan(paths) as plan:
        assert [e.filename for e in plan.errors] == [str(gone)]


def test_what_onerror_raises_goes_on(root: Path) -> None:
    gone = unreadable(root)

    def refuse(error: OSError) -> None:
        raise KeyError(error.filename)

    reader = onesweep.read([gone, root / "a"], onerror=refuse)
    with pytest.raises(KeyError, match="gone"):
        list(reader)


def test_a_file_that_vanishes_is_told(root: Path) -> None:
    for n in range(20):
        (root / f"f{n:02}").write_bytes(os.urandom(3 << 20))
    # Streamed files are opened when they are read.
    files = list(onesweep.read(root, budget="4M"))
    assert {f.route for f in files} == {"streamed"}
    os.unlink(files[7].path)
    with pytest.raises(onesweep.ReadError) as raised:
        files[7].data
    assert isinstance(raised.value, FileNotFoundError) and raised.value.filename == files[7].path


@pytest.mark.parametrize("name", sorted(_errors._CLASSES))
@pytest.mark.parametrize("number", [None, 2, 5, 13])
def test_exceptions_go_to_other_processes(name: str, number: int | None) -> None:
    error = _errors.make(name, number, None if number else "cause", "/a/b", "/a/b: all of it")
    for same in (pickle.loads(pickle.dumps(error)), copy.copy(error)):
        assert type(same) is type(error) and str(same) == str(error) == "/a/b: all of it"
        assert (same.errno, same.strerror, same.filename) == (error.errno, error.strerror, error.filename)
    assert isinstance(error, getattr(onesweep, name))
    assert isinstance(error, PermissionError) == (number == 13)
    assert str(onesweep.Error(5, "plain")) == "[Errno 5] plain"


def test_classes_of_exceptions_go_to_other_processes(root: Path) -> None:
    """Also to one that has made none with a second base yet: PyTorch sends the class, and raises it anew with a text."""
    with pytest.raises(onesweep.RootError) as raised:
        onesweep.read(root / "gone")
    kind = type(raised.value)
    assert issubclass(kind, FileNotFoundError) and pickle.loads(pickle.dumps(kind)) is kind
    text = f"import pickle, onesweep; raise pickle.loads({pickle.dumps(kind)!r})('told anew')"
    ran = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True)
    assert ran.returncode == 1 and ran.stderr.rstrip().endswith("RootError_FileNotFoundError: told anew"), ran
    for name in ("RootError_KeyError", "Unknown_FileNotFoundError", "RootError_", "nothing"):
        assert not hasattr(_errors, name)
