"""Changes that people make through the page: each is based on what was read, and can be undone.

Nothing is written over what somebody else wrote meanwhile: an edit carries the version that was
read, a deletion the list that was shown. What a change did away with is kept for a while, so that
it can be undone; the same rules hold for taking it back.
"""

from __future__ import annotations

import base64
import hashlib
import threading
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from keepfast.client import Client, OperationFailed, validate_path
from keepfast.console.console_options import ConsoleRefused
from keepfast.console.znode_documents import SHORT_BYTES, acl_from, znode_document
from keepfast.tree import Kind, kind_of_owner
from keepfast.wire import (
    OPEN_ACL,
    AclList,
    CreateMode,
    CreateRequest,
    DeleteRequest,
    ErrorCode,
    KeepfastError,
    MultiOp,
    OpCode,
    Stat,
    format_zxid,
)

# Znodes that one deletion takes, and bytes of data that are kept to undo one.
MAX_DELETED: Final = 2000
_MAX_KEPT_BYTES: Final = 8 << 20
_MAX_UNDOS: Final = 50
_MODES: Final = {
    "persistent": CreateMode.PERSISTENT,
    "persistent-sequential": CreateMode.PERSISTENT_SEQUENTIAL,
    "container": CreateMode.CONTAINER,
    "ttl": CreateMode.PERSISTENT_WITH_TTL,
}


class ChangeForm(msgspec.Struct):
    """What the page sends to have something changed."""

    kind: str
    path: str
    # The new value; None: null.
    base64: str | None = None
    # Of the data or the ACL, as it was read.
    version: int = -1
    # Of a deletion: which list was shown.
    mark: str = ""
    mode: str = "persistent"
    ttl_ms: int = 0
    acl: list[dict[str, str]] | None = None


class EditConflict(KeepfastError):  # noqa: N818 - it says what is the case
    """Somebody else changed it meanwhile; `theirs` is how it is now, None if it is gone."""

    def __init__(self, sentence: str, theirs: dict[str, Any] | None) -> None:
        super().__init__(sentence)
        self.theirs = theirs


@dataclass(frozen=True, slots=True)
class Kept:
    """A znode as it was before it was deleted."""

    path: str
    data: bytes | None
    acl: AclList
    stat: Stat


@dataclass(frozen=True, slots=True)
class Undo:
    """How a change is undone."""

    number: int
    owner: str
    sentence: str
    time_ms: int
    # Exactly one of these.
    old_data: tuple[str, bytes | None, int] | None = None
    old_acl: tuple[str, AclList, int] | None = None
    created: tuple[str, int] | None = None
    deleted: tuple[Kept, ...] = ()

    def document(self) -> dict[str, Any]:
        return {"id": self.number, "sentence": self.sentence, "at": self.time_ms}


@dataclass(frozen=True, slots=True)
class Done:
    """What was done: for the page, and for the audit log."""

    operation: str
    path: str
    sentence: str
    undo: Undo | None = None


