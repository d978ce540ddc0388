"""Power cuts for single processes: what they wrote and did not sync is taken back.

A library that is loaded before libc notes what each write replaces, and each sync that was done,
in a journal beside the server's directory. When the process is dead, `cut` puts back what was
replaced by writes that no sync followed. It can also make syncs slow, as a busy disk does: the time
between a write and its sync is the time in which a server must not speak of the write.

Names are not tracked: a new name is there after the cut, as if its directory had been synced. The
storage tests lose those, too, on a disk in memory.
"""

from __future__ import annotations

import os
import shutil
import struct
import subprocess
from pathlib import Path
from typing import NamedTuple

_LIBRARY_SOURCE = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>
struct note { uint64_t kind, inode, offset, length, size, order; };
enum { WRITE = 1, SYNC = 2, EMPTY = 3 };
static int journal = -1;
static volatile int64_t *sync_ms;
static uint64_t count;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
#define REAL(name) ({ static __typeof__(&name) real; \
    if (!real) real = dlsym(RTLD_NEXT, #name); real; })

__attribute__((constructor)) static void begin(void) {
    const char *path = getenv("KEEPFAST_TEST_JOURNAL"), *slow = getenv("KEEPFAST_TEST_SYNC_MS");
    int file = slow ? REAL(open)(slow, O_RDONLY) : -1;
    void *page = file < 0 ? MAP_FAILED : mmap(0, 8, PROT_READ, MAP_SHARED, file, 0);
    if (page != MAP_FAILED) sync_ms = page;
    if (path) journal = REAL(open)(path, O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC, 0600);
}
static void put(uint64_t kind, uint64_t inode, uint64_t offset, uint64_t length, uint64_t size,
                uint64_t order, void *old, size_t kept) {
    struct note note = {kind, inode, offset, length, size, order};
    struct iovec parts[2] = {{&note, sizeof note}, {old, kept}};
    if (writev(journal, parts, 2) != (ssize_t)(sizeof note + kept)) abort();
}
static ssize_t write_noted(int file, const void *data, size_t length, off_t offset) {
    struct stat found;
    if (journal >= 0 && !fstat(file, &found) && S_ISREG(found.st_mode)) {
        size_t kept = offset >= found.st_size ? 0 : found.st_size - offset;
        if (kept > length) kept = length;
        char *old = malloc(kept + 1);
        ssize_t read = kept ? pread(file, old, kept, offset) : 0;
        if (!old || read != (ssize_t)kept) abort();
        pthread_mutex_lock(&lock);
        put(WRITE, found.st_ino, offset, length, kept, count++, old, kept);
        pthread_mutex_unlock(&lock);
        free(old);
    }
    return REAL(pwrite)(file, data, length, offset);
}
ssize_t pwrite(int file, const void *data, size_t length, off_t offset) {
    return write_noted(file, data, length, offset);
}
ssize_t pwrite64(int file, const void *data, size_t length, off_t offset) {
    return write_noted(file, data, length, offset);
}
static int synced(int file, int (*sync)(int)) {
    uint64_t before;
    struct stat found;
    pthread_mutex_lock(&lock);
    before = count;
    pthread_mutex_unlock(&lock);
    if (sync_ms && *sync_ms > 0) {
        struct timespec pause = {*sync_ms / 1000, *sync_ms % 1000 * 1000000};
        nanosleep(&pause, 0);
    }
    int code = sync(file);
    if (!code && journal >= 0 && !fstat(file, &found) && S_ISREG(found.st_mode)) {
        pthread_mutex_lock(&lock);
        put(SYNC, found.st_ino, 0, 0, 0, before, 0, 0);
        pthread_mutex_unlock(&lock);
    }
    return code;
}
int fsync(int file) { return synced(file, REAL(fsync)); }
int fdatasync(int file) { return synced(file, REAL(fdatasync)); }
static int opened(int file, int flags) {
    struct stat found;
    if (file >= 0 && journal >= 0 && (flags & (O_CREAT | O_TRUNC)) && !fstat(file, &found)
        && S_ISREG(found.st_mode) && !found.st_size) {
        pthread_mutex_lock(&lock);
        put(EMPTY, found.st_ino, 0, 0, 0, count, 0, 0);
        pthread_mutex_unlock(&lock);
    }
    return file;
}
#define MODE ({ va_list rest; va_start(rest, flags); \
    mode_t found = va_arg(rest, mode_t); va_end(rest); found; })
