"""SNAP leaves a write that was never committed in the log, and the next start replays it.

The report on `snap-keeps-stale-log` as it was written, for 3.4: the tree that a server is sent is
older than the record that stays in its log, so the next start takes the record for what follows
the tree. Apache 3.9.5 sends a TRUNC here, which misses the record, because the zxid that it names
is in a snapshot alone: the end is the same.
"""

from keepfast.lab.lab import Lab
from keepfast.lab.scenario import Scenario

STALE = 3


def play(lab: Lab) -> None:
    lab.start()
    lab.kill()
    lab.start(1, 2)
    lab.write({"/a": "1", "/b": "1"})
    lab.keep_session()
    # A first write of its own that it is ordered to cut off: from then on it has everything in a
    # snapshot, and no record that it could send instead of the tree.
    leader = lab.write_alone("/b", "never-agreed-1")
    other = 3 - leader
    lab.start(other, STALE)
    lab.start(leader)
    lab.kill()
    lab.start(leader, STALE)
    lab.write_alone("/a", "never-agreed-2")
    # An epoch without the stale server, so that it is not elected for its one more record.
    lab.start(1, 2)
    lab.kill()
    # As one of the quorum it is sent the tree before the epoch has begun: at the old zxid.
    lab.start(leader, STALE)
    # After the record that was never committed: now the last zxid of all servers is the same.
    lab.write({"/c": "3"})
    lab.start(other)
    lab.wait_caught_up()
    lab.kill()
    lab.start()


SCENARIO = Scenario(
    name="snap-replays-stale-log",
    title="a write that was never committed stays in the log after a SNAP, and is replayed",
    size=3,
    play=play,
    keys=("/a", "/b", "/c"),
    expected={"/b": "1", "/c": "3"},
    # By Apache 3.9.5, see above.
    kind="stale-record-after-trunc",
)