class Changes:
    """Makes changes through a viewer's own client, and remembers how to undo them."""

    def __init__(self) -> None:
        self._undos: deque[Undo] = deque(maxlen=_MAX_UNDOS)
        self._next = 1
        self._lock = threading.Lock()

    def make(self, client: Client, owner: str, form: ChangeForm) -> Done:
        """Do what a form asks for. Raises Conflict, ConsoleRefused or OperationFailed."""
        makers = {
            "create": self._create,
            "set": self._set,
            "acl": self._set_acl,
            "delete": self._delete,
        }
        maker = makers.get(form.kind)
        if maker is None:
            raise ConsoleRefused(f"{form.kind} is no change that can be made here")
        validate_path(form.path)
        return maker(client, owner, form)

    def undo(self, client: Client, owner: str, number: int) -> Done:
        """Take a change of the same viewer back."""
        with self._lock:
            found = next((u for u in self._undos if u.number == number and u.owner == owner), None)
        if found is None:
            raise ConsoleRefused("this change is not kept any more; its history may be")
        done = self._take_back(client, owner, found)
        with self._lock:
            if found in self._undos:
                self._undos.remove(found)
        return done

    def undos(self, owner: str) -> list[dict[str, Any]]:
        """What a viewer may take back, the newest first."""
        with self._lock:
            return [one.document() for one in reversed(self._undos) if one.owner == owner]

    # -- each kind -------------------------------------------------------------------------------

    def _create(self, client: Client, owner: str, form: ChangeForm) -> Done:
        mode = _MODES.get(form.mode)
        if mode is None:
            raise ConsoleRefused(
                f"{form.mode}: the console makes no such znodes; an ephemeral one would go with it"
            )
        acl = OPEN_ACL if form.acl is None else acl_from(form.acl, ())
        path = client.create(form.path, _data(form), acl, mode, form.ttl_ms)
        undo = self._keep(owner, f"created {path}", created=(path, 0))
        return Done("create", path, f"Created {path}", undo)

    def _set(self, client: Client, owner: str, form: ChangeForm) -> Done:
        if form.version < 0:
            raise ConsoleRefused("an edit needs the version that was read")
        before = client.get_data(form.path)
        try:
            stat = client.set_data(form.path, _data(form), form.version)
        except OperationFailed as error:
            raise _conflict(client, form.path, error) from error
        undo = None
        if before.stat.version == form.version:
            old = (form.path, before.data, stat.version)
            undo = self._keep(owner, f"set {form.path}", old_data=old)
        return Done("setData", form.path, f"Set {form.path}, now version {stat.version}", undo)

    def _set_acl(self, client: Client, owner: str, form: ChangeForm) -> Done:
        if form.version < 0 or form.acl is None:
            raise ConsoleRefused("an ACL needs its entries, and the version that was read")
        before = client.get_acl(form.path)
        acl = acl_from(form.acl, before.acl or ())
        try:
            stat = client.set_acl(form.path, acl, form.version)
        except OperationFailed as error:
            raise _conflict(client, form.path, error) from error
        old = (form.path, before.acl or (), stat.aversion)
        undo = self._keep(owner, f"set the ACL of {form.path}", old_acl=old)
        return Done("setAcl", form.path, f"Set the ACL of {form.path}", undo)

    def _delete(self, client: Client, owner: str, form: ChangeForm) -> Done:
        kept = subtree_of(client, form.path)
        if form.mark != _mark(kept):
            raise EditConflict(
                "what is there is not what was shown any more; look at the list again", None
            )
        _delete_all(client, kept)
        what = form.path if len(kept) == 1 else f"{form.path} and {len(kept) - 1:,} below it"
        size = sum(len(one.data or b"") for one in kept)
        undo = None
        if size <= _MAX_KEPT_BYTES:
            undo = self._keep(owner, f"deleted {what}", deleted=tuple(kept))
        return Done("delete", form.path, f"Deleted {what}", undo)

    def preview(self, client: Client, path: str) -> dict[str, Any]:
        """What a deletion would take."""
        validate_path(path)
        kept = subtree_of(client, path)
        return {
            "path": path,
            "mark": _mark(kept),
            "total": len(kept),
            "size": sum(len(one.data or b"") for one in kept),
            "ephemerals": sum(
                kind_of_owner(one.stat.ephemeral_owner) is Kind.EPHEMERAL for one in kept
            ),
            "paths": [one.path for one in kept[:200]],
        }

    # -- undoing ---------------------------------------------------------------------------------

    def _take_back(self, client: Client, owner: str, undo: Undo) -> Done:
        sentence = f"Took back: {undo.sentence}"
        if undo.old_data is not None:
            path, data, version = undo.old_data
            try:
                client.set_data(path, data, version)
            except OperationFailed as error:
                raise _conflict(client, path, error) from error
            return Done("setData", path, sentence)
        if undo.old_acl is not None:
            path, acl, version = undo.old_acl
            try:
                client.set_acl(path, acl, version)
            except OperationFailed as error:
                raise _conflict(client, path, error) from error
            return Done("setAcl", path, sentence)
        if undo.created is not None:
            path, version = undo.created
            client.delete(path, version)
            return Done("delete", path, sentence)
        restored, left = _create_all(client, undo.deleted)
        if left:
            sentence += f"; {left} ephemeral did not come back: their sessions own them"
        return Done("create", restored, sentence)

    def _keep(self, owner: str, sentence: str, **how: Any) -> Undo:
        with self._lock:
            undo = Undo(self._next, owner, sentence, round(time.time() * 1000), **how)
            self._next += 1
            self._undos.append(undo)
            # Values of many deletions must not fill the memory.
            while self._kept_bytes() > _MAX_KEPT_BYTES and len(self._undos) > 1:
                self._undos.popleft()
        return undo

    def _kept_bytes(self) -> int:
        return sum(len(kept.data or b"") for undo in self._undos for kept in undo.deleted) + sum(
            len(undo.old_data[1] or b"") for undo in self._undos if undo.old_data is not None
        )


