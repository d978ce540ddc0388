"""A server serves from memory what its disk refused, and forgets it at the next start.

Writing a new log file fails for a moment, on one server. The others agree on the write, so that
server applies it as well. Apache's server gives up following, and follows again, with the tree that
it has in memory: it says that it has that write, so nobody sends it. The leader fails, an epoch
begins, and what that server logs next follows a record that it never had on disk. Its next start
replays the log over the hole.

The error is a real one: the system refuses writes after a certain offset, which is where a server
puts the end of a new file.
"""

from keepfast.lab.lab import Lab
from keepfast.lab.scenario import Scenario


def play(lab: Lab) -> None:
    leader = lab.start()
    server = min(lab.servers.keys() - {leader})
    lab.write({"/a": "1", "/b": "1", "/large": ""})
    lab.keep_session()
    # So large that the next record begins a file.
    lab.write_one("/large", "." * 2000)
    lab.write_failing(server, "/a", "not-on-every-disk")
    lab.kill(leader)
    lab.write({"/b": "2"})
    lab.start(leader)
    lab.wait_caught_up()
    lab.kill(server)
    lab.start(server)


SCENARIO = Scenario(
    name="memory-ahead-of-disk",
    title="a write that the disk refused is served from memory, and gone at the next start",
    size=3,
    play=play,
    keys=("/a", "/b"),
    properties={"zookeeper.txnLogSizeLimitInKb": "1", "zookeeper.preAllocSize": "2048"},
    expected={"/a": "not-on-every-disk", "/b": "2"},
    kind="lost-snapshot-gap",
)
