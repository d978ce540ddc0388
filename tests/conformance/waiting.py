"""Waits for what a running ensemble of Apache's servers has done, on a machine of any speed."""

from __future__ import annotations

from keepfast.storage import LogReader, RealDisk
from tests.apache import ApacheEnsemble, ApacheServer, NotReadyError, wait_until

PATIENCE_SECONDS = 150.0

_DISK = RealDisk()


def wait_zxid(server: ApacheServer) -> int:
    """The last zxid that a server has applied, as soon as it tells."""
    found: list[int] = []

    def is_told() -> bool:
        zxid = applied(server)
        if zxid is not None:
            found.append(zxid)
        return zxid is not None

    wait_until(is_told, f"the last zxid of {server.hosts}", timeout=PATIENCE_SECONDS)
    return found[0]


def wait_for_records(server: ApacheServer, count: int) -> None:
    """Wait until a server has applied `count` more records than now."""
    end = wait_zxid(server) + count
    wait_until(
        lambda: (applied(server) or 0) >= end, f"{count} more records", timeout=PATIENCE_SECONDS
    )


def settle_on_disk(ensemble: ApacheEnsemble) -> None:
    """Wait until every member has the same last txn, applied and in its log.

    A follower of Apache's applies what the leader says is committed, also while its own disk is
    still busy with it: killed then, its files end one txn earlier than what it served.
    """
    zxid = ensemble.settle(timeout=PATIENCE_SECONDS)
    for id, server in ensemble.servers.items():
        wait_until(
            lambda server=server: _logged(server) >= zxid,  # type: ignore[misc]
            f"server {id} has {zxid:#x} on disk",
            timeout=PATIENCE_SECONDS,
        )


def applied(server: ApacheServer) -> int | None:
    """The last zxid that a server has applied; None while it does not say."""
    try:
        return server.last_zxid()
    except (OSError, NotReadyError):
        return None


def _logged(server: ApacheServer) -> int:
    """The last zxid in a server's logs; 0 where there is none."""
    logs = server.version_dir.glob("log.*")
    for path in sorted(logs, key=lambda path: int(path.suffix[1:], 16), reverse=True):
        with _DISK.open_read(str(path)) as file:
            last = max((frame.zxid for frame in LogReader(file)), default=None)
        if last is not None:
            return last
    return 0
