"""Virtual time: what is to happen, and when.

Nothing here waits: the clock jumps from one appointment to the next. Appointments of the same
microsecond are kept in the order in which they were made, so that a run is the same every time.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from typing import Final

Action = Callable[[], None]

MS: Final = 1000
SECOND: Final = 1_000_000


class LivelockError(Exception):
    """So much happens in so little time that something must be in a loop."""


class Appointment:
    """One thing to be done at one time; it can be called off."""

    __slots__ = ("action",)

    def __init__(self, action: Action) -> None:
        self.action: Action | None = action

    def cancel(self) -> None:
        """Cancel it; not an error if it already happened."""
        self.action = None


class Agenda:
    """The clock of a world and all that is to come in it."""

    __slots__ = (
        "_count",
        "_heap",
        "_second",
        "_second_steps",
        "busiest",
        "now_us",
        "step_limit",
        "steps",
    )

    def __init__(self, step_limit: int = 20_000) -> None:
        self.now_us = 0
        # More appointments than this in a second indicate a livelock.
        self.step_limit = step_limit
        # The most that were kept in a second so far.
        self.busiest = 0
        self._second = 0
        self._second_steps = 0
        # Appointments that were kept.
        self.steps = 0
        self._count = 0
        # Time, number, appointment: no two have the same number.
        self._heap: list[tuple[int, int, Appointment]] = []

    @property
    def now_ms(self) -> int:
        """The time in whole ms, as the state machines know it."""
        return self.now_us // MS

    def after(self, delay_us: int, action: Action) -> Appointment:
        """Have `action` called `delay_us` from now."""
        self._count += 1
        appointment = Appointment(action)
        heapq.heappush(self._heap, (self.now_us + max(delay_us, 0), self._count, appointment))
        return appointment

    def at(self, time_us: int, action: Action) -> Appointment:
        """Have `action` called at a time; one that is over means now."""
        return self.after(time_us - self.now_us, action)

    def step(self) -> bool:
        """Keep the next appointment; False if there is none."""
        while self._heap:
            time_us, _, appointment = heapq.heappop(self._heap)
            action = appointment.action
            if action is None:
                continue
            self.now_us = time_us
            self.steps += 1
            self._count_step()
            action()
            return True
        return False

    def _count_step(self) -> None:
        second = self.now_us // SECOND
        if second != self._second:
            self._second, self._second_steps = second, 0
        self._second_steps += 1
        if self._second_steps > self.busiest:
            self.busiest = self._second_steps
            if self.busiest > self.step_limit:
                raise LivelockError(f"more than {self.step_limit} steps in second {second}")

    def run_until(self, time_us: int, is_done: Callable[[], bool] | None = None) -> bool:
        """Let time pass up to `time_us`, or until `is_done`; True if that is why it ended."""
        while True:
            if is_done is not None and is_done():
                return True
            heap = self._heap
            while heap and heap[0][2].action is None:
                heapq.heappop(heap)
            if not heap or heap[0][0] > time_us:
                self.now_us = max(self.now_us, time_us)
                return is_done is not None and is_done()
            self.step()
