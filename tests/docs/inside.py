"""The first process of a machine: `python -m tests.docs.inside ROOT`, below `unshare`.

Makes the root of the machine in ROOT and becomes a shell in it. Everything of the real machine is
there, but `/etc`, `/var` and `/srv` are its own (`/etc` is a copy), and so is the network. What is
made there goes with the last process.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import shutil
import socket
import struct
import sys
from pathlib import Path
from typing import Final

FOLDER: Final = "/srv/here"
HOME: Final = "/srv/home"

_MS_BIND: Final = 0x1000
_MS_REC: Final = 0x4000
_SIOCSIFFLAGS: Final = 0x8914
_IFF_UP: Final = 0x1
_OWN: Final = ("etc", "var", "srv")
_FOLDERS: Final = ("var/lib", "var/log", "var/tmp", "var/backups", FOLDER[1:], HOME[1:])
# Three machines, for pages that speak of three: one address each.
_HOSTS: Final = """\
127.0.0.1 localhost {name} zk1 zk1.example.com s3.example.com
127.0.0.2 zk2 zk2.example.com
127.0.0.3 zk3 zk3.example.com
::1 localhost
"""

_libc = ctypes.CDLL(None, use_errno=True)


def _mount(source: str, target: Path, kind: str, flags: int) -> None:
    names = (source.encode(), bytes(target), kind.encode())
    if _libc.mount(*names, ctypes.c_ulong(flags), None) != 0:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error), str(target))


def _raise_loopback() -> None:
    with socket.socket() as any_socket:
        request = struct.pack("16sh14x", b"lo", _IFF_UP)
        fcntl.ioctl(any_socket, _SIOCSIFFLAGS, request)


def _make_root(root: Path) -> None:
    _mount("tmpfs", root, "tmpfs", 0)
    for entry in os.scandir("/"):
        place = root / entry.name
        if entry.is_symlink():
            place.symlink_to(os.readlink(entry))
        elif entry.is_dir() and entry.name not in _OWN:
            place.mkdir()
            _mount(entry.path, place, "", _MS_BIND | _MS_REC)
    for folder in _FOLDERS:
        (root / folder).mkdir(parents=True)
    try:
        shutil.copytree("/etc", root / "etc", symlinks=True)
    except shutil.Error:
        # What only the system's administrator may read; no command of the pages does.
        pass
    hosts = root / "etc" / "hosts"
    hosts.unlink(missing_ok=True)
    hosts.write_text(_HOSTS.format(name=socket.gethostname()))
    for needed in {Path.cwd(), Path(sys.prefix), Path(sys.base_prefix)}:
        if needed.parts[1] in _OWN:
            place = root / needed.relative_to("/")
            place.mkdir(parents=True, exist_ok=True)
            _mount(str(needed), place, "", _MS_BIND | _MS_REC)


def main(root: Path) -> None:
    """Make the machine and become its shell, which reads commands from standard input."""
    _raise_loopback()
    _make_root(root)
    os.chroot(root)
    os.chdir(FOLDER)
    os.execvp("bash", ["bash", "--noprofile", "--norc"])


if __name__ == "__main__":
    main(Path(sys.argv[1]))
