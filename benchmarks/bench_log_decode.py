"""Decoding a transaction log, against Apache's TxnLogToolkit; both from process start to end.

Apache's tool prints each record; ours decodes header, body and digest of each and checks its sum.
"""

import subprocess
import sys
from pathlib import Path

from benchmarks.common import (
    apache_command,
    median_pair,
    print_table,
    run_python,
    scratch,
    timed,
    write_log,
)
from keepfast.storage import LogReader, RealDisk
from keepfast.wire import decode_entry

RECORDS = 500_000


def decode_all(path: str) -> int:
    """Decode every record of a log."""
    count = 0
    with RealDisk().open_read(path) as file:
        for record in LogReader(file):
            decode_entry(record.entry)
            count += 1
    return count


def main() -> None:
    with scratch() as place:
        log = place / "log.100000001"
        write_log(log, RECORDS)
        ours, apache = median_pair(
            lambda: timed(lambda: run_python("-m", "benchmarks.bench_log_decode", str(log))),
            lambda: timed(lambda: toolkit(log)),
        )
    rows = [
        ["TxnLogToolkit -d", f"{apache:.2f}", f"{RECORDS / apache:,.0f}", "1.0"],
        ["keepfast, all fields", f"{ours:.2f}", f"{RECORDS / ours:,.0f}", f"{apache / ours:.1f}"],
    ]
    print_table(f"decoding {RECORDS:,} records", ["tool", "wall s", "records/s", "ratio"], rows)


def toolkit(log: Path) -> None:
    """Apache's tool, its output thrown away."""
    tool = "org.apache.zookeeper.server.persistence.TxnLogToolkit"
    command = apache_command(tool, "-d", str(log), heap_mb=1024)
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        print(decode_all(sys.argv[1]))
    else:
        main()
