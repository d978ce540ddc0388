"""Values as Java prints them, for texts that scripts parse."""

from __future__ import annotations

import time
from typing import Final

_MIN_PLAIN: Final = 1e-3
_GREATEST_PLAIN: Final = 1e7
_UNSIGNED: Final = 1 << 64


def java_double(value: float) -> str:
    """A double: always with a point, and with an exponent where Java has one."""
    if value == 0 or _MIN_PLAIN <= abs(value) < _GREATEST_PLAIN:
        return repr(float(value))
    digits, exponent = f"{value:.16e}".split("e")
    # The shortest digits that give the same number, as repr finds them.
    shortest = repr(float(value)).replace("-", "").replace(".", "").partition("e")[0].strip("0")
    sign = "-" if digits.startswith("-") else ""
    return f"{sign}{shortest[:1]}.{shortest[1:] or '0'}E{int(exponent)}"


def java_number(value: float) -> str:
    """A long as digits, a double as above."""
    return str(value) if isinstance(value, int) else java_double(value)


def java_hex(value: int) -> str:
    """A long in hex, as two's complement and without a prefix."""
    return f"{value % _UNSIGNED:x}"


def java_long(value: int) -> int:
    """An unsigned number of 64 bits as the long that Java takes it for."""
    return value - _UNSIGNED if value >> 63 else value


def java_date(wall_ms: int) -> str:
    """A time, in UTC."""
    return time.strftime("%a %b %d %H:%M:%S UTC %Y", time.gmtime(wall_ms / 1000))
