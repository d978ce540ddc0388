"""Small memory disks, and what a crash may leave of them."""

from keepfast.sim.memory_disk import MemoryDisk

OLD = b"o" * 512
NEW = b"n" * 512
ZERO = bytes(512)


def disk_with(**files: bytes) -> MemoryDisk:
    disk = MemoryDisk()
    disk.make_directory("/d")
    disk.settle()
    for name, data in files.items():
        disk.put(f"/d/{name}", data)
    return disk


def outcomes(disk: MemoryDisk, path: str = "/d/f") -> set[bytes | None]:
    return {state.files().get(path) for state in disk.crash_states()}


def trees(disk: MemoryDisk) -> list[dict[str, bytes]]:
    return [state.files() for state in disk.crash_states()]


def write(disk: MemoryDisk, offset: int, data: bytes, path: str = "/d/f") -> None:
    with disk.open_write(path) as file:
        file.write_at(offset, data)
