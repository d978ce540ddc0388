"""Maps the annotations of a NamedTuple to jute fields.

`records` documents the annotations; this module reads them, and rejects, when the record is first
used, whatever jute cannot express.
"""

from __future__ import annotations

import types
import typing
from struct import Struct
from typing import Annotated, Any, Final, Union

import msgspec


class Fixed(msgspec.Struct, frozen=True):
    """Marks an integer that takes a fixed number of bytes, by `struct`'s letter for it."""

    letter: str

    @property
    def size(self) -> int:
        return Struct(">" + self.letter).size


class AtEnd(msgspec.Struct, frozen=True):
    """Marks a last field that is left out, instead of being null, when it is None."""


AT_END: Final = AtEnd()
BOOLEAN: Final = Fixed("?")

Byte = Annotated[int, Fixed("b")]
Int = Annotated[int, Fixed("i")]
Long = Annotated[int, Fixed("q")]
UnsignedLong = Annotated[int, Fixed("Q")]


class Text(msgspec.Struct, frozen=True):
    """A ustring. `null_is_empty`: a lenient reader takes null for the empty string."""

    null_is_empty: bool = False


class Buffer(msgspec.Struct, frozen=True):
    """Raw bytes with a length."""


class Nested(msgspec.Struct, frozen=True):
    """A record inside a record."""

    record: type[tuple[Any, ...]]


class Vector(msgspec.Struct, frozen=True):
    """A list of strings or of records; nothing else occurs in ZooKeeper's records."""

    element: Text | Nested


# Record -> the most common list of such records. Its bytes are compared and copied as a whole, and
# decoding it returns this shared value.
usual_lists: dict[type[tuple[Any, ...]], tuple[Any, ...]] = {}

# Some clients send an empty string as null where Java accepts both.
LooseText = Annotated[str, Text(null_is_empty=True)]

Kind = Fixed | Text | Buffer | Nested | Vector


class Field(msgspec.Struct, frozen=True):
    name: str
    kind: Kind
    is_nullable: bool = False
    is_at_end: bool = False


class Layout(msgspec.Struct, frozen=True):
    """The fields of a record in wire order."""

    fields: tuple[Field, ...]

    @property
    def is_fixed(self) -> bool:
        """Whether each record of this kind has the same size, and one `struct` reads it."""
        return all(isinstance(field.kind, Fixed) and not field.is_at_end for field in self.fields)

    @property
    def min_size(self) -> int:
        """The smallest size of a record of this kind, in bytes."""
        return sum(min_size(field.kind) for field in self.fields if not field.is_at_end)


def layout_of(record: type[tuple[Any, ...]]) -> Layout:
    """The layout of a NamedTuple class; TypeError if jute cannot express it."""
    hints = typing.get_type_hints(record, include_extras=True)
    names: tuple[str, ...] = getattr(record, "_fields", ())
    fields = tuple(_field(f"{record.__name__}.{name}", name, hints[name]) for name in names)
    for field in fields[:-1]:
        if field.is_at_end:
            raise TypeError(f"{record.__name__}.{field.name}: only a last field can be left out")
    return Layout(fields)


def min_size(kind: Kind) -> int:
    """The smallest size of a value of this kind, in bytes."""
    if isinstance(kind, Fixed):
        return kind.size
    if isinstance(kind, Nested):
        return layout_of(kind.record).min_size
    return 4


def _field(what: str, name: str, hint: Any) -> Field:
    is_at_end = False
    if typing.get_origin(hint) is Annotated:
        hint, marks = typing.get_args(hint)[0], typing.get_args(hint)[1:]
        if Text(null_is_empty=True) in marks:
            return Field(name, Text(null_is_empty=True))
        is_at_end = AT_END in marks
        if not is_at_end:
            return Field(name, _only_fixed(what, marks))
    is_nullable = typing.get_origin(hint) in (Union, types.UnionType)
    if is_nullable:
        choices = typing.get_args(hint)
        if len(choices) != 2 or choices[1] is not type(None):
            raise TypeError(f"{what}: jute has no type for {hint}")
        hint = choices[0]
    kind = _kind(what, hint)
    if is_nullable != is_at_end and isinstance(kind, Fixed | Nested):
        raise TypeError(f"{what}: jute cannot express null for {hint}")
    return Field(name, kind, is_nullable, is_at_end)


def _only_fixed(what: str, marks: tuple[Any, ...]) -> Fixed:
    for mark in marks:
        if isinstance(mark, Fixed):
            return mark
    raise TypeError(f"{what}: unknown marks {marks}")


def _kind(what: str, hint: Any) -> Kind:
    if isinstance(hint, typing.NewType):
        # Zxid, SessionId, ServerId: all ids are longs.
        return Fixed("q")
    if hint is bool:
        return BOOLEAN
    if hint is str:
        return Text()
    if hint is bytes:
        return Buffer()
    if typing.get_origin(hint) is Annotated:
        return _only_fixed(what, typing.get_args(hint)[1:])
    if typing.get_origin(hint) is tuple and typing.get_args(hint)[1:] == (Ellipsis,):
        element = _kind(what, typing.get_args(hint)[0])
        if isinstance(element, Text | Nested):
            return Vector(element)
    if isinstance(hint, type) and issubclass(hint, tuple) and hasattr(hint, "_fields"):
        return Nested(hint)
    raise TypeError(f"{what}: jute has no type for {hint}")
