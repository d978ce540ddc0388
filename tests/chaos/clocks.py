"""Wall clocks that can be set, for single processes: a library that is loaded before libc."""

from __future__ import annotations

import shutil
import struct
import subprocess
from pathlib import Path

_CLOCK_SOURCE = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>
static volatile int64_t *offset_ms;
__attribute__((constructor)) static void begin(void) {
    const char *path = getenv("KEEPFAST_TEST_CLOCK");
    int file = path ? open(path, O_RDONLY) : -1;
    void *page = file < 0 ? MAP_FAILED : mmap(0, 8, PROT_READ, MAP_SHARED, file, 0);
    if (page != MAP_FAILED) offset_ms = page;
}
int clock_gettime(clockid_t clock, struct timespec *found) {
    static int (*real)(clockid_t, struct timespec *);
    if (!real) real = dlsym(RTLD_NEXT, "clock_gettime");
    int code = real(clock, found);
    if (!code && offset_ms && clock == CLOCK_REALTIME) found->tv_sec += *offset_ms / 1000;
    return code;
}
"""


class Clock:
    """The wall clock of one process, which can be set."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.set_back(0)

    def set_back(self, seconds: float) -> None:
        # In place: the process has the file mapped.
        mode = "r+b" if self.path.exists() else "w+b"
        with self.path.open(mode) as file:
            file.write(struct.pack("=q", int(-seconds * 1000)))

    @property
    def environment(self) -> dict[str, str]:
        """For the process."""
        library = self.path.parent / "clock.so"
        return {"KEEPFAST_TEST_CLOCK": str(self.path), "LD_PRELOAD": str(library)}


def make_clocks(root: Path, ids: list[int]) -> dict[int, Clock]:
    """Clocks for these servers; none where there is no C compiler."""
    compiler = shutil.which("cc")
    if compiler is None:
        return {}
    source, library = root / "clock.c", root / "clock.so"
    source.write_text(_CLOCK_SOURCE)
    made = subprocess.run(
        [compiler, "-shared", "-fPIC", "-O1", "-o", str(library), str(source), "-ldl"],
        capture_output=True,
        check=False,
    )
    return {id: Clock(root / f"clock-{id}") for id in ids} if made.returncode == 0 else {}
