"""A client that knows, at every moment, which states of its part of the tree are possible.

Each writer changes only what lies below its own znode, and its requests are carried out in the
order in which they were sent. So after a crash its part has to look as it did behind one of its
requests: not an earlier one than the last that was acknowledged, not a later one than the last that
was sent. Some requests must be refused; they leave no trace in any of these states.
"""

from __future__ import annotations

import random
import struct
from collections import deque
from typing import NamedTuple

from tests.differential import requests as wire
from tests.differential.requests import Op
from tests.differential.scripts import OPEN
from tests.differential.sides import NO_PASSWORD, Line

_WINDOW = 16
_NAMES = tuple(f"n{number}" for number in range(6))

# Path -> data and version.
State = dict[str, tuple[bytes, int]]


class Step(NamedTuple):
    """One request: its body, whether it has to be refused, and the state behind it."""

    op: int
    body: bytes
    is_refused: bool
    state: State


class Writer:
    """One writer over all crashes."""

    def __init__(self, number: int, seed: int) -> None:
        self.root = f"/w{number}"
        self._random = random.Random(seed * 1000 + number)
        self._state: State = {}
        # Requests that were sent and not answered when the server died.
        self._open: deque[Step] = deque()
        self._session: tuple[int, bytes] = (0, NO_PASSWORD)
        self._count = 0
        self._line: Line | None = None
        self.acknowledged = 0
        self.refused = 0
        self.survived = 0
        self.last_zxid = 0
        self.problem: str | None = None

    # -- a run -----------------------------------------------------------------------------------

    def connect(self, port: int) -> None:
        """Open a connection: the session has to have survived the crash."""
        line = self._line = Line(port)
        line.send(wire.connect(0, 60_000, *self._session))
        answer = line.receive()
        assert answer is not None, "no answer to the connect request"
        session_id, size = struct.unpack_from(">qi", answer, 8)
        assert session_id != 0, f"{self.root}: session {self._session[0]:#x} is gone"
        is_new = self._session[0] == 0
        self._session = (session_id, answer[20 : 20 + size])
        if is_new:
            # The root may be there already: the crash came behind the create.
            self.ask(Op.CREATE, wire.create(self.root, b"", OPEN, 0))
            self.ask(Op.CREATE, wire.create(f"{self.root}-e", b"", OPEN, 1))

    def close(self) -> None:
        if self._line is not None:
            self._line.close()

    def ask(self, op: int, body: bytes) -> tuple[int, bytes]:
        """One request; gives the error and the body of the reply."""
        assert self._line is not None
        self._line.send(struct.pack(">ii", 0, op) + body)
        frame = self._line.receive()
        assert frame is not None, "the connection was closed"
        _, zxid, error = struct.unpack_from(">iqi", frame)
        self.last_zxid = max(self.last_zxid, zxid)
        return error, frame[16:]

    def write_until_killed(self) -> None:
        """Send requests, many at a time, until the server is gone."""
        line = self._line
        assert line is not None
        try:
            while True:
                while len(self._open) < _WINDOW:
                    step = self._next_step()
                    self._open.append(step)
                    line.send(struct.pack(">ii", 0, step.op) + step.body)
                frame = line.receive()
                if frame is None:
                    break
                self._note(frame)
        finally:
            line.close()
            self._line = None

    def _note(self, frame: bytes) -> None:
        step = self._open.popleft()
        self._state = step.state
        _, zxid, error = struct.unpack_from(">iqi", frame)
        self.last_zxid = max(self.last_zxid, zxid)
        is_refused = error != 0
        if step.op == Op.MULTI and not is_refused:
            # Every result of a multi that failed is an error, if only that of another operation.
            type_, is_end, _ = struct.unpack_from(">i?i", frame, 16)
            is_refused = type_ == -1 and not is_end
        if is_refused != step.is_refused:
            self.problem = f"{self.root}: {step} was answered by {error}"
        self.acknowledged += not is_refused
        self.refused += is_refused

    # -- requests --------------------------------------------------------------------------------

    def _next_step(self) -> Step:
        state = self._open[-1].state if self._open else self._state
        chance = self._random
        self._count += 1
        data = b"%d" % self._count + b"." * chance.choice((0, 10, 2000))
        path = f"{self.root}/{chance.choice(_NAMES)}"
        held = state.get(path)
        roll = chance.random()
        if roll < 0.15:
            return self._multi(state, path, data)
        if held is None:
            if roll < 0.2:
                return Step(Op.SET_DATA, wire.set_data(path, b"refused", -1), True, state)
            after = {**state, path: (data, 0)}
            return Step(Op.CREATE, wire.create(path, data, OPEN, 0), False, after)
        version = held[1]
        if roll < 0.3:
            return Step(Op.SET_DATA, wire.set_data(path, b"refused", version + 1), True, state)
        if roll < 0.35:
            return Step(Op.CREATE, wire.create(path, b"refused", OPEN, 0), True, state)
        if roll < 0.5:
            after = {other: kept for other, kept in state.items() if other != path}
            return Step(Op.DELETE, wire.with_version(path, version), False, after)
        after = {**state, path: (data, version + 1)}
        return Step(Op.SET_DATA, wire.set_data(path, data, version), False, after)

    def _multi(self, state: State, path: str, data: bytes) -> Step:
        """Two changes at once, or two that are refused because the second cannot be."""
        mark = f"{self.root}/m{self._count}"
        operations = [(Op.CREATE, wire.create(mark, data, OPEN, 0))]
        if path in state and self._random.random() < 0.5:
            operations.append((Op.DELETE, wire.with_version(path, -1)))
            after = {other: kept for other, kept in state.items() if other != path}
            if len(after) < 40:
                return Step(Op.MULTI, wire.multi(operations), False, {**after, mark: (data, 0)})
            operations = [(Op.DELETE, wire.with_version(other, -1)) for other in state]
            return Step(Op.MULTI, wire.multi(operations), False, {})
        operations.append((Op.CHECK, wire.with_version(f"{self.root}/missing", 0)))
        return Step(Op.MULTI, wire.multi(operations), True, state)

    # -- behind a crash --------------------------------------------------------------------------

    def check(self) -> None:
        """Compare what is there with what may be; continue from what is."""
        found = self._read()
        states = [self._state, *(step.state for step in self._open)]
        # The latest that fits: refused requests leave the state as it was.
        for place in range(len(states) - 1, -1, -1):
            if states[place] == found:
                self.survived += sum(not step.is_refused for step in list(self._open)[:place])
                break
        else:
            raise AssertionError(
                f"{self.root}: none of {len(states)} possible states: "
                f"lost {sorted(set(self._state) - set(found))}, "
                f"strange {sorted(set(found) - set(states[-1]))}"
            )
        self._open.clear()
        self._state = found
        error, _ = self.ask(Op.EXISTS, wire.with_flag(f"{self.root}-e", False))
        assert error == 0, f"{self.root}: its ephemeral is gone, its session is not"

    def _read(self) -> State:
        error, body = self.ask(Op.GET_CHILDREN, wire.with_flag(self.root, False))
        assert error == 0, f"{self.root} is gone"
        found: State = {}
        place = 4
        for _ in range(struct.unpack_from(">i", body)[0]):
            (size,) = struct.unpack_from(">i", body, place)
            path = f"{self.root}/{body[place + 4 : place + 4 + size].decode()}"
            place += 4 + size
            error, data = self.ask(Op.GET_DATA, wire.with_flag(path, False))
            assert error == 0, path
            (length,) = struct.unpack_from(">i", data)
            stat = data[4 + length :]
            found[path] = (data[4 : 4 + length], struct.unpack_from(">i", stat, 32)[0])
        return found
