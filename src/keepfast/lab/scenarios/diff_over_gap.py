"""A leader that was itself caught up by SNAP serves a DIFF from a log with a hole in it.

The report: H1 and H2 lose the leader at zxid Z1. The others go on to Z2. H1 comes back and is sent
a SNAP, because the log would be larger; its own log now holds Z1, and Z2 and up, and nothing in
between. H1 leads next. H2 comes back with Z1: H1 finds Z1 in its log, finds that what follows is
small, and sends that as a DIFF. H2 lacks everything between Z1 and Z2 from then on.

Five servers: of three, every quorum has one that holds it all.
"""

from keepfast.lab.lab import Lab
from keepfast.lab.scenario import Scenario

H1, H2, H3 = 5, 4, 3


def play(lab: Lab) -> None:
    lab.start()
    # A tree that is large, so that a little log is small beside it.
    lab.fill("/bulk", 800, 1000)
    lab.kill()
    lab.start(1, 2, H3)
    lab.start(H1, H2)
    lab.write({"/z1": "1", "/between": "old"})
    lab.settle()
    lab.kill(H1, H2)
    lab.overwrite("/between", 1600, 500)
    lab.write({"/between": "new", "/z2": "2"})
    lab.start(H1)
    lab.write({"/after-z2": "3"})
    lab.settle()
    lab.kill()
    lab.start(1, 2, H1)
    lab.start(H2)
    lab.start(H3)


SCENARIO = Scenario(
    name="diff-over-gap",
    title="a DIFF is served over a hole in the leader's log",
    size=5,
    play=play,
    keys=("/z1", "/between", "/z2", "/after-z2"),
    # Logs roll often: what lies between Z1 and Z2 is in files of its own.
    properties={"zookeeper.snapCount": "300"},
    kind="gap-served-as-diff",
)
