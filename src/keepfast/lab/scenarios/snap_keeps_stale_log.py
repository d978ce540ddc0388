"""SNAP replaces the tree and leaves a write that was never committed in the log.

The report: a single server logs a write, and dies. The others continue; when it comes back it
is sent a SNAP. Its tree is right, but the record is still in its log. In older releases it is
replayed at the next restart. In newer ones it is skipped there, but it is still served: the server
leads later, and sends its log, with that record in it, to a server that was away for long.
"""

from keepfast.lab.lab import Lab
from keepfast.lab.scenario import Scenario

STALE, LATE = 4, 5


def play(lab: Lab) -> None:
    lab.start()
    lab.fill("/bulk", 800, 1000)
    lab.write({"/a": "1", "/b": "1"})
    lab.keep_session()
    lab.kill()
    # Server 5 is away from now on. Of a bare majority, the one with the greatest id leads.
    lab.start(1, 2, STALE)
    lab.write_alone("/a", "never-agreed")
    lab.start(1, 2, 3)
    lab.write({"/b": "2"})
    lab.start(STALE)
    lab.wait_caught_up()
    # It logs this one: its log is 1.., the record that was never committed, and this.
    lab.write({"/c": "3"})
    lab.wait_caught_up()
    lab.kill()
    lab.start(1, 2, STALE)
    lab.start(LATE)
    lab.start(3)


SCENARIO = Scenario(
    name="snap-keeps-stale-log",
    title="a write that was never committed stays in the log after a SNAP, and is served",
    size=5,
    play=play,
    keys=("/a", "/b", "/c"),
    kind="stale-record-served-as-committed",
)
