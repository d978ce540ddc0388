"""The tree as the ensemble serves it now: znodes, children page by page, counts, search."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from typing import Any, Final

from keepfast.client import Client, OperationFailed, validate_path
from keepfast.console.children_cache import ChildrenCache
from keepfast.console.znode_documents import (
    NotShown,
    PageAsked,
    data_document,
    page_document,
    znode_document,
)
from keepfast.shell import QuotaText
from keepfast.wire import (
    AclList,
    ErrorCode,
    GetChildrenRequest,
    GetChildrenResponse,
    GetDataRequest,
    GetDataResponse,
    MultiOp,
    OpCode,
    Stat,
)

_QUOTA: Final = "/zookeeper/quota"
# Znodes in one request of a search. A server answers nobody else meanwhile: about a millisecond.
_SEARCH_BATCH: Final = 64
_MAX_FOUND: Final = 500


class LiveTree:
    """Reads through one client, with the rights of whoever it belongs to; waits for answers."""

    def __init__(self, client: Client, cache: ChildrenCache, owner: str) -> None:
        """`owner`: whose lists are kept; what one may see, another may not."""
        self._client = client
        self._cache = cache
        self._owner = owner

    def znode(self, path: str, limit: int) -> dict[str, Any]:
        """Everything about one znode."""
        reply = self._client.get_data(path)
        acl: AclList | None = None
        try:
            acl = self._client.get_acl(path).acl or ()
        except OperationFailed as error:
            if error.code is not ErrorCode.NO_AUTH:
                raise
        document = znode_document(path, reply.data, reply.stat, acl, limit)
        document["quota"] = self._quota(path)
        document["mark"] = _mark(reply.stat)
        return document

    def data(self, path: str) -> bytes:
        """The whole value."""
        return self._client.get_data(path).data or b""

    def stat_mark(self, path: str) -> dict[str, Any]:
        """What changes whenever the znode, its ACL or its children do."""
        stat = self._client.exists(path)
        if stat is None:
            return {"exists": False}
        return {"exists": True, "mark": _mark(stat)}

    def children(self, path: str, asked: PageAsked) -> dict[str, Any]:
        """One page of the children whose names contain a text, in order, with their Stats."""
        stat = self._client.exists(path)
        if stat is None:
            raise OperationFailed(ErrorCode.NO_NODE, path)
        # With the ACL: whoever may not read it any more is not shown what is kept.
        mark = (stat.czxid, stat.cversion, stat.pzxid, stat.aversion)
        found = self._cache.find(
            (self._owner, path), mark, lambda: list(self._client.get_children(path))
        )
        below = path.rstrip("/")
        return page_document(
            path,
            len(found.names),
            found.matching(asked.text),
            asked,
            lambda name: self._child(f"{below}/{name}"),
        )

    def _child(self, path: str) -> Stat | NotShown:
        """The Stat of a child; servers from 3.9.3 on show it only to those who may read it."""
        try:
            return self._client.exists(path) or NotShown.GONE
        except OperationFailed as error:
            if error.code is not ErrorCode.NO_AUTH:
                raise
            return NotShown.FORBIDDEN

    def count_below(self, path: str) -> int:
        """How many znodes are below it: a server counts them all (3.6 and later)."""
        return self._client.get_all_children_number(path)

    def _quota(self, path: str) -> dict[str, Any] | None:
        """Limits and use of the nearest quota, at the znode or above it."""
        if self._client.target.chroot or path == "/":
            return None
        place = path
        while place:
            below = f"{_QUOTA}{place}"
            try:
                limits = self._client.get_data(f"{below}/zookeeper_limits").data
                used = self._client.get_data(f"{below}/zookeeper_stats").data
            except OperationFailed as error:
                if error.code not in (ErrorCode.NO_NODE, ErrorCode.NO_AUTH):
                    raise
                place = place[: place.rindex("/")]
                continue
            return {
                "path": place,
                "limits": QuotaText.parse(limits, below).fields,
                "used": QuotaText.parse(used, below).fields,
            }
        return None

    # -- search ----------------------------------------------------------------------------------

    def search(self, text: str, under: str, by: str) -> Generator[dict[str, Any], None, None]:
        """Znodes whose path begins with or contains `text`, or whose value does.

        Gives a document for each, others about progress, and one with `end` at last. Half of the
        time it waits, so that the server has more to do than this.
        """
        start, first = _starts(self._client, text, under, by)
        matches = _matcher(text, by)
        waiting = deque(first)
        seen = found = 0
        while waiting and found < _MAX_FOUND:
            began = time.monotonic()
            batch = [waiting.popleft() for _ in range(min(_SEARCH_BATCH, len(waiting)))]
            for path, data, children in self._read(batch, with_data=by == "value"):
                seen += 1
                if matches(path, data):
                    found += 1
                    yield {"found": path, **({"data": data_document(data, 200)} if data else {})}
                below = path.rstrip("/")
                waiting.extend(f"{below}/{name}" for name in children)
            yield {"seen": seen, "waiting": len(waiting)}
            time.sleep(time.monotonic() - began)
        yield {"end": True, "seen": seen, "hits": found, "is_whole": not waiting, "under": start}

    def _read(
        self, paths: Sequence[str], *, with_data: bool
    ) -> Iterator[tuple[str, bytes | None, Sequence[str]]]:
        """Children, and values where wanted; what may not be read, or is gone, is passed over."""
        ops = [MultiOp(OpCode.GET_CHILDREN, GetChildrenRequest(path, False)) for path in paths]
        if with_data:
            ops += [MultiOp(OpCode.GET_DATA, GetDataRequest(path, False)) for path in paths]
        results = self._client.multi_read(ops)
        values = results[len(paths) :] if with_data else [None] * len(paths)
        for path, listed, value in zip(paths, results[: len(paths)], values, strict=True):
            if not isinstance(listed.result, GetChildrenResponse):
                continue
            answer = None if value is None else value.result
            data = answer.data if isinstance(answer, GetDataResponse) else None
            yield path, data, sorted(listed.result.children)


def _mark(stat: Stat) -> str:
    parts = (stat.mzxid, stat.aversion, stat.cversion, stat.pzxid, stat.czxid)
    return "-".join(map(str, parts))


def _starts(client: Client, text: str, under: str, by: str) -> tuple[str, list[str]]:
    """Where a search begins: for a path's prefix, only at the children that have it."""
    validate_path(under)
    if by != "path" or not text.startswith("/"):
        return under, [under]
    parent, _, name = text.rpartition("/")
    parent = parent or "/"
    below = parent.rstrip("/")
    names = sorted(one for one in client.get_children(parent) if one.startswith(name))
    return parent, [f"{below}/{one}" for one in names]


def _matcher(text: str, by: str) -> Callable[[str, bytes | None], bool]:
    if by == "value":
        wanted = text.encode()
        return lambda _, data: data is not None and wanted in data
    if text.startswith("/"):
        return lambda path, _: path.startswith(text)
    folded = text.casefold()
    return lambda path, _: folded in path.casefold()