int open(const char *path, int flags, ...) {
    return opened(REAL(open)(path, flags, MODE), flags);
}
int open64(const char *path, int flags, ...) {
    return opened(REAL(open)(path, flags | O_LARGEFILE, MODE), flags);
}
int openat(int at, const char *path, int flags, ...) {
    return opened(REAL(openat)(at, path, flags, MODE), flags);
}
int openat64(int at, const char *path, int flags, ...) {
    return opened(REAL(openat)(at, path, flags | O_LARGEFILE, MODE), flags);
}
"""

_NOTE = struct.Struct("=6Q")
_WRITE, _SYNC, _EMPTY = 1, 2, 3


class _Undo(NamedTuple):
    """A write that no sync has followed: where it was, and what it replaced."""

    inode: int
    offset: int
    length: int
    old: bytes


class Power:
    """The power of one server, which can be cut once its process is dead."""

    def __init__(self, root: Path, id: int) -> None:
        self._journal = root / f"journal-{id}"
        self._sync_ms = root / f"sync-ms-{id}"
        self._library = root / "power.so"
        self._sync_ms.write_bytes(bytes(8))

    def slow_down(self, milliseconds: int) -> None:
        """Have every sync take so much longer."""
        # In place: the process has the file mapped.
        with self._sync_ms.open("r+b") as file:
            file.write(struct.pack("=q", milliseconds))

    def add_to(self, environment: dict[str, str]) -> dict[str, str]:
        """The environment of a process whose power this is."""
        libraries = [environment.get("LD_PRELOAD", ""), str(self._library)]
        return environment | {
            "KEEPFAST_TEST_JOURNAL": str(self._journal),
            "KEEPFAST_TEST_SYNC_MS": str(self._sync_ms),
            "LD_PRELOAD": " ".join(filter(None, libraries)),
        }

    def cut(self, directory: Path, kept: float = 0.0) -> int:
        """Take back what was not synced, but for this first part of it; gives how many writes."""
        pending = self._pending()
        lost = pending[int(kept * len(pending)) :]
        places = {path.stat().st_ino: path for path in directory.rglob("*") if path.is_file()}
        for undo in reversed(lost):
            if undo.inode in places:
                with places[undo.inode].open("r+b") as file:
                    # Where the file was shorter its size may arrive before the bytes do.
                    size = os.fstat(file.fileno()).st_size
                    file.seek(undo.offset)
                    file.write(undo.old.ljust(min(undo.length, size - undo.offset), b"\0"))
        return len(lost)

    def _pending(self) -> list[_Undo]:
        data = self._journal.read_bytes()
        found: dict[int, _Undo] = {}
        at = 0
        while at + _NOTE.size <= len(data):
            kind, inode, offset, length, size, order = _NOTE.unpack_from(data, at)
            at += _NOTE.size
            if kind == _WRITE:
                if at + size > len(data):
                    break  # it died before the write itself
                found[order] = _Undo(inode, offset, length, data[at : at + size])
                at += size
            else:
                found = {n: one for n, one in found.items() if one.inode != inode or n >= order}
        return [found[order] for order in sorted(found)]


def make_power(root: Path, ids: list[int]) -> dict[int, Power]:
    """Power for these servers; none where there is no C compiler."""
    compiler = shutil.which("cc")
    if compiler is None:
        return {}
    source, library = root / "power.c", root / "power.so"
    source.write_text(_LIBRARY_SOURCE)
    made = subprocess.run(
        [compiler, "-shared", "-fPIC", "-O1", "-o", str(library), str(source), "-ldl"],
        capture_output=True,
        check=False,
    )
    return {id: Power(root, id) for id in ids} if made.returncode == 0 else {}
