"""The eighteen directories FX1-FX18 and what has to be said about each.

`Fixture.write` fills an empty `Place`; `standing`, `head` and `codes` are the verdict on it. What
an operation makes of a directory (truncate, purge, serve a peer) is in `test_fixtures.py`.

Where the one line of a row leaves a choice, the strict reading is taken, and said here.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from keepfast.storage import Compression, Standing, Store
from keepfast.storage.locks import unlock_directory
from tests.storage.directories import Line, Place, line, packed, snapshot_bytes, zxid
from tests.storage.workload import OPTIONS, Server

NEWER, OLDER = 1_700_000_500.0, 1_700_000_000.0
GHOST_SESSION = 0x6050


@dataclass(frozen=True, slots=True)
class Fixture:
    """One directory. `codes`: problems that must be among those reported."""

    write: Callable[[Place], None]
    standing: Standing
    head: str | None  # None: there is no state that may be used
    codes: frozenset[str] = frozenset()


def _fx1(place: Place) -> None:
    """Snap 2.1; log 1.1,1.2; log 4.1."""
    history = line("1.1,1.2,2.1,4.1")
    place.snapshot("2.1", history.tree_at(zxid("2.1")))
    place.log("1.1,1.2", history)
    place.log("4.1", history)


def _fx2(place: Place) -> None:
    """Snap 0; log 1.1-1.3; snap 1.3."""
    history = line("1.1-1.3")
    place.snapshot("0.0", history.tree_at(zxid("0.0")))
    place.log("1.1-1.3", history)
    place.snapshot("1.3", history.tree_at(zxid("1.3")))


def _fx3(place: Place, has_digests: bool, snapshot_mtime: float, log_mtime: float) -> None:
    """Log 1.1,2.1; log 3.1; snap 2.1."""
    history = line("1.1,2.1,3.1")
    place.log("1.1,2.1", history, has_digests=has_digests, mtime=OLDER)
    place.log("3.1", history, has_digests=has_digests, mtime=log_mtime)
    tree = history.tree_at(zxid("2.1"))
    place.snapshot("2.1", tree, mtime=snapshot_mtime)


def _fx3_without_digests(place: Place) -> None:
    """The times are in order: nothing but the missing proof of 2.1 -> 3.1 is wrong."""
    _fx3(place, has_digests=False, snapshot_mtime=OLDER, log_mtime=NEWER)


def _fx3_with_digests(place: Place) -> None:
    """3.1 fits the tree, but the snapshot without it was written later."""
    _fx3(place, has_digests=True, snapshot_mtime=NEWER, log_mtime=OLDER)


def _snapshot_and_logs(history: Line, snapshot: str, *logs: str) -> Callable[[Place], None]:
    def write(place: Place) -> None:
        place.snapshot(snapshot, history.tree_at(zxid(snapshot)))
        for log in logs:
            # Without digests: the zxids alone have to give the hole away.
            place.log(log, history, has_digests=False)

    return write


def _fx7(place: Place) -> None:
    """Snap 1.0; log 1.1-1.5 with checksum and length of 1.2 zeroed; log 2.1."""
    history = line("1.1-1.5,2.1")
    place.snapshot("1.0", history.tree_at(zxid("1.0")))
    offsets = place.log("1.1-1.5", history)
    place.overwrite("log.100000001", offsets[zxid("1.2")], bytes(12))
    place.log("2.1", history)


def _fx8(place: Place) -> None:
    """Snap 1.0; log 1.1-1.3; the end mark of 1.2 is wrong."""
    history = line("1.1-1.3")
    place.snapshot("1.0", history.tree_at(zxid("1.0")))
    offsets = place.log("1.1-1.3", history)
    place.overwrite("log.100000001", offsets[zxid("1.3")] - 1, b"C")


def _fx9(place: Place) -> None:
    """Snap 1.0; log 1.1-1.5; three 12-byte .gz snapshots, at 1.3, 1.4 and 1.5."""
    history = line("1.1-1.5")
    place.snapshot("1.0", history.tree_at(zxid("1.0")))
    place.log("1.1-1.5", history)
    for at in ("1.3", "1.4", "1.5"):
        whole = packed(snapshot_bytes(history.tree_at(zxid(at))), Compression.GZIP)
        place.put(f"snapshot.{zxid(at):x}.gz", whole[:12])


def _fx10(place: Place) -> None:
    """Snap 1.10; one log 1.1-1.3,1.11-1.14."""
    history = line("1.1-1.14")
    place.snapshot("1.10", history.tree_at(zxid("1.10")))
    place.log("1.1-1.3,1.11-1.14", history)


def _fx11(place: Place) -> None:
    """Snap 3.4; one log 1.1,1.2,2.1(stale),3.5,3.6."""
    history = Line(line("1.1,1.2,2.1,3.1-3.6").znodes, line("1.1,1.2,3.1-3.6").txns)
    stale = history.but("1.1,1.2,2.1,3.1-3.6")
    place.snapshot("3.4", history.tree_at(zxid("3.4")))
    place.log("1.1,1.2,2.1", stale)
    both = place.contents("log.100000001").rstrip(b"\0")
    place.log("3.5,3.6", history)
    place.put("log.100000001", both + place.contents(f"log.{zxid('3.5'):x}")[16:])
    place.disk.remove(place.directory.in_logs(f"log.{zxid('3.5'):x}"))


def _fx12(place: Place) -> None:
    """Snap 1.0; snap 1.9 with a session and a bad seal.

    Strict: the name says that there were records up to 1.9, and they are nowhere.
    """
    history = line("1.1-1.9")
    place.snapshot("1.0", history.tree_at(zxid("1.0")))
    tree = history.tree_at(zxid("1.9"))
    tree.open_session(GHOST_SESSION, 30_000)
    place.snapshot("1.9", tree, bad_seal=True)


def _fx12_with_log(place: Place) -> None:
    """The same with the log 1.1-1.9, which opens no session."""
    _fx12(place)
    place.log("1.1-1.9", line("1.1-1.9"))


def _fx14(place: Place) -> None:
    """Two segments by Keepfast, closed; the last one is missing."""
    server = Server(place.disk, place.directory)
    server.start()
    server.write(20, 20)
    server.store.roll()
    server.write(20)
    server.close()
    place.disk.remove(place.directory.in_logs(server.store.manifest.segments[-1].name))


def _fx14_open(place: Place) -> None:
    """The same with the last segment still open, as a killed server leaves it."""
    server = Server(place.disk, place.directory)
    server.start()
    server.write(20, 20)
    place.disk.remove(place.directory.in_logs(server.store.manifest.segments[-1].name))
    unlock_directory(place.disk, place.directory)  # it ends with the process


def _fx15(place: Place) -> None:
    """Snap 1.0; log 1.1-1.3; log 1.4 of 8 bytes."""
    history = line("1.1-1.4")
    place.snapshot("1.0", history.tree_at(zxid("1.0")))
    place.log("1.1-1.3", history)
    place.put(f"log.{zxid('1.4'):x}", b"ZKLG\0\0\0\2")


def _fx15_keepfast(place: Place) -> None:
    """The 8-byte log lies in a directory of Keepfast's."""
    store, _ = Store.open(place.disk, place.directory, OPTIONS)
    store.initialise()
    store.close()
    place.put(f"log.{zxid('0.1'):x}", b"ZKLG\0\0\0\2")


