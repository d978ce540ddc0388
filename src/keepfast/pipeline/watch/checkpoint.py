"""What a watch knows, in one SQLite file: it is killed at any time and continues where it was.

Everything that one look changes is one transaction, synced to the disk: a look that was cut short
was never made.  One process at a time holds the file.
"""

from __future__ import annotations

import fcntl
import os
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from keepfast.pipeline.decode.events import ZNODE, Rows
from keepfast.pipeline.decode.gather import Ints
from keepfast.pipeline.decode.hashing import Hashes
from keepfast.wire import KeepfastError

# Of another form: everything is read again, nothing is guessed.
_FORM = 1
_AT_ONCE = 500
_TABLES = """
CREATE TABLE IF NOT EXISTS texts (kind TEXT, name TEXT, value BLOB, PRIMARY KEY (kind, name))
  WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS znodes (ensemble TEXT, path INTEGER, owner INTEGER, value BLOB,
  PRIMARY KEY (ensemble, path)) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS znodes_owner ON znodes (ensemble, owner) WHERE owner != 0;
CREATE TABLE IF NOT EXISTS changes (ensemble TEXT, last INTEGER, value BLOB,
  PRIMARY KEY (ensemble, last)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS findings (id INTEGER PRIMARY KEY, key TEXT, opened REAL, closed REAL,
  value BLOB);
CREATE TABLE IF NOT EXISTS alerts (id INTEGER PRIMARY KEY, value BLOB);
"""

# One change of one znode: what it added to our digest before, and after it.
CHANGE = np.dtype([("zxid", "i8"), ("path", "u8"), ("before", "u8"), ("after", "u8")])


class CheckpointBusy(KeepfastError):  # noqa: N818 - a refusal
    """Another process watches with this checkpoint; `str()` is the sentence."""


class CheckpointUnusable(KeepfastError):  # noqa: N818 - a refusal
    """The checkpoint cannot be used; `str()` is the sentence."""


