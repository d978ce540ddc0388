"""The secret for session passwords: a small file, the same on all servers of an ensemble.

    since=2026-11-17T07:00:00+00:00
    secret=5f1c...                     hexadecimal, 16 bytes or more

An operator may create it. Otherwise a standalone server creates its own at its first start, and the
members of an ensemble agree on one (replica/secret_exchange.py); until it is in use, it has no
`since`.
"""

from __future__ import annotations

import logging
import os
import secrets
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

from keepfast.apache import ConfigError
from keepfast.quorum import SECRET_BYTES, SharedSecret
from keepfast.replica import SessionPasswords
from keepfast.server.server_options import ServerOptions

log = logging.getLogger("keepfast.server")

SECRET_NAME: Final = "keepfast.session-secret"
_KEY: Final = "keepfast.sessionSecretFile"
_FEWEST_BYTES: Final = 16
_MS: Final = 1000
_NS_OF_MS: Final = 1_000_000
_EPOCH: Final = datetime.fromtimestamp(0, UTC)
_MILLISECOND: Final = timedelta(milliseconds=1)


def passwords_at_start(options: ServerOptions) -> tuple[SessionPasswords, SharedSecret | None]:
    """How sessions are protected when a server starts, and the secret it holds as a member.

    Raises ConfigError.
    """
    if not options.has_session_secret:
        return SessionPasswords(), None
    if options.ensemble is None or options.session_passwords_file:
        return passwords_of(options.session_passwords_file, options.data_dir), None
    return SessionPasswords(), held_secret(options.data_dir)


def passwords_of(file: str, data_dir: str) -> SessionPasswords:
    """How a standalone server protects its sessions. Raises ConfigError for a bad file."""
    if file:
        return read_secret(file)
    own = Path(data_dir) / SECRET_NAME
    try:
        held = held_secret(data_dir)
        if held is None or not held.since_ms:
            # One that an ensemble never used is as good as a new one.
            secret = secrets.token_bytes(SECRET_BYTES) if held is None else held.secret
            held = SharedSecret(secret, time.time_ns() // _NS_OF_MS // _MS * _MS)
            write_secret(own, held)
    except OSError as error:
        # A full disk: the server starts anyway.
        log.warning("no-session-secret file=%s reason=%s", own, error.strerror or error)
        return SessionPasswords()
    return SessionPasswords(held.secret, held.since_ms)


def held_secret(data_dir: str) -> SharedSecret | None:
    """What a server holds by itself; None: nothing. Raises ConfigError, OSError."""
    own = Path(data_dir) / SECRET_NAME
    return _read(str(own), is_whole_only=False) if own.exists() else None


def write_secret(file: Path, held: SharedSecret) -> None:
    """Have a file hold it, durably, or leave it as it was. Raises OSError."""
    draft = file.with_name(f"{file.name}.new")
    draft.unlink(missing_ok=True)
    # Whole numbers both ways: in the far future floats would lose a millisecond.
    since = (_EPOCH + held.since_ms * _MILLISECOND).isoformat(timespec="milliseconds")
    # Not widened by `keepfast.umask`: read access to the data must not imply taking over sessions.
    handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(handle, "w") as stream:
        stream.write(f"since={since}\n" if held.since_ms else "")
        stream.write(f"secret={held.secret.hex()}\n")
        stream.flush()
        os.fsync(stream.fileno())
    draft.rename(file)
    folder = os.open(file.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def read_secret(file: str) -> SessionPasswords:
    """What an operator's file says. Raises ConfigError."""
    found = _read(file, is_whole_only=True)
    return SessionPasswords(found.secret, found.since_ms)


def _read(file: str, *, is_whole_only: bool) -> SharedSecret:
    since_ms, secret = 0, b""
    try:
        lines = Path(file).read_text("utf-8").split("\n")
        values = dict(line.strip().split("=", 1) for line in lines if line.strip())
        secret = bytes.fromhex(values["secret"])
        is_whole = len(secret) >= _FEWEST_BYTES
        if is_whole_only or "since" in values:
            since = datetime.fromisoformat(values["since"])
            since_ms = (since - _EPOCH) // _MILLISECOND
    except OSError as error:
        reason = f"cannot be read: {error.strerror or error}"
        raise ConfigError(reason, key=_KEY, value=file) from error
    except (ValueError, KeyError, TypeError):
        # TypeError: a time without its zone.
        is_whole = False
    if not is_whole:
        reason = (
            "must hold since=, a time with its zone as in 2026-11-17T07:00:00+00:00, and secret=, "
            f"at least {_FEWEST_BYTES} bytes in hexadecimal"
        )
        raise ConfigError(reason, key=_KEY, value=file)
    return SharedSecret(secret, since_ms)
