"""A subtree that was deleted, as commands for `keepfast shell` that create it again.

    keepfast undelete DIR... --path /a >commands
    keepfast shell HOST:PORT <commands

What is created is what the subtree held and the head lacks: data, ACLs, containers, TTLs, parents
first. What cannot come back is said: versions and zxids start over, and an ephemeral belongs to a
session that is gone.

The words are those of ZooKeeper's shell, in which quotes of either kind hold blanks together and
nothing escapes. So data that does not fit on a line goes through `set -b` (base64), and a path that
has both kinds of quotes cannot be written at all. Nor can one that another shell would act on,
if it were pasted there.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from keepfast.pipeline.files.layout import EnsembleFiles
from keepfast.pipeline.replay.changes import acl_texts
from keepfast.pipeline.replay.history import EnsembleHistory
from keepfast.pipeline.replay.state import (
    HEAD,
    EnsembleState,
    Moment,
    StateUnknown,
    ensemble_state,
)
from keepfast.storage import Disk
from keepfast.tree import Kind, Tree, kind_of, parent_of, ttl_of
from keepfast.wire import OPEN_ACL, AclList, Zxid, format_zxid

# A line of the shell is a request of a client, and servers take a megabyte.
_MAX_LINE_BYTES = 700_000
# Words that every shell takes as they are, and what double quotes hold together in all of them.
_PLAIN_WORD: Final = re.compile(r"[A-Za-z0-9_./:@%+,=-]+")
_HARMLESS_IN_DOUBLE_QUOTES: Final = re.compile(r'[^"$`\\!]*')


@dataclass(frozen=True, slots=True)
class Deletion:
    """When a subtree went: its root's own deletion ended a run of deletions below it."""

    first_zxid: int
    last_zxid: int
    znodes: int
    session: int
    time_ms: int

    @property
    def before(self) -> Moment:
        """The moment before the first of them."""
        return Moment(zxid=Zxid(self.first_zxid - 1))


@dataclass(frozen=True, slots=True)
class Creation:
    """One znode to create."""

    path: str
    data: bytes | None
    acl: AclList
    kind: Kind
    ttl_ms: int | None = None

    def commands(self) -> list[str]:
        """The lines for the shell; empty if no line can say it."""
        path, acl = _quoted(self.path), _acl_word(self.acl)
        if path is None or acl is None:
            return []
        flags = {Kind.CONTAINER: " -c", Kind.TTL: f" -t {self.ttl_ms}"}.get(self.kind, "")
        if self.data is None and not acl:
            return [f"create{flags} -- {path}"]
        value = _data_word(self.data or b"")
        tail = f" {acl}" if acl else ""
        if value is not None:
            return [f"create{flags} -- {path} {value}{tail}"]
        encoded = base64.b64encode(self.data or b"").decode("ascii")
        if len(encoded) > _MAX_LINE_BYTES:
            return []
        return [f"create{flags} -- {path} ''{tail}", f"set -b -- {path} {encoded}"]


@dataclass(frozen=True, slots=True)
class Undeletion:
    """What to create, and what cannot be."""

    path: str
    state: EnsembleState
    deletion: Deletion | None  # None: the moment was given
    creations: tuple[Creation, ...]
    ephemerals: tuple[str, ...]  # left out: their sessions are gone
    present: int  # znodes of the subtree that are there now
    unsayable: tuple[str, ...]  # paths or ACLs that no line of the shell can hold
    # Znodes whose ACL lets not everybody create below them: the shell needs who may.
    guarded: tuple[str, ...]


def undelete_subtree(
    disk: Disk, ensemble: EnsembleFiles, path: str, moment: Moment | None = None
) -> Undeletion:
    """The creations that bring `path` back as it was at `moment`, or before it was deleted last.

    Raises StateUnknown if the files do not show it, or if there is nothing to bring back.
    """
    deletion = None
    if moment is None:
        deletion = last_deletion(disk, ensemble, path)
        if deletion is None:
            raise StateUnknown(
                f"{path} was not deleted in the records that are left; --at names the moment at "
                "which it was as wanted"
            )
        moment = deletion.before
    state = ensemble_state(disk, ensemble, moment)
    if state.tree.find(path) is None:
        raise StateUnknown(f"there was no znode {path} at {moment}")
    head = ensemble_state(disk, ensemble, HEAD).tree
    missing = [one for one in subtree(state.tree, path) if head.find(one) is None]
    present = sum(1 for _ in subtree(state.tree, path)) - len(missing)
    found = [_creation(state.tree, one) for one in missing]
    creations = [one for one in found if one.kind is not Kind.EPHEMERAL]
    parents = {parent_of(one.path) for one in creations}
    return Undeletion(
        path,
        state,
        deletion,
        tuple(creations),
        tuple(one.path for one in found if one.kind is Kind.EPHEMERAL),
        present,
        tuple(one.path for one in creations if not one.commands()),
        tuple(one.path for one in creations if one.path in parents and one.acl != OPEN_ACL),
    )


def last_deletion(disk: Disk, ensemble: EnsembleFiles, path: str) -> Deletion | None:
    """The last time that `path` was deleted; None if it never was, or came back since."""
    below = path + "/"
    first: int | None = None
    znodes = 0
    found: Deletion | None = None
    for rows in EnsembleHistory(disk, ensemble).read():
        for row in rows:
            if row.path != path and not (row.path or "").startswith(below):
                continue
            if row.change == "created":
                first, znodes = None, 0
                if row.path == path:
                    found = None
            elif row.change == "deleted":
                first = row.zxid if first is None else first
                znodes += 1
                if row.path == path:
                    found = Deletion(first, row.zxid, znodes, row.session_id, row.time_ms)
    return found


def subtree(tree: Tree, top: str) -> Iterator[str]:
    """The paths of a znode and all below it, parents first, siblings by name."""
    waiting = [top]
    while waiting:
        path = waiting.pop()
        node = tree.find(path)
        if node is not None:
            yield path
            waiting += sorted(node.children or (), reverse=True)


def _creation(tree: Tree, path: str) -> Creation:
    node = tree.find(path)
    if node is None:
        raise StateUnknown(f"{path} is not in the tree at {format_zxid(tree.last_zxid)}")
    kind = kind_of(node.stat)
    ttl_ms = ttl_of(node.stat) if kind is Kind.TTL else None
    return Creation(path, node.data, tree.acl_of(node), kind, ttl_ms)


def _quoted(text: str) -> str | None:
    """A word of the shell; None if there is no way to write it.

    Somebody will paste it into a terminal where another shell runs: nothing in it may mean anything
    to that one. Single quotes hold everything together for both.
    """
    if not text.isprintable():
        return None
    if _PLAIN_WORD.fullmatch(text):
        return text
    if "'" not in text:
        return f"'{text}'"
    return f'"{text}"' if _HARMLESS_IN_DOUBLE_QUOTES.fullmatch(text) else None


def _data_word(data: bytes) -> str | None:
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return None
    return _quoted(text) if len(data) <= _MAX_LINE_BYTES else None


def _acl_word(acl: AclList) -> str | None:
    """An ACL as the shell reads it; empty for the open one, None if it cannot be written."""
    if acl == OPEN_ACL:
        return ""
    texts = acl_texts(acl)
    if not texts or any("," in text for text in texts):
        return None
    return _quoted(",".join(texts))