def _data(form: ChangeForm) -> bytes | None:
    if form.base64 is None:
        return None
    try:
        return base64.b64decode(form.base64, validate=True)
    except ValueError as error:
        raise ConsoleRefused("the value is not base64") from error


def _conflict(client: Client, path: str, error: OperationFailed) -> KeepfastError:
    """What is there now, if that is why a change was refused."""
    if error.code is not ErrorCode.BAD_VERSION:
        return error
    try:
        reply = client.get_data(path)
    except OperationFailed:
        return EditConflict(f"{path} was changed, and is gone now", None)
    theirs = znode_document(path, reply.data, reply.stat, None, SHORT_BYTES)
    at = format_zxid(reply.stat.mzxid)
    return EditConflict(f"somebody else changed {path} meanwhile (zxid {at})", theirs)


def subtree_of(client: Client, path: str) -> list[Kept]:
    """A znode and all below it, parents first; raises ConsoleRefused if there are too many."""
    if path in ("/", "/zookeeper") or path.startswith("/zookeeper/"):
        raise ConsoleRefused(f"{path} belongs to the servers and is not deleted")
    found: list[Kept] = []
    waiting = deque([path])
    while waiting:
        here = waiting.popleft()
        reply = client.get_data(here)
        found.append(Kept(here, reply.data, client.get_acl(here).acl or (), reply.stat))
        if len(found) + len(waiting) > MAX_DELETED:
            raise ConsoleRefused(
                f"more than {MAX_DELETED:,} znodes would go; keepfast shell deleteall {path} does "
                "that without a list"
            )
        if reply.stat.num_children:
            waiting.extend(f"{here}/{name}" for name in sorted(client.get_children(here)))
    return found


def _mark(kept: Sequence[Kept]) -> str:
    """What distinguishes one state of a subtree from another."""
    marks = (f"{one.path}\0{one.stat.czxid}\0{one.stat.mzxid}\n" for one in kept)
    return hashlib.sha256("".join(marks).encode("utf-8", "surrogatepass")).hexdigest()


def _delete_all(client: Client, kept: Sequence[Kept]) -> None:
    """In one transaction: all of it, or nothing. Versions keep what changed meanwhile."""
    ops = [
        MultiOp(OpCode.DELETE, DeleteRequest(one.path, one.stat.version)) for one in reversed(kept)
    ]
    _refuse_failed(client.multi(ops), ops)


def _create_all(client: Client, kept: Sequence[Kept]) -> tuple[str, int]:
    """Bring znodes back, but for ephemerals; their top, and how many stay away."""
    lasting = [one for one in kept if kind_of_owner(one.stat.ephemeral_owner) is not Kind.EPHEMERAL]
    ops = [
        MultiOp(OpCode.CREATE, CreateRequest(one.path, one.data, one.acl, CreateMode.PERSISTENT))
        for one in lasting
    ]
    if ops:
        _refuse_failed(client.multi(ops), ops)
    return kept[0].path, len(kept) - len(lasting)


def _refuse_failed(results: Sequence[Any], ops: Sequence[MultiOp]) -> None:
    """Raise for the operation that failed, not for those that were given up because of it."""
    for result, op in zip(results, ops, strict=False):
        if result.err not in (ErrorCode.OK, ErrorCode.RUNTIME_INCONSISTENCY):
            raise OperationFailed(ErrorCode(result.err), op.request.path)