class Checkpoint:
    """What a watch knows, in an SQLite file that one watch at a time may hold."""

    def __init__(self, path: str) -> None:
        self.path = path
        try:
            Path(path).parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._lock = os.open(f"{path}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise CheckpointUnusable(
                f"{error.filename}: {error.strerror}; name another file with --checkpoint"
            ) from error
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            os.close(self._lock)
            raise CheckpointBusy(
                f"{path} is in use by another keepfast watch; end that one, or name another file "
                "with --checkpoint"
            ) from error
        try:
            self._database = self._opened()
        except sqlite3.OperationalError as error:
            os.close(self._lock)
            raise CheckpointUnusable(f"{path} cannot be written: {error}") from error
        except sqlite3.DatabaseError as error:
            os.close(self._lock)
            raise CheckpointUnusable(
                f"{path} is no checkpoint of a watch ({error}); move it away, or name another file "
                "with --checkpoint"
            ) from error

    def _opened(self) -> sqlite3.Connection:
        os.close(os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
        database = sqlite3.connect(self.path, isolation_level=None)
        database.execute("PRAGMA journal_mode = WAL")
        database.execute("PRAGMA synchronous = FULL")
        (form,) = database.execute("PRAGMA user_version").fetchone()
        if form not in (0, _FORM):
            database.close()
            raise sqlite3.DatabaseError(f"its form is {form}, this version writes {_FORM}")
        database.executescript(_TABLES)
        database.execute(f"PRAGMA user_version = {_FORM}")
        return database

    def close(self) -> None:
        """Let go of the file."""
        self._database.close()
        os.close(self._lock)

    @contextmanager
    def changing(self) -> Iterator[None]:
        """All changes of the block, or none of them; raises CheckpointUnusable on a full disk."""
        try:
            self._database.execute("BEGIN IMMEDIATE")
            yield
            self._database.execute("COMMIT")
        except sqlite3.OperationalError as error:
            raise CheckpointUnusable(f"{self.path} cannot be written: {error}") from error
        finally:
            # SQLite itself may have ended it.
            if self._database.in_transaction:
                self._database.execute("ROLLBACK")

    # -- texts: facts of files, positions ----------------------------------------------------------

    def texts(self, kind: str) -> dict[str, bytes]:
        """All texts of a kind, by name."""
        rows = self._database.execute("SELECT name, value FROM texts WHERE kind = ?", (kind,))
        return {name: bytes(value) for name, value in rows}

    def put_text(self, kind: str, name: str, value: bytes) -> None:
        """Write one text."""
        self._database.execute("REPLACE INTO texts VALUES (?, ?, ?)", (kind, name, value))

    def drop_text(self, kind: str, name: str) -> None:
        """Forget one text."""
        self._database.execute("DELETE FROM texts WHERE kind = ? AND name = ?", (kind, name))

    # -- the last state of each path ---------------------------------------------------------------

    def znodes(self, ensemble: str, paths: Hashes) -> Rows:
        """The rows of these paths that are there."""
        found = [np.empty(0, ZNODE)]
        keys = paths.astype(np.int64).tolist()
        for at in range(0, len(keys), _AT_ONCE):
            some = keys[at : at + _AT_ONCE]
            marks = ",".join("?" * len(some))
            query = f"SELECT value FROM znodes WHERE ensemble = ? AND path IN ({marks})"
            values = [value for (value,) in self._database.execute(query, (ensemble, *some))]
            found.append(np.frombuffer(b"".join(values), ZNODE))
        return np.concatenate(found)

    def owned_by(self, ensemble: str, sessions: Ints) -> Rows:
        """The ephemerals of some sessions."""
        query = "SELECT value FROM znodes WHERE ensemble = ? AND owner = ? AND owner != 0"
        values = [
            value
            for session in np.unique(sessions).tolist()
            for (value,) in self._database.execute(query, (ensemble, session))
        ]
        return np.frombuffer(b"".join(values), ZNODE)

    def put_znodes(self, ensemble: str, rows: Rows) -> None:
        """Write the last state of paths."""
        size = ZNODE.itemsize
        raw = rows.tobytes()
        paths = rows["path"].astype(np.int64).tolist()
        owners = rows["stat"]["owner"].tolist()
        self._database.executemany(
            "REPLACE INTO znodes VALUES (?, ?, ?, ?)",
            (
                (ensemble, path, owner, raw[at * size : (at + 1) * size])
                for at, (path, owner) in enumerate(zip(paths, owners, strict=True))
            ),
        )

    def drop_znodes(self, ensemble: str, paths: Iterable[int] | None = None) -> None:
        """Forget some paths, or all of them."""
        if paths is None:
            self._database.execute("DELETE FROM znodes WHERE ensemble = ?", (ensemble,))
            return
        query = "DELETE FROM znodes WHERE ensemble = ? AND path = ?"
        self._database.executemany(query, ((ensemble, path) for path in paths))

    # -- the changes of late -----------------------------------------------------------------------

    def changes_after(self, ensemble: str, zxid: int) -> NDArray[np.void]:
        """The changes after a zxid, in order."""
        rows = self._database.execute(
            "SELECT value FROM changes WHERE ensemble = ? AND last > ? ORDER BY last",
            (ensemble, zxid),
        )
        found = np.frombuffer(b"".join(value for (value,) in rows), CHANGE)
        wanted: NDArray[np.void] = found[found["zxid"] > zxid]
        return wanted

    def add_changes(self, ensemble: str, last: int, changes: NDArray[np.void]) -> None:
        """The changes up to the record `last`, after those before."""
        values = (ensemble, last, changes.tobytes())
        self._database.execute("REPLACE INTO changes VALUES (?, ?, ?)", values)

    def first_change(self, ensemble: str, max_bytes: int) -> int | None:
        """The last zxid of the changes that are too many; None if there are not."""
        size = 0
        query = "SELECT last, length(value) FROM changes WHERE ensemble = ? ORDER BY last DESC"
        for last, length in self._database.execute(query, (ensemble,)):
            size += length
            if size > max_bytes:
                return int(last)
        return None

    def drop_changes(self, ensemble: str, up_to: int | None = None) -> None:
        """Forget the changes up to a zxid, or all of them."""
        most = (1 << 63) - 1 if up_to is None else up_to
        query = "DELETE FROM changes WHERE ensemble = ? AND last <= ?"
        self._database.execute(query, (ensemble, most))

    # -- findings and alerts -----------------------------------------------------------------------

    def findings(self, *, is_open: bool) -> list[tuple[int, str, float, float | None, bytes]]:
        """The findings that are open, or all of them, oldest first."""
        query = "SELECT id, key, opened, closed, value FROM findings"
        query += " WHERE closed IS NULL" if is_open else ""
        return list(self._database.execute(query + " ORDER BY id"))

    def open_finding(self, key: str, at: float, value: bytes) -> None:
        """Note a finding that was not there before."""
        query = "INSERT INTO findings (key, opened, value) VALUES (?, ?, ?)"
        self._database.execute(query, (key, at, value))

    def change_finding(self, number: int, value: bytes, closed: float | None) -> None:
        """Note what an open finding says now, or that it is no longer there."""
        query = "UPDATE findings SET value = ?, closed = ? WHERE id = ?"
        self._database.execute(query, (value, closed, number))

    def alerts(self) -> list[tuple[int, bytes]]:
        """What the webhook was not sent yet, oldest first."""
        return list(self._database.execute("SELECT id, value FROM alerts ORDER BY id LIMIT 100"))

    def add_alert(self, value: bytes) -> None:
        """Something to send to the webhook."""
        self._database.execute("INSERT INTO alerts (value) VALUES (?)", (value,))

    def drop_alert(self, number: int) -> None:
        """It was sent."""
        self._database.execute("DELETE FROM alerts WHERE id = ?", (number,))
