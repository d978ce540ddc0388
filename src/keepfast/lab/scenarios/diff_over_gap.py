"""A leader that was itself caught up by SNAP serves a DIFF from a log with a hole in it.

The report: H1 and H2 are cut off from the leader, H3, at zxid Z1. The others continue to Z2. H1 is
reached again and is sent a SNAP, because the log would be larger; its own log now holds Z1, and Z2
and up, and nothing in between. H3 fails, and H1 leads. H2 is reached again, with Z1: H1 finds Z1 in
its log, finds that what follows is small, and sends that as a DIFF. H2 lacks everything between Z1
and Z2 from then on.

Five servers: of three, every quorum has one that holds it all.
"""

from keepfast.lab.lab import Lab
from keepfast.lab.scenario import Scenario


def play(lab: Lab) -> None:
    h3 = lab.start()
    # H1 is the one that is elected when H3 fails: of the others, its id is the greatest.
    h1, h2, *_ = sorted(lab.servers.keys() - {h3}, reverse=True)
    # A tree that is large, so that a little log is small beside it.
    lab.fill("/bulk", 800, 1000)
    lab.write({"/z1": "1", "/between": "old"})
    lab.wait_caught_up()
    lab.cut_off(h1, h2)
    lab.overwrite("/between", 1600, 500)
    lab.write({"/between": "new", "/z2": "2"})
    lab.reconnect(h1)
    lab.write({"/after-z2": "3"})
    lab.wait_caught_up()
    lab.kill(h3)
    lab.elect()
    lab.reconnect(h2)
    lab.start(h3)


SCENARIO = Scenario(
    name="diff-over-gap",
    title="a DIFF is served over a hole in the leader's log",
    size=5,
    play=play,
    keys=("/z1", "/between", "/z2", "/after-z2"),
    # Logs roll often: what lies between Z1 and Z2 is in files of its own.
    properties={"zookeeper.snapCount": "300"},
    kind="gap-served-as-diff",
    has_wires=True,
)
