"""How each kind of failure comes about, and what to do about it, in words."""

from __future__ import annotations

CAUSES = {
    "missing-prefix": (
        "The disk was full while snapshots were written in place; purge counted the partial files "
        "as good ones and deleted the last whole snapshot with its logs. The server then replayed "
        "what was left of its logs onto an empty tree (field report disk-full)."
    ),
    "no-valid-snapshot": (
        "Partial snapshots, for example from a full disk, were counted as good ones by purge, "
        "which deleted the last whole snapshot and its logs (field report disk-full)."
    ),
    "stale-record-after-snap": (
        "The server logged a write that was never committed, then received a SNAP: the tree was "
        "replaced, the record stayed in the log and came back at the next start (field report "
        "snap-keeps-stale-log)."
    ),
    "stale-record-served-as-committed": (
        "A server whose log kept a never-committed record under a SNAP led the ensemble later and "
        "sent the record, and its own hole, to this server in a DIFF (field report "
        "snap-keeps-stale-log, its sibling)."
    ),
    "lost-snapshot-gap": (
        "Records existed only in a snapshot that was never made durable; it was lost in a power "
        "cut, and an older snapshot with a log that has a hole was replayed (field report "
        "unsynced-snapshot)."
    ),
    "stale-record-after-trunc": (
        "The leader asked to truncate to a zxid that the log does not contain; the log was cut "
        "after the next record, which was never committed and stayed (field report "
        "trunc-misses-record)."
    ),
    "trunc-lost": (
        "The leader had the server cut this record off. That was never made durable, nor was the "
        "snapshot after it: a power cut undid both, and kept what was logged since."
    ),
    "record-refused": (
        "A log was begun for this record, and does not hold it: the disk refused the write. The "
        "server followed again with what it had in memory, and logged what came next."
    ),
    "logs-purged": (
        "The logs after this snapshot are gone, and so are the snapshots that made up for them: "
        "purge, which removes logs first, did not come to its end, or newer snapshots that it "
        "counted on were never durable and were lost in a power cut."
    ),
    "gap-served-as-diff": (
        "A leader that was itself caught up by SNAP served a DIFF from a log with a hole in it "
        "(field report diff-over-gap)."
    ),
    "different-records": (
        "Two leaders, or a change of the bytes after they were written with their checksum "
        "computed anew: no healthy server logs another record under a zxid."
    ),
    "record-damaged": "The bytes changed after they were written: a disk, a copy or a person.",
    "wrong-snapshot": (
        "The snapshot was taken of a tree that was wrong already, or it was changed with its seal "
        "computed anew."
    ),
    "committed-lost": (
        "A record that reads as zeros was taken for the end of the log on a majority, which was "
        "elected and made the other servers drop what it did not have."
    ),
    "history-forgotten": (
        "A majority lost its disks, or was started empty, and elected an empty tree: it began the "
        "ensemble's history anew in an epoch that had been used, and made this server cut off "
        "all that it had. Apache keeps the sessions over that."
    ),
    "snapshot-of-stale": (
        "The server took a snapshot of a write that was never committed; a TRUNC later cut the "
        "write from its log and left the snapshot, from which every start serves it."
    ),
    "state-differs": "Not known: the records agree, and the states do not.",
}

_REFILL = (
    "Believe {believed}. Stop server {server}, move its version-2 directory aside as evidence, and "
    "start it empty: the leader sends it everything. Do this before it can be elected."
)
_COMPARE = "Collect the directories of the other servers and audit them together."

ADVICE = {
    "no-valid-snapshot": (
        "The other servers are right: believe {believed}. Free disk space, move the version-2 "
        "directory of server {server} aside, and start it empty."
    ),
    "stale-record-served-as-committed": (
        _REFILL + " Then do the same, one at a time, with every server whose lane shows the stale "
        "record, even where it is harmless now."
    ),
    "gap-served-as-diff": (
        _REFILL + " The server with the same hole under a snapshot can do this again: refill it "
        "as well, when the others are whole."
    ),
    "history-forgotten": (
        "No server holds any more what there was before: take it from a backup (`keepfast restore` "
        "makes a directory of one), and find out which servers came back with empty disks."
    ),
    "doubtful": (
        "Two servers cannot outvote each other. " + _COMPARE + " Until then do not let either of "
        "them lead alone."
    ),
}


def cause_of(kind: str) -> str:
    """How a kind of failure most likely came about; empty if nothing is known."""
    return CAUSES.get(kind, "")


def advice_of(kind: str, server: str, believed: list[str]) -> str:
    """Which replica to believe and what to do."""
    names = ", ".join(believed)
    text = f"servers {names}" if len(believed) > 1 else f"server {names}" if believed else "none"
    if not believed:
        return _COMPARE
    return ADVICE.get(kind, _REFILL).format(server=server, believed=text)
