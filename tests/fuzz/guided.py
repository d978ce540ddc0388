"""The same targets under libFuzzer: `make fuzz-guided SECONDS=600`.

atheris counts the branches that an input takes, and mutates what leads to new ones. The development
environment does not have it: `make fuzz-guided` installs it, where there is a wheel of it. One
process a target, because libFuzzer never gives its process back; what it finds on the way is kept
in a folder of its own, and a finding ends with its bytes.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

_CORPUS = Path(__file__).parent / "corpus"


def explore(name: str, seconds: int, found: str) -> None:
    """Run one target; does not return."""
    import atheris

    with atheris.instrument_imports(include=["keepfast"]):
        from tests.fuzz.targets import TARGETS
    arguments = [sys.argv[0], f"-max_total_time={seconds}", "-max_len=4096", "-timeout=30"]
    atheris.Setup([*arguments, "-print_final_stats=1", found, str(_CORPUS / name)], TARGETS[name])
    atheris.Fuzz()


def main(arguments: list[str]) -> int:
    """Without a target: all of them, each for its share of the time."""
    if len(arguments) == 3:
        explore(arguments[0], int(arguments[1]), arguments[2])
    seconds = int(arguments[0]) if arguments else 60
    names = sorted(folder.name for folder in _CORPUS.iterdir())
    failed = []
    for name in names:
        share = str(max(seconds // len(names), 1))
        with tempfile.TemporaryDirectory(prefix="keepfast-fuzz-") as found:
            done = subprocess.run(
                [sys.executable, "-m", "tests.fuzz.guided", name, share, found],
                capture_output=True,
                text=True,
                check=False,
            )
        lines = done.stderr.splitlines()
        executed = [line for line in lines if "number_of_executed_units" in line]
        print(f"{name:18} exit {done.returncode}  {''.join(executed)}", flush=True)
        if done.returncode:
            failed.append(name)
            # What ends it by a signal or after too long says so on the other stream.
            print("\n".join([*done.stdout.splitlines()[-40:], *lines[-40:]]), flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
