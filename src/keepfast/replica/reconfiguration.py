"""Membership changes, on the leader."""

from __future__ import annotations

from typing import Any

from keepfast.quorum import Leader, Membership, QuorumOptions, Quorums
from keepfast.wire import ErrorCode, KeeperError, Zxid


class Reconfiguration:
    """Decides whether a change is allowed, and has both memberships vote on it; for one term."""

    def __init__(self, options: QuorumOptions, leader: Leader) -> None:
        self._options = options
        self._leader = leader
        self._asked: Membership | None = None

    def new_text(self, request: Any, zxid: Zxid) -> bytes:
        """The config text that a request asks for; raises KeeperError where it may not be.

        The checks come in Apache's order.
        """
        options, leader = self._options, self._leader
        if not options.is_reconfig_enabled:
            raise KeeperError(ErrorCode.RECONFIG_DISABLED)
        current, pending = leader.quorums.current, leader.quorums.next
        if pending is not None:
            raise KeeperError(ErrorCode.RECONFIG_IN_PROGRESS)
        expected = request.current_config_id
        if expected not in (-1, current.version):
            raise KeeperError(ErrorCode.BAD_VERSION, f"the configuration is {current.version:#x}")
        changed = current.with_changes(
            request.joining_servers or None,
            request.leaving_servers or None,
            request.new_members or None,
            version=zxid,
            is_standalone_enabled=options.is_standalone_enabled,
        )
        if not changed.is_quorum(leader.current_servers()):
            raise KeeperError(ErrorCode.NEW_CONFIG_NO_QUORUM)
        self._asked = changed
        return changed.text()

    def proposed(self) -> None:
        """The change became a txn: from now on both memberships have to agree."""
        asked, self._asked = self._asked, None
        if asked is not None:
            self._leader.quorums = Quorums(self._leader.quorums.current, asked)
