"""What a path on the command line refers to, or one sentence on why it refers to nothing."""

from __future__ import annotations

import os
import pwd
from collections.abc import Iterator
from contextlib import contextmanager

from keepfast.cli.output import CommandFailed, ExitCode, Out, progress_bar
from keepfast.storage import DataDirectory, Disk, RealDisk, data_directory, disk_views
from keepfast.tree import path_problem

_WHAT_IS_EXPECTED = "expected is a dataDir of ZooKeeper or Keepfast, or its version-2"


def open_directory(disk: Disk, path: str, log_dir: str | None = None) -> DataDirectory:
    """The data directory at `path`; ends the command if there is none."""
    for place in (path, *([log_dir] if log_dir is not None else [])):
        _check_directory(disk, place)
    try:
        directory = data_directory(disk, path, log_dir)
        for place in directory.both:
            disk.list(place)
    except PermissionError as error:
        raise CommandFailed(
            f"{error.filename or path}: no permission to read it; run as the server's user"
        ) from error
    except FileNotFoundError as error:
        raise CommandFailed(
            f"{path} holds no data directory: no version-2, no log.* and no snapshot.*"
        ) from error
    return directory


def _check_directory(disk: Disk, path: str) -> None:
    if not disk.exists(path):
        check_permission(path)
        raise CommandFailed(f"{path} does not exist; {_WHAT_IS_EXPECTED}")
    if not disk.is_directory(path):
        raise CommandFailed(
            f"{path} is a file; {_WHAT_IS_EXPECTED} (keepfast inspect shows a single file)"
        )


def check_znode(path: str) -> None:
    """End the command if a path on the command line cannot be that of a znode."""
    problem = path_problem(path)
    if problem is not None:
        raise CommandFailed(f"{path!r} is not the path of a znode: it {problem}")


def check_permission(path: str) -> None:
    """End the command if `path` only seems to be missing: a folder above it may not be entered."""
    try:
        os.stat(path)
    except PermissionError as error:
        raise CommandFailed(
            f"{path}: no permission to read it; run as the server's user"
        ) from error
    except OSError:
        return


def check_owner(path: str) -> None:
    """End the command if root is about to write into the data directory of another user.

    The server of that user could not read what root leaves there.
    """
    owner = os.stat(path).st_uid
    if os.geteuid() == 0 and owner != 0:
        try:
            name = pwd.getpwuid(owner).pw_name
        except KeyError:
            name = f"#{owner}"
        raise CommandFailed(
            f"refused: {path} belongs to the user {name}, whose server could not read what root "
            f"writes there; run this as that user: runuser -u {name} -- keepfast ...",
            ExitCode.REFUSED,
        )


@contextmanager
def reading(what: str, total: int | None = None) -> Iterator[tuple[Disk, Out]]:
    """The real disk, through which nothing can be changed, and standard output.

    A progress bar shows long reads, of `total` bytes if that is known, until there is output.
    """
    with progress_bar(what, total) as bar:
        out = Out(before=bar.close)
        yield disk_views.ReadOnlyDisk(RealDisk(), bar.on_read), out
        out.flush()
