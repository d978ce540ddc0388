"""A part of the history is in a snapshot alone, the snapshot is not on the disk yet, power fails.

The report: a server catches up and has what it received in a snapshot, which was never fsynced.
After a power cut that file is gone or empty; an older snapshot is loaded, and the log after it
has a hole where the lost snapshot was. Nobody notices.

Played with a server that was sent a SNAP and leads later: Apache 3.9.5 writes that snapshot again
then, without an fsync. The power cut is played by removing the newest snapshot of that server,
which is what such a cut leaves of it.
"""

from keepfast.lab.lab import Lab
from keepfast.lab.scenario import Scenario

SERVER = 3


def play(lab: Lab) -> None:
    lab.start()
    lab.write({"/a": "1", "/b": "1"})
    lab.wait_caught_up()
    lab.kill(SERVER)
    lab.overwrite("/a", 1500, 300)
    lab.write({"/a": "2", "/b": "2"})
    # The log that it lacks is larger than the tree: a SNAP.
    lab.start(SERVER)
    lab.wait_caught_up()
    lab.kill()
    lab.start(1, SERVER)
    lab.write({"/c": "3"})
    lab.wait_caught_up()
    lab.kill()
    lab.lose_newest_snapshot(SERVER)
    lab.start(1, 2)
    lab.start(SERVER)


SCENARIO = Scenario(
    name="unsynced-snapshot",
    title="a snapshot that was never fsynced is lost, and a hole is replayed over",
    size=3,
    play=play,
    keys=("/a", "/b", "/c"),
    properties={"zookeeper.snapCount": "400"},
    kind="lost-snapshot-gap",
)
