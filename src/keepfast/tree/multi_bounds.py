"""How large one multi may become while its txn is prepared.

A few bytes of a request can become a long ACL (`auth`) in each of thousands of operations. The size
of the whole txn is known too late for that: by then the memory is used, and others have waited.
"""

from __future__ import annotations

from typing import Final

from keepfast.tree.prepare_options import PrepareOptions
from keepfast.wire import OPEN_ACL, AclList, ErrorCode, KeeperError

# Lists of up to this many entries are what most znodes have, and are bounded by the txn's size.
_FEW: Final = 16
# Operations of a multi that touches what is below /zookeeper.
_MAX_RESERVED: Final = 1000


class MultiTooLarge(KeeperError):  # noqa: N818 - it says what is wrong
    """A multi is refused as a whole: no operation gets its own result."""

    def __init__(self) -> None:
        super().__init__(ErrorCode.MARSHALLING_ERROR, "a multi that grows too large")


class MultiBounds:
    """Adds up the operations of one multi, and refuses it once they exceed the limits (-5)."""

    __slots__ = ("_bytes_left", "_count", "_entries_left", "_lists")

    def __init__(self, options: PrepareOptions) -> None:
        self._bytes_left = options.max_txn_bytes
        self._entries_left = options.max_acl_entries
        self._count = 0
        # The short lists among them: the tree's table takes each when the txn is installed.
        self._lists: set[AclList] = set()

    def expect(self, acl: AclList | None) -> None:
        """A create is about to be computed. Raises MultiTooLarge if its ACL is too long."""
        # Checking the entries takes longest of all.
        if acl is not None and len(acl) > max(self._entries_left, _FEW):
            raise MultiTooLarge

    def add(self, size_bytes: int, acl: AclList | None, is_reserved: bool) -> None:
        """One more operation, maybe with an ACL. Raises MultiTooLarge.

        `is_reserved`: the multi has touched what is below /zookeeper, and is applied in one piece.
        """
        self._bytes_left -= size_bytes
        self._count += 1
        if acl is not None and acl is not OPEN_ACL and (len(acl) > _FEW or acl not in self._lists):
            self._entries_left -= len(acl)
            self._lists.add(acl)
        is_long = is_reserved and self._count > _MAX_RESERVED
        if self._bytes_left < 0 or self._entries_left < 0 or is_long:
            raise MultiTooLarge