def _fx17(place: Place) -> None:
    """Snap 1.2; snap 1.6 rotten; logs 1.3-1.6 gone; log 2.1."""
    history = line("1.1-1.6,2.1")
    place.snapshot("1.2", history.tree_at(zxid("1.2")))
    place.snapshot("1.6", history.tree_at(zxid("1.6")), bad_seal=True)
    place.log("2.1", history, has_digests=False)


def _fx18(place: Place, content: str) -> None:
    """Snap named 1.3 whose digest is of 1.5; log 2.1, without digests."""
    history = line("1.1-1.5,2.1")
    place.snapshot("1.3", history.tree_at(zxid(content)), ahead=zxid("1.5"))
    place.log("2.1", history, has_digests=False)


_BROKEN = frozenset({"history-broken"})

FIXTURES: dict[str, Fixture] = {
    "FX1": Fixture(_fx1, Standing.WHOLE, "4.1"),
    "FX2": Fixture(_fx2, Standing.WHOLE, "1.3"),
    "FX3-without-digests": Fixture(
        _fx3_without_digests, Standing.UNPROVEN, "3.1", frozenset({"unproven-join"})
    ),
    "FX3-with-digests": Fixture(
        _fx3_with_digests, Standing.UNPROVEN, "3.1", frozenset({"log-older-than-snapshot"})
    ),
    "FX4": Fixture(
        _snapshot_and_logs(line("1.1-1.32"), "1.10", "1.31,1.32"), Standing.DAMAGED, None, _BROKEN
    ),
    "FX5": Fixture(
        _snapshot_and_logs(line("1.1-1.31"), "1.10", "1.11,1.12", "1.31"),
        *(Standing.DAMAGED, None, _BROKEN),
    ),
    "FX6": Fixture(
        _snapshot_and_logs(line("1.1-1.12,2.1-2.31"), "1.10", "1.11,1.12", "2.31"),
        *(Standing.DAMAGED, None, _BROKEN),
    ),
    "FX7": Fixture(_fx7, Standing.DAMAGED, None, _BROKEN | {"log-damaged"}),
    "FX8": Fixture(_fx8, Standing.DAMAGED, None, _BROKEN | {"log-damaged"}),
    "FX9": Fixture(_fx9, Standing.WHOLE, "1.5", frozenset({"snapshot-damaged"})),
    "FX10": Fixture(_fx10, Standing.WHOLE, "1.14"),
    "FX11": Fixture(_fx11, Standing.WHOLE, "3.6"),
    "FX12": Fixture(_fx12, Standing.DAMAGED, None, _BROKEN | {"snapshot-damaged"}),
    "FX12-with-log": Fixture(
        _fx12_with_log, Standing.WHOLE, "1.9", frozenset({"snapshot-damaged"})
    ),
    # Like FX6: that there was a snapshot in between leaves no trace but the hole.
    "FX13": Fixture(
        _snapshot_and_logs(line("1.1-1.12,2.1-2.31"), "1.10", "1.11,1.12", "2.31"),
        *(Standing.DAMAGED, None, _BROKEN),
    ),
    "FX14": Fixture(_fx14, Standing.DAMAGED, None, _BROKEN),
    "FX14-open": Fixture(_fx14_open, Standing.DAMAGED, None, _BROKEN),
    "FX15": Fixture(_fx15, Standing.WHOLE, "1.3", frozenset({"torn-tail"})),
    "FX15-keepfast": Fixture(_fx15_keepfast, Standing.WHOLE, "0.0", frozenset({"empty-log"})),
    "FX16": Fixture(
        lambda place: place.epochs(None, 7), Standing.DAMAGED, None, frozenset({"history-lost"})
    ),
    "FX16-both": Fixture(
        lambda place: place.epochs(7, 7), Standing.DAMAGED, None, frozenset({"history-lost"})
    ),
    "FX17": Fixture(_fx17, Standing.DAMAGED, None, _BROKEN | {"snapshot-damaged"}),
    "FX18": Fixture(lambda place: _fx18(place, "1.5"), Standing.DAMAGED, None, _BROKEN),
    # The znodes are those of 1.3, only the digest is ahead.
    "FX18-digest-alone": Fixture(
        lambda place: _fx18(place, "1.3"), Standing.DAMAGED, None, _BROKEN
    ),
}
