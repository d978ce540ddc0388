"""Two of three servers lose their disks, start first, and elect an empty tree.

Nobody reported this one; it is what "an empty server is a new server" leads to. The third server,
which still has everything, is made to forget it.
"""

from keepfast.lab.lab import Lab
from keepfast.lab.scenario import Scenario


def play(lab: Lab) -> None:
    lab.start()
    lab.write({"/a": "1", "/b": "2"})
    lab.wait_caught_up()
    lab.kill()
    lab.wipe(1, 2)
    # This should fail: two empty servers cannot distinguish a new ensemble from a lost one.
    lab.try_start(1, 2)
    lab.try_start(3)


SCENARIO = Scenario(
    name="wiped-majority",
    title="two wiped servers elect an empty tree, and the third loses what it had",
    size=3,
    play=play,
    keys=("/a", "/b"),
    expected={"/a": "1", "/b": "2"},
    kind="history-forgotten",
)
