"""A write of a client, between its request and its reply."""

from __future__ import annotations

from typing import Any, Final

import msgspec

# Where the type of a request stands: there was none, or it failed.
NO_OPERATION: Final = -1


class PendingWrite(msgspec.Struct, gc=False, eq=False):
    """A request that waits for its txn; it holds up the requests after it on its connection.

    A Struct, because one is made for each write; nothing that it refers to refers back to it.
    """

    since_ms: int
    xid: int = 0
    op: int = NO_OPERATION
    # What was asked for, where another server makes the txn and changes are audited.
    request: Any = None
    # The reply's frame, once it is known; b"" for no reply at all.
    reply: bytes | None = None
    # Its size, if it counts as a large request.
    large_bytes: int = 0
    # Whether the reply shows the last txn of the moment at which it is sent: it is not a txn
    # itself.
    shows_present: bool = False
