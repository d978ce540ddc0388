"""A full disk leaves partial snapshots; purge counts them as recent, and deletes the good one.

The report: the disk fills while a snapshot is written in place, and the server dies. It is started
again and again, each time leaving one more partial file. The purge keeps the three newest
snapshots, which are the partial ones, and deletes the last good one with the logs after it. Older
releases then start with what is left of the log and join with a part of the data. Apache 3.9.5
recognises partial files by their end, but not where snapshots are compressed: then it has no valid
snapshot left, and does not start.
"""

from keepfast.lab.lab import Lab
from keepfast.lab.scenario import Scenario

FULL = 1
DISK_BYTES = 6 << 20
SPACE_LEFT = 200 << 10


def play(lab: Lab) -> None:
    lab.start()
    lab.kill(FULL)
    lab.put_on_small_disk(FULL, DISK_BYTES)
    lab.start(FULL)
    lab.write({"/a": "1"})
    # What does not compress, so that a snapshot takes more space than there will be.
    lab.fill("/bulk", 150, 2000, is_random=True)
    lab.wait_caught_up()
    for _ in range(4):
        lab.kill(FULL)
        lab.purge(FULL, keep=3)
        lab.fill_disk(FULL, SPACE_LEFT)
        lab.try_start(FULL)
        lab.overwrite("/a", 120, 200)
        lab.kill(FULL)
        lab.free_disk(FULL)
    lab.purge(FULL, keep=3)
    lab.write({"/a": "2"})
    lab.try_start(FULL)


SCENARIO = Scenario(
    name="disk-full",
    title="a full disk leaves partial snapshots, and purge deletes the good one",
    size=3,
    play=play,
    keys=("/a",),
    properties={
        "zookeeper.snapCount": "60",
        "zookeeper.snapshot.compression.method": "gz",
    },
    configuration={
        "autopurge.snapRetainCount": "3",
        "autopurge.purgeInterval": "1",
        # The space that ours holds back by default is more than this disk has.
        "keepfast.diskReserveKb": "64",
    },
    kind="no-valid-snapshot",
)
