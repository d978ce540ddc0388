"""TRUNC to a zxid that the log does not hold cuts after the next record, and keeps it.

The report: a server gets a part of the history by SNAP, so that its last zxid is in its snapshot
and not in its log. It leads, logs one more write that nobody sees, and dies. The others continue
without that write; when it comes back they order it to cut its log after the zxid that both know.
It looks for that record, finds the next one, which is the write that was never committed, cuts
after it, and serves it from then on.
"""

from keepfast.lab.lab import Lab
from keepfast.lab.scenario import Scenario


def play(lab: Lab) -> None:
    lab.start()
    lab.write({"/a": "1", "/b": "1"})
    lab.keep_session()
    # It logs a write of its own, so that it needs a SNAP when it comes back.
    old = lab.write_alone("/a", "never-agreed-1")
    others = [id for id in lab.servers if id != old]
    lab.start(*others)
    lab.write({"/b": "2"})
    lab.start(old)
    lab.wait_caught_up()
    # Now its last zxid is in a snapshot alone. It leads next, because its id is the greatest.
    lab.kill()
    lab.start(*sorted({old, others[0]}))
    second = lab.write_alone("/a", "never-agreed-2")
    rest = [id for id in lab.servers if id != second]
    # They elect without writing anything: then TRUNC is what it is sent.
    lab.start(*rest)
    lab.start(second)


SCENARIO = Scenario(
    name="trunc-misses-record",
    title="a TRUNC keeps a write that was never committed",
    size=3,
    play=play,
    keys=("/a", "/b"),
    kind="stale-record-after-trunc",
)
