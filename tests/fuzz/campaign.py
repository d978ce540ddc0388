"""Mutates what is in the corpus and gives it to the targets: `make fuzz SECONDS=600`.

Coverage-guided in a small way: an input that reaches lines of the package that none before it did
is kept for further mutation. A finding ends the run with its target and its bytes, which belong
into the corpus.
"""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

from tests.fuzz.targets import TARGETS, Target

CORPUS = Path(__file__).parent / "corpus"
_PACKAGE = "/keepfast/"
_MAX_KEPT = 2000


def seeds(name: str) -> list[bytes]:
    """The corpus of one target."""
    return [file.read_bytes() for file in sorted((CORPUS / name).glob("*"))] or [b""]


class Explorer:
    """Runs one target on mutated inputs, and keeps those that lead to new lines."""

    def __init__(self, name: str, seed: int) -> None:
        self.name = name
        self._target: Target = TARGETS[name]
        self._chance = random.Random(f"{name} {seed}")
        self._seen: set[tuple[str, int]] = set()
        self.kept = seeds(name)
        self.runs = 0

    def step(self) -> None:
        """Run one input; raises whatever the target does."""
        data = self.kept[self.runs] if self.runs < len(self.kept) else self._mutated()
        self.runs += 1
        before = len(self._seen)
        try:
            self._traced(data)
        except Exception as error:
            error.add_note(f"target {self.name}, input {data.hex()}")
            raise
        if len(self._seen) > before and len(self.kept) < _MAX_KEPT:
            self.kept.append(data)

    @property
    def lines(self) -> int:
        """How many lines of the package were reached."""
        return len(self._seen)

    def _traced(self, data: bytes) -> None:
        seen = self._seen

        def line(frame: FrameType, event: str, _argument: Any) -> Callable[..., Any]:
            if event == "line":
                seen.add((frame.f_code.co_filename, frame.f_lineno))
            return line

        def call(frame: FrameType, _event: str, _argument: Any) -> Callable[..., Any] | None:
            return line if _PACKAGE in frame.f_code.co_filename else None

        # Tracing is slow: most inputs are run without, and only look for failures.
        if self.runs % 10:
            self._target(data)
            return
        before = sys.gettrace()
        sys.settrace(call)
        try:
            self._target(data)
        finally:
            sys.settrace(before)

    def _mutated(self) -> bytes:
        chance = self._chance
        data = bytearray(chance.choice(self.kept))
        for _ in range(chance.randrange(1, 6)):
            place = chance.randrange(len(data) + 1)
            roll = chance.random()
            if roll < 0.35 and place < len(data):
                data[place] = chance.randrange(256)
            elif roll < 0.55:
                number = chance.choice((0, -1, 1, 127, 2**31 - 1, -(2**31), 2**63 - 1))
                size = 4 if -(2**31) <= number < 2**31 else 8
                data[place : place + size] = number.to_bytes(size, "big", signed=True)
            elif roll < 0.7:
                del data[place : place + chance.randrange(1, 9)]
            elif roll < 0.85:
                data[place:place] = chance.randbytes(chance.randrange(1, 17))
            else:
                other = chance.choice(self.kept)
                data[place:] = other[chance.randrange(len(other) + 1) :]
        return bytes(data[:4096])


def main() -> int:
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 60.0
    seed = int(sys.argv[2]) if len(sys.argv) > 2 else time.time_ns()
    explorers = [Explorer(name, seed) for name in TARGETS]
    deadline = time.monotonic() + seconds
    print(f"seed {seed}")
    while time.monotonic() < deadline:
        for explorer in explorers:
            for _ in range(50):
                explorer.step()
    for explorer in explorers:
        print(f"{explorer.name:18} {explorer.runs:8} inputs {explorer.lines:6} lines reached")
    return 0


if __name__ == "__main__":
    sys.exit(main())
