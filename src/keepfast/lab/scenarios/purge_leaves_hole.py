"""Purge removes logs before snapshots; interrupted, it leaves snapshots with a hole after them.

Purge keeps the three newest snapshots, removes all older logs, and then all older snapshots. A
power cut comes before it is done: one old snapshot is still there. The cut takes the three newest
as well, because Apache never fsyncs those that it takes while it runs. What is left is an old
snapshot and the newest logs, with nothing in between, and a start replays the one after the other.

The power cut is played by putting an old snapshot back after the purge, and removing all others.
"""

from keepfast.lab.lab import Lab
from keepfast.lab.scenario import Scenario

SERVER = 1
KEPT = 3


def play(lab: Lab) -> None:
    lab.start()
    lab.write({"/a": "written-first", "/b": "1"})
    # Some snapshots.
    lab.overwrite("/b", 100, 100)
    lab.await_snapshot(SERVER, "written-first")
    lab.write({"/a": "written-later"})
    # And more than are kept.
    lab.overwrite("/b", 400, 100)
    lab.write({"/b": "2"})
    lab.wait_caught_up()
    lab.await_snapshot(SERVER, "written-later")
    lab.kill()
    lab.purge(SERVER, KEPT, spared="written-first")
    lab.lose_snapshots_without(SERVER, "written-first")
    lab.start(2, 3)
    # Records to send: without one a leader may send the whole tree, which mends the server.
    lab.write({"/b": "3"})
    lab.start(SERVER)


SCENARIO = Scenario(
    name="purge-leaves-hole",
    title="purge removed the logs and not yet the snapshots; a hole is replayed over",
    size=3,
    play=play,
    keys=("/a", "/b"),
    properties={"zookeeper.snapCount": "50"},
    configuration={"autopurge.snapRetainCount": str(KEPT), "autopurge.purgeInterval": "1"},
    expected={"/a": "written-later", "/b": "3"},
    kind="lost-snapshot-gap",
)
