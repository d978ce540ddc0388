"""Kill a server under load, restart it, check its data, and repeat.

python -m tests.kill.campaign --kills 200
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.keepfast_server import KeepfastServer
from tests.kill.writers import Writer

_WRITERS = 4
_PROPERTIES = {
    # Frequent snapshots and purges, so that kills hit them, too.
    "zookeeper.snapCount": "400",
}
_COMPLAINTS = ("WARNING", "ERROR", "CRITICAL", "Traceback", "problem=")
_TORN_TAIL = "the end of a write that was never acknowledged"
_CONFIGURATION = {
    "autopurge.purgeInterval": "1",
    "autopurge.snapRetainCount": "3",
    "maxSessionTimeout": "600000",
}


@dataclass(slots=True)
class Report:
    """What was done, and what was verified."""

    kills: int = 0
    kills_of_starts: int = 0
    acknowledged: int = 0
    refused: int = 0
    survived: int = 0
    snapshots: int = 0

    def __str__(self) -> str:
        return (
            f"{self.kills} kills under load and {self.kills_of_starts} of a start: all of "
            f"{self.acknowledged:,} acknowledged writes kept, none of {self.refused:,} refused "
            f"ones done, {self.survived:,} that were sent and not acknowledged kept, "
            f"{self.snapshots} snapshots left, every start clean"
        )


def run(place: Path, kills: int, seed: int) -> Report:
    """Kill a server this many times; AssertionError says what was lost or invented."""
    chance = random.Random(seed)
    report = Report()
    server = KeepfastServer(place / "data", properties=_PROPERTIES, configuration=_CONFIGURATION)
    writers = [Writer(number, seed) for number in range(_WRITERS)]
    try:
        while report.kills < kills:
            if chance.random() < 0.1:
                _kill_the_start(server, chance)
                report.kills_of_starts += 1
            _start_clean(server, max(writer.last_zxid for writer in writers))
            for writer in writers:
                writer.connect(server.port)
                writer.check()
            _load_and_kill(server, writers, chance.uniform(0.02, 0.3))
            report.kills += 1
        _start_clean(server, max(writer.last_zxid for writer in writers))
        for writer in writers:
            writer.connect(server.port)
            writer.check()
    finally:
        server.kill()
        for writer in writers:
            writer.close()
    for writer in writers:
        report.acknowledged += writer.acknowledged
        report.refused += writer.refused
        report.survived += writer.survived
    report.snapshots = len(list(server.version_dir.glob("snapshot.*")))
    return report


def _kill_the_start(server: KeepfastServer, chance: random.Random) -> None:
    server.launch()
    time.sleep(chance.uniform(0.05, 0.6))
    server.kill()


def _start_clean(server: KeepfastServer, last_zxid: int) -> None:
    server.start()
    # A torn tail is what a crash leaves, and is reported as a note; anything else is wrong.
    complaints = [
        line
        for line in server.output().splitlines()
        if any(word in line for word in _COMPLAINTS) and _TORN_TAIL not in line
    ]
    assert not complaints, complaints
    assert server.last_zxid() >= last_zxid, f"the history ends before {last_zxid:#x}"


def _load_and_kill(server: KeepfastServer, writers: Sequence[Writer], seconds: float) -> None:
    threads = [threading.Thread(target=writer.write_until_killed) for writer in writers]
    for thread in threads:
        thread.start()
    time.sleep(seconds)
    server.kill()
    for thread in threads:
        thread.join()
    for writer in writers:
        assert writer.problem is None, writer.problem


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as name:
        print(run(Path(name), options.kills, options.seed))
    return 0


if __name__ == "__main__":
    sys.exit(main())
