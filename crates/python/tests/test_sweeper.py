"""What workers of a loader share, without PyTorch: one sweep by a process of its own."""

from __future__ import annotations

import gc
import multiprocessing
import os
import random
import shutil
import signal
import subprocess
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Literal

import onesweep
import pytest
from onesweep import _ahead, _onesweep, _shares
from onesweep._ahead import Ahead
from onesweep._rounds import Rounds
from onesweep._sweeper import Task
from onesweep._types import Options
from onesweep._workers import Place, _begun, _let_go, _Sweep, files
from sweepers import ODD_OPTIONS, add_odd_files, all_of_it, processes


@pytest.fixture(autouse=True)
def temporary(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where workers find each other; it must be empty in the end, and no process be left."""
    with tempfile.TemporaryDirectory(prefix="rounds-") as path:
        monkeypatch.setenv("TMPDIR", path)
        monkeypatch.setattr(tempfile, "tempdir", path)
        yield Path(path)
        # Exceptions that were caught may have who made the rounds.
        gc.collect()
        for _ in range(500):
            if not processes() and not rounds_in(Path(path)):
                break
            time.sleep(0.01)
        assert not processes() and not rounds_in(Path(path))


def rounds_in(temporary: Path) -> list[str]:
    return [name for name in os.listdir(temporary) if name.startswith("onesweep-")]


def test_workers_have_what_one_reader_has(root: Path, tree: dict[str, bytes]) -> None:
    add_odd_files(root)
    rounds = Rounds()
    found: list[list[tuple[Any, ...]]] = [[], [], []]

    def work(number: int) -> None:
        mine = files([str(root)], Place(0, 1, number, 3), 0, rounds, "key", None, ODD_OPTIONS)
        for file in mine:
            found[number].append(all_of_it(file))
            file.take()
            file.release()

    workers = [threading.Thread(target=work, args=(number,)) for number in range(3)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    alone = sorted(all_of_it(file) for file in files([str(root)], Place(0, 1, 0, 1), 0, None, "", None, ODD_OPTIONS))
    assert sorted(item for mine in found for item in mine) == alone and all(found)
    assert {item[8] for item in alone} == {"read", "no-read", "streamed"} and len(alone) == len(tree) + 2


def test_what_is_dealt_is_decided_by_the_sweep_alone(root: Path, tree: dict[str, bytes]) -> None:
    """Each has every third file in the order of the sweep, also while one of them takes nothing until the others have all."""
    options: Any = {"order": "fragment", "ignore_cache": True, "one_at_a_time": True}
    whole = [file.path for file in onesweep.read(str(root), **options)]
    dealt = [whole[number::3] for number in range(3)]
    rounds = Rounds()
    found: list[list[str]] = [[], [], []]
    others_have_all = threading.Barrier(3)

    def work(number: int) -> None:
        for file in files([str(root)], Place(0, 1, number, 3), 0, rounds, "key", None, options, is_dealt=True):
            assert bytes(file.data) == tree[file.path]
            found[number].append(file.path)
            if len(found[number]) == (1 if number == 1 else len(dealt[number])):
                others_have_all.wait(60)

    workers = [threading.Thread(target=work, args=(number,)) for number in range(3)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert found == dealt and sorted(whole) == sorted(tree)


def test_who_has_nothing_does_not_wait_for_who_takes_nothing(
    root: Path, tree: dict[str, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is too much to be held for the other is read by it later, in its turn."""
    monkeypatch.setattr(_ahead, "_DEALT_BYTES", 100_000)
    ahead = Ahead(2, lambda: None)

    def sweep() -> None:
        for file in onesweep.read(str(root), ignore_cache=True):
            ahead.put(file)
        ahead.end()

    sweeping = threading.Thread(target=sweep)
    sweeping.start()

    def taken(number: int) -> list[Any]:
        items: list[Any] = []
        while not ahead.has_given([number]):
            items += ahead.take(number)
            # The sweep goes on meanwhile.
            time.sleep(0.001)
        return items

    first = taken(0)
    sweeping.join()
    second = taken(1)
    assert all(isinstance(item, onesweep.File) for item in first)
    held = [item for item in second if isinstance(item, onesweep.File)]
    later = [item for item in second if not isinstance(item, onesweep.File)]
    assert 0 < sum(file.size for file in held) < 100_000 + 300_000 and {item[0] for item in later} == {"stream"}
    paths = [item.path for item in first + held] + [item[1] for item in later]
    assert Counter(paths) == Counter(list(tree))


def test_what_was_dealt_to_who_has_gone_holds_nobody_up(root: Path, tree: dict[str, bytes], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_ahead, "_DEALT_FILES", 4)
    ahead = Ahead(2, lambda: None)
    ahead.leave(1)
    for file in onesweep.read(str(root)):
        ahead.put(file)
        ahead.take(0)
    ahead.end()
    assert ahead.is_over and ahead.take(1) == []


def test_parts_that_are_no_file_are_refused(root: Path, tree: dict[str, bytes]) -> None:
    file = next(onesweep.read(next(iter(tree))))
    parts = _onesweep._parts_of(file)
    assert bytes(_onesweep._file_of(parts, b"other").data) == b"other"
    directory = (parts[0], (0o040755, *parts[1][1:]), *parts[2:])
    with pytest.raises(ValueError, match="no regular file"):
        _onesweep._file_of(directory, b"")
    with pytest.raises(ValueError, match="no regular file"):
        _onesweep._file_of((*parts[:-1], "by hand"), b"")


def test_failures_come_to_who_asks(root: Path, tree: dict[str, bytes]) -> None:
    gone = str(root / "gone")
    told: list[onesweep.Error] = []
    found = [file.path for file in files([str(root), gone], Place(0, 1, 0, 2), 0, Rounds(), "key", told.append, {})]
    assert Counter(found) == Counter(list(tree)) and [error.filename for error in told] == [gone]
    with pytest.raises(FileNotFoundError, match="gone"):
        list(files([str(root), gone], Place(0, 1, 0, 2), 0, Rounds(), "key", None, {}))
    with pytest.raises(onesweep.RootError, match="gone"):
        list(files([gone], Place(0, 1, 0, 2), 0, Rounds(), "key", told.append, {}))
    with pytest.raises(ValueError, match="no size"):
        list(files([str(root)], Place(0, 1, 0, 2), 0, Rounds(), "key", None, {"budget": "many"}))


def linked(root: Path) -> tuple[Iterator[onesweep.File[str]], list[onesweep.Error], list[onesweep.File[str]]]:
    """What one worker has, as far as the first names of a file with three names and of one with two; and what it is told."""
    (root / "a").write_bytes(b"of three")
    os.link(root / "a", root / "b")
    os.link(root / "a", root / "c")
    (root / "d").write_bytes(b"of two")
    os.link(root / "d", root / "e")
    told: list[onesweep.Error] = []
    found = files([str(root)], Place(0, 1, 0, 1), 0, None, "", told.append, {})
    firsts = sorted((next(found), next(found)), key=lambda file: -len(file.links))
    return found, told, firsts


def test_a_further_name_may_vanish_before_it_is_read(root: Path) -> None:
    found, told, (three, two) = linked(root)
    gone, stays = three.links
    os.unlink(gone)
    assert sorted(file.path for file in found) == sorted([stays, *two.links])
    assert [error.filename for error in told] == [gone]
    assert isinstance(told[0], FileNotFoundError)


def test_all_further_names_may_vanish(root: Path) -> None:
    found, told, firsts = linked(root)
    gone = [name for file in firsts for name in file.links]
    for name in gone:
        os.unlink(name)
    assert not list(found) and sorted(str(error.filename) for error in told) == sorted(gone)


def test_a_further_name_that_is_a_directory_by_then_is_not_swept(root: Path) -> None:
    found, told, (three, two) = linked(root)
    (name,) = two.links
    os.unlink(name)
    os.mkdir(name)
    Path(name, "inside").write_bytes(b"was never a name of a file")
    assert sorted(file.path for file in found) == sorted(three.links)


def test_further_names_come_once_each_with_their_content(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_shares, "_FILES_MAX", 5)
    expected = {}
    for n in range(20):
        for link in range(n % 7 + 1):
            path = root / f"d{link % 3}" / f"f{n}-{link}"
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(b"%d" % n) if link == 0 else os.link(root / f"d0/f{n}-0", path)
            expected[str(path)] = b"%d" % n
    found = [(file.path, bytes(file.data)) for file in files([str(root)], Place(0, 1, 0, 1), 0, None, "", None, {})]
    assert sorted(found) == sorted(expected.items())


@pytest.mark.parametrize("order", ["fragment", "directory"])
def test_each_further_name_is_looked_up_once(root: Path, order: Literal["fragment", "directory"], monkeypatch: pytest.MonkeyPatch) -> None:
    """Fifty names of a file, which is handed over once for each directory where that is the order."""
    (root / "first").write_bytes(b"of fifty")
    for n in range(49):
        path = root / f"d{n % 7}" / f"f{n}"
        path.parent.mkdir(exist_ok=True)
        os.link(root / "first", path)
    looked_up: list[str] = []
    sweep = _onesweep.read

    def counting(paths: list[str], **options: Any) -> Any:
        looked_up.extend(paths)
        return sweep(paths, **options)

    monkeypatch.setattr(_onesweep, "read", counting)
    found = files([str(root)], Place(0, 1, 0, 1), 0, None, "", None, {"order": order})
    assert len({file.path for file in found}) == 50
    assert len(looked_up) == len(set(looked_up)) == 50, "the root and all names but the first"


def test_the_shares_of_a_plan_have_each_name_once(root: Path) -> None:
    """Also where names of one file are in one share, and where the border of a share lies between them."""
    (root / "a").write_bytes(bytes(1000))
    (root / "alone").write_bytes(bytes(1000))
    for name in "bcde":
        os.link(root / "a", root / name)
    plan = _shares.planned([str(root)], {})
    assert plan is not None
    (disk,) = plan.disks
    for limit in (1000, 2000, 3000, 10_000):
        shares = list(_shares.groups(disk.files, limit, lambda file: file.size))
        assert len(shares) == -(-6000 // limit)
        for share in shares:
            found = _shares.read([file.path for file in share], None, {})
            came = [(file.path, file.size) for file in _shares.with_further_names(found, None, {})]
            assert sorted(came) == sorted((file.path, 1000) for file in share), limit


def test_more_names_than_the_catalogue_holds_are_planned_in_windows(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(2000):
        path = root / f"d{number % 20}" / f"f{number}"
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(bytes(number % 3 * 1000))
    for number in range(0, 2000, 40):
        os.link(root / "d0" / f"f{number}", root / "d1" / f"further{number}")
    os.sync()
    few: Options = {"catalog_limit": "64K"}
    with _onesweep.plan([str(root)], **few) as part:
        assert part.is_partial
    whole = _shares.planned([str(root)], {})
    assert whole is not None
    windows: list[Any] = []
    plan = _onesweep.plan

    def noting(roots: list[str], **options: Any) -> Any:
        windows.append(options.get("part"))
        return plan(roots, **options)

    monkeypatch.setattr(_onesweep, "plan", noting)
    in_windows = _shares.planned([str(root)], few)
    assert in_windows is not None and in_windows.errors == []
    assert windows[:3] == [None, (0, 2, 0), (0, 4, 0)] and len(windows) > 6
    for one, other in zip(whole.disks, in_windows.disks, strict=True):
        assert (one.disk, one.seeks) == (other.disk, other.seeks)
        assert Counter(file.path for file in one.files) == Counter(file.path for file in other.files)
        places = [[file.address for file in disk.files if file.address is not None] for disk in (one, other)]
        assert not one.seeks or places[1] == places[0], "one sweep of the disk, however many looked for its files"

    # A part of the tree that was asked for is what all windows together have.
    third: Options = {"part": (1, 3, 7), **few}
    planned, expected = _shares.planned([str(root)], third), _shares.planned([str(root)], {"part": (1, 3, 7)})
    assert planned is not None and expected is not None
    names = [sorted(file.path for disk in found.disks for file in disk.files) for found in (planned, expected)]
    assert names[0] == names[1] and 0 < len(names[0]) < 2050
    # Directories are in each window.
    assert _shares.planned([str(root)], {"catalog_limit": 1}) is None


def test_what_fails_in_each_window_is_told_once(root: Path) -> None:
    for number in range(2000):
        (root / f"f{number}").touch()
    planned = _shares.planned([str(root), str(root / "gone")], {"catalog_limit": "64K"})
    assert planned is not None and sum(len(disk.files) for disk in planned.disks) == 2000
    assert [error.filename for error in planned.errors] == [str(root / "gone")]


def test_further_names_in_an_image_are_read_there(root: Path, tmp_path: Path) -> None:
    (root / "a").write_bytes(b"of three")
    os.link(root / "a", root / "b")
    os.link(root / "a", root / "c")
    image = tmp_path / "disk.img"
    with image.open("wb") as file:
        file.truncate(16 << 20)
    path = os.pathsep.join([os.environ["PATH"], "/usr/sbin", "/sbin"])
    mkfs = shutil.which("mkfs.ext4", path=path)
    if mkfs is None:
        pytest.skip("there is no mkfs.ext4")
    subprocess.run([mkfs, "-q", "-F", "-d", root, image], check=True)
    found = files([str(image)], Place(0, 1, 0, 1), 0, None, "", None, {"metadata": "auto"})
    assert {file.path: bytes(file.data) for file in found} == {f"{image}:/{name}": b"of three" for name in "abc"}


BREAKS = """
from onesweep import _shares

every_name = _shares.every_name

class Panic(BaseException):
    pass

def breaks(*given):
    for n, file in enumerate(every_name(*given)):
        if n == 20:
            raise Panic("a fault of the library's")
        yield file

_shares.every_name = breaks
"""


def test_a_sweep_that_ends_by_a_fault_is_an_error_and_no_end(
    root: Path, tree: dict[str, bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """A panic of the library's comes as an exception that is no ``Exception``."""
    (tmp_path / "sitecustomize.py").write_text(BREAKS)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    found = files([str(root)], Place(0, 1, 0, 2), 0, Rounds(), "key", None, {})
    with pytest.raises(ChildProcessError, match="has ended before"):
        list(found)
    assert "a fault of the library's" in capfd.readouterr().err


def test_its_memory_is_that_of_one_sweep(root: Path) -> None:
    """Files that wait in its hands count, so that those who are slow don't make it take more."""
    rng = random.Random(3)
    for n in range(200):
        (root / f"f{n:03}").write_bytes(rng.randbytes(1_000_000))
    rounds = Rounds()
    found = files([str(root)], Place(0, 1, 0, 2), 0, rounds, "key", None, {"budget": "8M"})
    next(found)
    (number,) = processes()
    peaks = []
    for n, _ in enumerate(found):
        if n % 20 == 0:
            status = Path(f"/proc/{number}/status").read_text().split("VmHWM:")
            peaks.append(int(status[1].split()[0]) >> 10)
    # Python, the budget, what is ahead and what is on its way; the files have 190 MiB.
    assert len(peaks) == 10 and peaks[-1] < 110, peaks


def stays(rounds: Rounds, told: Any) -> None:
    """Has its first file and is killed."""
    found = files([os.environ["ROOT"]], Place(0, 1, 0, 2), 0, rounds, "key", None, {})
    told.send(next(found).path)
    signal.pause()


def test_who_began_the_sweep_may_be_killed(
    root: Path, tree: dict[str, bytes], temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sweep is that of all: others read on, and it ends with the last of them."""
    monkeypatch.setenv("ROOT", str(root))
    rounds = Rounds()
    context = multiprocessing.get_context("fork")
    here, there = context.Pipe()
    first = context.Process(target=stays, args=(rounds, there))
    first.start()
    found = files([str(root)], Place(0, 1, 1, 2), 0, rounds, "key", None, {})
    # It is begun by who comes first.
    while not processes():
        time.sleep(0.01)
    paths = [next(found).path]
    paths.append(here.recv())
    assert not rounds_in(temporary), "all have come"
    os.kill(first.pid, signal.SIGKILL)
    first.join()
    paths += [file.path for file in found]
    assert len(paths) == len(set(paths)) and len(tree) - 32 < len(paths) <= len(tree), "but for what it was told last"


def test_who_is_killed_while_it_begins_leaves_it_to_the_next(temporary: Path) -> None:
    rounds = Rounds()
    context = multiprocessing.get_context("fork")

    def dies(directory: str) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    first = context.Process(target=lambda: rounds.join("key", 0, 2, dies, lambda path, stack: None))
    first.start()
    first.join()
    made: list[str] = []
    joined = rounds.join("key", 1, 2, made.append, lambda path, stack: path)
    assert len(made) == 1 and os.path.isdir(joined.shared)
    rounds.break_off(joined)


def test_a_sweep_that_nobody_comes_to_ends(root: Path, tree: dict[str, bytes], temporary: Path) -> None:
    directory = temporary / "round"
    directory.mkdir()
    process = _begun(str(directory), Task([str(root)], {}, 2))
    assert process.poll() is None
    _let_go(process)
    assert process.wait(60) == 0
    with ExitStack() as stack, pytest.raises(ChildProcessError):
        list(_Sweep(str(directory), 0, stack).files(None, {}))


def test_a_worker_that_comes_when_all_is_given_has_nothing(root: Path, tree: dict[str, bytes], temporary: Path) -> None:
    rounds = Rounds()
    first = [file.path for file in files([str(root)], Place(0, 1, 0, 2), 0, rounds, "key", None, {})]
    assert Counter(first) == Counter(list(tree))
    assert list(files([str(root)], Place(0, 1, 1, 2), 0, rounds, "key", None, {})) == []
