"""Znodes given to a builder one by one, as records of a snapshot."""

from __future__ import annotations

import struct

from keepfast.tree import TreeBuilder
from keepfast.wire import encode_text


def add_node(
    builder: TreeBuilder, path: str, data: bytes | None, acl_key: int, stat: bytes
) -> None:
    """Add one znode; the root is "/" or ""."""
    raw = b"" if path == "/" else encode_text(path)
    size = -1 if data is None else len(data)
    record = struct.pack(f">i{len(raw)}si", len(raw), raw, size) + (data or b"")
    builder.add_encoded(record + struct.pack(">q", acl_key) + stat)
