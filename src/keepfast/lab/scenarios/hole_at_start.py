"""A log in the middle is gone, and a start replays what follows as if nothing were missing.

Somebody, or a disk, lost one log and the snapshots after it. What is left is an old snapshot and
logs of several epochs with a hole between them. The first record of an epoch does not say how many
there were in the epoch before it, so Apache's server sees no hole: it serves a tree that never was,
with the same last zxid as the others, so that nothing is ever sent to it.
"""

from keepfast.lab.lab import Lab
from keepfast.lab.scenario import Scenario

SERVER = 1


def play(lab: Lab) -> None:
    lab.start()
    lab.write({"/a": "old", "/b": "1"})
    lab.wait_caught_up()
    lab.kill()
    # Each start begins an epoch and a log.
    lab.start()
    lab.write({"/a": "lost-with-its-log"})
    lab.wait_caught_up()
    lab.kill()
    lab.start()
    lab.write({"/c": "3"})
    lab.wait_caught_up()
    lab.kill()
    lab.lose_log(SERVER, "lost-with-its-log")
    lab.start(2, 3)
    lab.start(SERVER)


SCENARIO = Scenario(
    name="hole-at-start",
    title="a log is missing in the middle, and what follows is replayed over the hole",
    size=3,
    play=play,
    keys=("/a", "/b", "/c"),
    expected={"/a": "lost-with-its-log", "/b": "1", "/c": "3"},
    kind="lost-snapshot-gap",
)
