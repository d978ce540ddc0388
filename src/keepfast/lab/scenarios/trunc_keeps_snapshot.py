"""TRUNC cuts the log, and keeps a snapshot that holds what was cut off.

A single server logs a write, and dies. It is started again and elected, and writes a snapshot
of what it has before anybody followed it; it dies again. The others continue without that write,
and when it comes back they have it cut its log. It does, loads its newest snapshot, and serves the
write.
"""

from keepfast.lab.lab import Lab
from keepfast.lab.scenario import Scenario


def play(lab: Lab) -> None:
    lab.start()
    lab.write({"/a": "1", "/b": "1"})
    lab.keep_session()
    ahead = lab.write_alone("/a", "never-agreed")
    others = [id for id in lab.servers if id != ahead]
    # It has one more record, so it is elected; but nothing that it sends arrives.
    lab.start_unheard(ahead, others[0])
    lab.kill()
    lab.start(*others)
    lab.start(ahead)


SCENARIO = Scenario(
    name="trunc-keeps-snapshot",
    title="a TRUNC cuts the log, and keeps a snapshot of what was cut off",
    size=3,
    play=play,
    keys=("/a", "/b"),
    kind="wrong-snapshot",
)
