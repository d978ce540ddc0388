"""A snapshot holds a value that nobody wrote; its digest says so, and nothing comes of that.

Memory that flips a bit while a snapshot is written leaves a file whose checksum is right and whose
tree is wrong. Apache keeps a digest of the whole tree in the snapshot, which shows it: the server
computes the digest of what it loaded, finds another one, logs that, counts it, and serves.
"""

from keepfast.lab.lab import Lab
from keepfast.lab.scenario import Scenario

SERVER = 1


def play(lab: Lab) -> None:
    lab.start()
    # A tree that is large beside the log: a leader then sends records, and never the whole tree.
    lab.fill("/bulk", 800, 1000)
    lab.write({"/a": "what-was-written", "/b": "1"})
    # Enough for a snapshot, after which no log holds the value.
    lab.overwrite("/b", 300, 100)
    lab.write({"/b": "2"})
    lab.wait_caught_up()
    # It is written beside the txns, and a busy machine may take long over it.
    lab.await_snapshot(SERVER, "what-was-written")
    lab.kill()
    lab.change_in_snapshot(SERVER, "what-was-written", "what-was-flipped")
    lab.start(2, 3)
    # With this in its log a leader has records to send. One that has just begun, on a snapshot
    # with no record after it, sends the whole tree, which mends the server by chance.
    lab.write({"/b": "3"})
    lab.start(SERVER)


SCENARIO = Scenario(
    name="digest-stops-nothing",
    title="a snapshot contradicts its own digest, and is served",
    size=3,
    play=play,
    keys=("/a", "/b"),
    properties={"zookeeper.snapCount": "100"},
    expected={"/a": "what-was-written", "/b": "3"},
    kind="wrong-snapshot",
)
