"""Exceptions. All are below OSError; arguments that can't be are ValueError and TypeError.

What the kernel said picks a second base: a ReadError for EACCES is a PermissionError too, a RootError for ENOENT a
FileNotFoundError.
"""

from __future__ import annotations

import builtins
import io
import os
from typing import TypeAlias

Path: TypeAlias = str | bytes


class Error(OSError):
    """What all exceptions of this package are.

    ``errno`` is what the kernel said, or None where it wasn't asked; ``filename`` the path, or None. As text it is one line: the
    path, what was tried, and why it failed.
    """

    _message: str = ""

    def __str__(self) -> str:
        return self._message or super().__str__()

    def __reduce__(self) -> tuple[object, ...]:
        # Classes that are made for a second base have no name that could be imported.
        name = next(cls.__name__ for cls in type(self).__mro__ if cls.__module__ == __name__ and cls.__name__ in _CLASSES)
        return make, (name, self.errno, self.strerror, self.filename, self._message)


class SweepError(Error):
    """The sweep could not begin."""


class RootError(SweepError):
    """A named path or descriptor can't be used, and no other was named that can."""


class DeviceError(SweepError):
    """The block device below a path can't be read directly (``device=True``)."""


class SnapshotError(SweepError):
    """A file system can't be held at one moment (``snapshot=True``)."""


class SystemError(SweepError):
    """The system refused something that every sweep needs: the table of mounts, a thread."""


class StoppedError(Error):
    """The sweep of a whole disk ended early: what is missing was not read."""


class CancelledError(Error):
    """It was closed before everything was handed over."""


class FileError(Error):
    """A file failed. The sweep goes on."""


class VanishedError(FileError):
    """The file was listed by its directory and was gone when it was needed, or an image has nothing of that name."""


class ReadError(FileError):
    """A system call on the file failed."""


class ChangedError(FileError):
    """Each reading of the file met a change."""


class LoopError(FileError):
    """A directory that is its own ancestor through a mount; it is not entered again."""


class NotOneMomentError(FileError):
    """What was swept is not from one moment, though it was to be (``snapshot=True``)."""


class NoContentError(FileError, io.UnsupportedOperation):
    """There is no content: not a regular file, released before, or from a walk."""


class ServiceError(Error):
    """The server of directory summaries can't be asked, or could not answer."""


_CLASSES: dict[str, type[Error]] = {
    cls.__name__: cls
    for cls in (
        Error,
        SweepError,
        RootError,
        DeviceError,
        SnapshotError,
        SystemError,
        StoppedError,
        CancelledError,
        FileError,
        VanishedError,
        ReadError,
        ChangedError,
        LoopError,
        NotOneMomentError,
        NoContentError,
        ServiceError,
    )
}


_WITH_BASE: dict[tuple[type[Error], type[OSError]], type[Error]] = {}


def _with_base(cls: type[Error], base: type[OSError]) -> type[Error]:
    if base is OSError or issubclass(cls, base):
        return cls
    # Two threads that make the same class at the same time get the same one.
    return _WITH_BASE.get((cls, base)) or _WITH_BASE.setdefault((cls, base), _derived(cls, base))


def _derived(cls: type[Error], base: type[OSError]) -> type[Error]:
    # By its qualified name the class itself can be pickled, as a worker of PyTorch does that tells of its failure.
    name = f"{cls.__name__}_{base.__name__}"
    return type(cls.__name__, (cls, base), {"__module__": cls.__module__, "__doc__": cls.__doc__, "__qualname__": name})


def __getattr__(name: str) -> type[Error]:
    """A class of this module with a second base, also where none of it was made yet."""
    own, _, second = name.partition("_")
    cls, base = _CLASSES.get(own), getattr(builtins, second, None)
    if cls is None or not (isinstance(base, type) and issubclass(base, OSError)):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return _with_base(cls, base)


def make(name: str, errno: int | None, strerror: str | None, filename: Path | None, message: str) -> Error:
    """An exception of that name."""
    said = strerror or (os.strerror(errno) if errno is not None else message)
    base = OSError if errno is None else type(OSError(errno, said))
    error = _with_base(_CLASSES[name], base)(errno, said, filename)
    error._message = message
    return error
