"""What is done to the files of a server that is down."""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from keepfast.lab.lab_server import LabError
from keepfast.storage import LogReader, RealDisk

_SEAL_TAIL: Final = b"\0\0\0\1/"
_SEAL_SIZE: Final = 8 + len(_SEAL_TAIL)
# From the end of a snapshot to its seals: 3.4 has one, 3.6 one more after the digest, 3.9 one
# more after the last zxid.
_DIGEST_PART: Final = 20 + _SEAL_SIZE
_LAST_ZXID_PART: Final = 8 + _SEAL_SIZE
_SEALS_FROM_END: Final = (
    _SEAL_SIZE + _DIGEST_PART + _LAST_ZXID_PART,
    _SEAL_SIZE + _DIGEST_PART,
    _SEAL_SIZE + _LAST_ZXID_PART,
    _SEAL_SIZE,
)


def zxid_of(path: Path) -> int:
    """The zxid in the name of a log or a snapshot."""
    return int(path.name.split(".")[1], 16)


def snapshots(version_dir: Path) -> list[Path]:
    """Snapshots with a live name, oldest first."""
    found = [path for path in version_dir.glob("snapshot.*") if not path.name.endswith(".tmp")]
    return sorted(found, key=zxid_of)


def newest_whole(version_dir: Path) -> Path | None:
    """The newest snapshot that is whole: Apache's servers write theirs in place."""
    for path in reversed(snapshots(version_dir)):
        if _seals(path.read_bytes()):
            return path
    return None


def is_in_newest(version_dir: Path, text: str) -> bool:
    """Whether the newest whole snapshot holds a text."""
    newest = newest_whole(version_dir)
    return newest is not None and text.encode() in newest.read_bytes()


def lose_newest_snapshot(version_dir: Path) -> str:
    """Remove the newest snapshot; returns its name."""
    newest = snapshots(version_dir)[-1]
    newest.unlink()
    return newest.name


def lose_snapshots_without(version_dir: Path, text: str) -> list[str]:
    """Remove all snapshots that do not hold a text; returns their names."""
    lost = [path for path in snapshots(version_dir) if text.encode() not in path.read_bytes()]
    for path in lost:
        path.unlink()
    return [path.name for path in lost]


def files(version_dir: Path) -> dict[str, bytes]:
    """Every log and snapshot with its bytes, for `undo_trunc` and `put_back_snapshot`."""
    return {
        path.name: path.read_bytes()
        for path in version_dir.iterdir()
        if path.name.startswith(("log.", "snapshot."))
    }


def undo_trunc(version_dir: Path, before: Mapping[str, bytes]) -> list[str]:
    """Give the logs back what a TRUNC cut off, and take the snapshot that it made.

    That is what a power cut leaves where neither is fsynced. Returns the names.
    """
    changed = []
    for name, content in before.items():
        path = version_dir / name
        if name.startswith("log.") and (not path.exists() or path.read_bytes() != content):
            path.write_bytes(content)
            changed.append(name)
    for path in snapshots(version_dir):
        if path.name not in before:
            path.unlink()
            changed.append(path.name)
    return changed


def put_back_snapshot(version_dir: Path, before: Mapping[str, bytes], text: str) -> None:
    """Bring back the newest snapshot that is gone and holds a text. Raises LabError."""
    gone = [
        name
        for name, content in before.items()
        if name.startswith("snapshot.")
        and text.encode() in content
        and not (version_dir / name).exists()
    ]
    if not gone:
        raise LabError(f"no snapshot of {text} has gone from {version_dir}")
    name = max(gone, key=lambda one: zxid_of(Path(one)))
    (version_dir / name).write_bytes(before[name])


def lose_log(version_dir: Path, text: str) -> list[str]:
    """Remove the log that holds a text, and the snapshots that make up for it; returns the names.

    Raises LabError where no log holds it.
    """
    for log in sorted(version_dir.glob("log.*"), key=zxid_of):
        if text.encode() in log.read_bytes():
            lost = [log, *(one for one in snapshots(version_dir) if zxid_of(one) >= zxid_of(log))]
            for path in lost:
                path.unlink()
            return [path.name for path in lost]
    raise LabError(f"no log in {version_dir} holds {text}")


def zero_record(version_dir: Path, text: str) -> str:
    """Have the record that holds a text read as zeros; returns the log's name. Raises LabError."""
    for path in sorted(version_dir.glob("log.*"), key=zxid_of):
        with RealDisk().open_read(str(path)) as file:
            frames = [frame for frame in LogReader(file) if text.encode() in frame.entry]
        if frames:
            with path.open("r+b") as log:
                log.seek(frames[0].offset)
                log.write(bytes(frames[0].end - frames[0].offset))
            return path.name
    raise LabError(f"no log in {version_dir} holds {text}")


def change_in_snapshot(version_dir: Path, old: str, new: str) -> str:
    """Put a text of the same length instead of another in the newest snapshot; returns its name.

    Of the whole ones: a kill may leave a part. All seals are made right again, so that only the
    digest of the tree shows. Raises LabError.
    """
    newest = newest_whole(version_dir)
    if newest is None:
        raise LabError(f"no snapshot in {version_dir} is whole")
    content = newest.read_bytes()
    if old.encode() not in content or len(old.encode()) != len(new.encode()):
        raise LabError(f"{newest} has no {old} that {new} could take the place of")
    changed = bytearray(content.replace(old.encode(), new.encode()))
    # Each covers everything before it, earlier seals included.
    for at in _seals(content):
        changed[at : at + 8] = zlib.adler32(changed[:at]).to_bytes(8, "big")
    newest.write_bytes(changed)
    return newest.name


def _seals(content: bytes) -> list[int]:
    """Where the seals of a snapshot are, in order; none if it is a part of one."""
    places = (len(content) - back for back in _SEALS_FROM_END)
    return [at for at in places if _is_seal(content, at)]


def _is_seal(content: bytes, at: int) -> bool:
    expected = zlib.adler32(content[:at]).to_bytes(8, "big") + _SEAL_TAIL
    return at > 0 and content[at : at + _SEAL_SIZE] == expected
