"""What is done to the files of a server that is down."""

from __future__ import annotations

import zlib
from pathlib import Path
from typing import Final

from keepfast.lab.process import LabError
from keepfast.storage import LogReader, RealDisk

_SEAL_TAIL: Final = b"\0\0\0\1/"
_SEAL_SIZE: Final = 8 + len(_SEAL_TAIL)
# From the end of a snapshot to its seals: 3.4 has one, 3.6 one more behind the digest, 3.9 one
# more behind the last zxid.
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


def lose_newest_snapshot(version_dir: Path) -> str:
    """Remove the newest snapshot; gives its name."""
    newest = snapshots(version_dir)[-1]
    newest.unlink()
    return newest.name


def lose_log(version_dir: Path, text: str) -> list[str]:
    """Remove the log that holds a text, and the snapshots that make up for it; gives the names.

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
    """Have the record that holds a text read as zeros; gives the log's name. Raises LabError."""
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
    """Put a text of the same length in place of another in the newest snapshot; gives its name.

    All seals are made right again, so that only the digest of the tree tells. Raises LabError.
    """
    newest = snapshots(version_dir)[-1]
    content = newest.read_bytes()
    if old.encode() not in content or len(old.encode()) != len(new.encode()):
        raise LabError(f"{newest} has no {old} that {new} could take the place of")
    seals = [
        at for at in (len(content) - back for back in _SEALS_FROM_END) if _is_seal(content, at)
    ]
    if not seals:
        raise LabError(f"{newest} has no seal")
    changed = bytearray(content.replace(old.encode(), new.encode()))
    # Each covers everything before it, earlier seals included.
    for at in seals:
        changed[at : at + 8] = zlib.adler32(changed[:at]).to_bytes(8, "big")
    newest.write_bytes(changed)
    return newest.name


def _is_seal(content: bytes, at: int) -> bool:
    expected = zlib.adler32(content[:at]).to_bytes(8, "big") + _SEAL_TAIL
    return at > 0 and content[at : at + _SEAL_SIZE] == expected
