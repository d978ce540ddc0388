"""Bugs in requests beyond the plain ones, and in limits; planted as in `bugs.py`."""

from __future__ import annotations

from tests.sim.bugs import Bug, Change

REQUEST_BUGS = (
    Bug(
        "persistent watch is used up",
        (
            Change(
                "keepfast.tree.watches",
                "WatchTable.trigger",
                "if path in persistent:\n            watchers |= persistent[path]",
                "if path in persistent:\n"
                "            watchers |= self._taken(WatchKind.PERSISTENT, path, spared)",
            ),
        ),
    ),
    Bug(
        "recursive watch is told about its own znode alone",
        (
            Change(
                "keepfast.tree.watches",
                "WatchTable._recursive",
                "self.levels(path)",
                "[path]",
            ),
        ),
    ),
    Bug(
        "recursive watch is told about children",
        (
            Change(
                "keepfast.tree.watches",
                "WatchTable.trigger",
                "if parent in persistent:\n            watchers |= persistent[parent]",
                "if parent in persistent:\n            watchers |= persistent[parent]\n"
                "        watchers |= self._recursive(parent)",
            ),
        ),
    ),
    Bug(
        "watches that last are not set again",
        (
            Change(
                "keepfast.replica.events",
                "missed_events",
                "for path in listed:",
                "for path in ():",
            ),
        ),
    ),
    Bug(
        "watch that was removed stays",
        (
            Change(
                "keepfast.replica.reads",
                "remove_watches",
                "service.watches.remove(kind, path, connection)",
                "service.watches.has(kind, path, connection)",
            ),
        ),
    ),
    Bug(
        "removal of one kind of watch is answered for all",
        (
            Change(
                "keepfast.replica.reads",
                "remove_watches",
                "if not any(removed):",
                "if not any(service.watches.has(kind, path, connection) for kind in WatchKind)"
                " and not any(removed):",
            ),
        ),
    ),
    Bug(
        "multiRead ends at the first znode that is missing",
        (
            Change(
                "keepfast.replica.reads",
                "multi_read",
                "found.append(error)\n            continue",
                "found.append(error)\n            break",
            ),
        ),
    ),
    Bug(
        "getEphemerals gives those of other paths",
        (
            Change(
                "keepfast.replica.reads",
                "get_ephemerals",
                "if path.startswith(prefix)",
                "if True",
            ),
        ),
    ),
    Bug(
        "only direct children are counted",
        (
            Change(
                "keepfast.replica.reads",
                "get_all_children_number",
                'tree.descendants.count(path or "/", node, tree.find)',
                "len(node.children or ())",
            ),
        ),
    ),
    Bug(
        "watches without a limit",
        (
            Change(
                "keepfast.tree.watches",
                "WatchTable.add",
                "if size > self._max_bytes:",
                "if False:",
            ),
        ),
    ),
    Bug(
        "watch that was used up still counts",
        (
            Change(
                "keepfast.tree.watches",
                "WatchTable._taken",
                "self._sizes[watcher] -= size",
                "pass",
            ),
        ),
    ),
    Bug(
        "multiRead without a limit",
        (
            Change(
                "keepfast.replica.reads",
                "_ReadCount.__call__",
                "if self._left < 0:",
                "if False:",
            ),
        ),
    ),
    Bug(
        "ephemerals under way are not counted",
        (
            Change(
                "keepfast.tree.prepare",
                "Preparer._owner",
                "sizes.added(session_id, path)",
                "pass",
            ),
        ),
    ),
    Bug(
        "leader serves clients that it leaves to others",
        (
            Change(
                "keepfast.replica.replica",
                "Replica._refusal",
                "not self.options.is_leader_serving",
                "False",
            ),
        ),
    ),
    Bug(
        "all observers catch up at once",
        (
            Change(
                "keepfast.quorum.leader",
                "Leader._is_catch_up_full",
                "return len(under_way) >= limit",
                "return False",
            ),
        ),
    ),
)
