"""A sector of the log reads as zeros, and zeros are taken for the end of the log.

A disk may give back zeros where it lost a sector. Apache ends its logs with zeros, so it takes the
lost record for the end, with everything after it: two servers like that elect one of them and
serve without writes that were acknowledged. The third one, which has them, is made to drop them.
"""

from keepfast.lab.lab import Lab
from keepfast.lab.scenario import Scenario


def play(lab: Lab) -> None:
    lab.start()
    lab.write({"/a": "1", "/b": "acknowledged-b", "/c": "acknowledged-c"})
    lab.wait_caught_up()
    lab.kill()
    lab.zero_record(1, "acknowledged-b")
    lab.zero_record(2, "acknowledged-b")
    lab.try_start(1, 2)
    lab.try_start(3)


SCENARIO = Scenario(
    name="zeroed-record",
    title="a record that reads as zeros ends the log, and acknowledged writes are gone",
    size=3,
    play=play,
    keys=("/a", "/b", "/c"),
    expected={"/a": "1", "/b": "acknowledged-b", "/c": "acknowledged-c"},
    kind="committed-lost",
)
