"""A TRUNC is interrupted by a power cut: it never reached the disk, and what came after it did.

A single server logs a write, and dies. The others continue without it, and when it comes back
they have it cut its log. It does, takes a snapshot of what is left, and follows. Apache 3.9.5
fsyncs neither of the two, but the records that it logs from then on. Then the power fails: the log
is as long as it was, the snapshot is gone, and the new records are there. The next start replays
all of it.

The power cut is played by putting the log back as it was before, and removing that snapshot.
"""

from keepfast.lab.lab import Lab
from keepfast.lab.scenario import Scenario


def play(lab: Lab) -> None:
    lab.start()
    lab.write({"/a": "1", "/b": "1"})
    lab.keep_session()
    ahead = lab.write_alone("/a", "never-agreed")
    others = [id for id in lab.servers if id != ahead]
    # They elect without writing anything: then TRUNC is what it is sent.
    lab.start(*others)
    before = lab.files(ahead)
    lab.start(ahead)
    lab.write({"/b": "2"})
    lab.wait_caught_up()
    lab.kill()
    lab.undo_trunc(ahead, before)
    lab.start(*others)
    lab.start(ahead)


SCENARIO = Scenario(
    name="interrupted-trunc",
    title="a TRUNC is lost in a power cut, and what it cut off is replayed",
    size=3,
    play=play,
    keys=("/a", "/b"),
    expected={"/a": "1", "/b": "2"},
    kind="stale-record-after-trunc",
)
