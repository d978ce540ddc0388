"""Generates the source of a record's encoder and decoder from its layout.

The output for `SetDataTxn(path: str, data: bytes | None, version: Int)`, shortened:

    def _encode(_record):
        (path, data, version,) = _record
        path = path.encode() if path.isascii() else _encode_text(path)
        if data is None:
            _n_data, data = -1, b""
        else:
            _n_data = len(data)
        return b"".join((_pack_i(len(path)), path, _pack_i(_n_data), data, _pack_i(version)))

    def _unpack(_buf, _pos, _end, _limit):
        _start = _pos
        _pos += 4
        if _pos > _end: raise _ends_early("SetDataTxn.path", 4, _start, _end)
        (_n,) = _at_i(_buf, _start)
        ... the same for data, and then
        _stop = _pos + 4
        if _stop > _end: raise _ends_early("SetDataTxn.version", 4, _pos, _end)
        (version,) = _at_i(_buf, _pos)
        _pos = _stop
        return _new(_cls, (path, data, version,)), _pos

Each name that is not a field starts with an underscore, which a field's name cannot.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from itertools import groupby
from struct import Struct
from typing import Any

import msgspec

from keepfast.wire import jute
from keepfast.wire.errors import InvariantViolation, MalformedRecord
from keepfast.wire.layout import (
    BOOLEAN,
    Buffer,
    Field,
    Fixed,
    Layout,
    Nested,
    Text,
    Vector,
    min_size,
    usual_lists,
)

Encode = Callable[[Any], bytes]
Unpack = Callable[[bytes, int, int, int], tuple[Any, int]]


class Source(msgspec.Struct):
    """A function under construction, and the values bound to its names."""

    lines: list[str]
    names: dict[str, Any] = msgspec.field(default_factory=dict)
    depth: int = 1

    def add(self, *lines: str) -> None:
        self.lines += ["    " * self.depth + line for line in lines]

    def pack(self, letters: str) -> str:
        """The name of the function that packs this `struct` format."""
        return self._struct("_pack_", letters, Struct(">" + letters).pack)

    def at(self, letters: str) -> str:
        """The name of the function that unpacks this `struct` format at an offset."""
        return self._struct("_at_", letters, Struct(">" + letters).unpack_from)

    def _struct(self, prefix: str, letters: str, function: Callable[..., Any]) -> str:
        name = prefix + letters.replace("?", "z")
        self.names[name] = function
        return name

    def text(self) -> str:
        return "\n".join(self.lines) + "\n"

    def compile(self, function: str, file_name: str) -> Any:
        exec(compile(self.text(), file_name, "exec"), self.names)
        return self.names[function]


def unencodable(record: tuple[Any, ...], error: struct.error) -> InvariantViolation:
    return InvariantViolation(f"{type(record).__name__} cannot be encoded: {error}")


def exact_text(raw: bytes, what: str, offset: int) -> str:
    text = jute.decode_exact_text(raw)
    if text is None:
        raise MalformedRecord(f"{what}: not a string that Java writes", offset)
    return text


def not_boolean(what: str, value: int, offset: int) -> MalformedRecord:
    return MalformedRecord(f"{what}: {value:#04x} is not a boolean", offset)


def encode_strings(strings: tuple[str, ...]) -> bytes:
    """A vector of ustrings; how a list of children is encoded."""
    pack = jute.INT.pack
    parts = [pack(len(strings))]
    for text in strings:
        raw = text.encode() if text.isascii() else jute.encode_text(text)
        parts.append(pack(len(raw)))
        parts.append(raw)
    return b"".join(parts)


def encode_source(layout: Layout, nested: Callable[[Any], Encode]) -> Source:
    """The source of `_encode(record) -> bytes`."""
    source = Source(["def _encode(_record):"])
    source.names |= {
        "_encode_text": jute.encode_text,
        "_encode_strings": encode_strings,
        "_StructError": struct.error,
        "_unencodable": unencodable,
    }
    source.add("try:")
    source.depth = 2
    if layout.is_fixed:
        letters = "".join(f.kind.letter for f in layout.fields if isinstance(f.kind, Fixed))
        source.add(f"return {source.pack(letters)}(*_record)")
    else:
        source.add(f"({_listed(layout)}) = _record")
        parts = [part for f in layout.fields for part in _encode_field(source, f, nested)]
        source.add('return b"".join((')
        source.add(*(f"    {expression}," for expression in _join_fixed(source, parts)))
        source.add("))")
    source.depth = 1
    source.add("except _StructError as _error:")
    source.add("    raise _unencodable(_record, _error) from _error")
    return source


def _listed(layout: Layout) -> str:
    return "".join(f"{f.name}, " for f in layout.fields).rstrip()


# A part of an encoding: (struct letter, expression of its value), or ("", expression of bytes).
_Part = tuple[str, str]


def _join_fixed(source: Source, parts: list[_Part]) -> list[str]:
    """Expressions of bytes; neighbouring fixed-size parts share one call."""
    expressions: list[str] = []
    letters, values = "", list[str]()
    for letter, expression in [*parts, ("", "")]:
        if letter:
            letters += letter
            values.append(expression)
            continue
        if letters:
            expressions.append(f"{source.pack(letters)}({', '.join(values)})")
            letters, values = "", []
        if expression:
            expressions.append(expression)
    return expressions


def _encode_field(source: Source, f: Field, nested: Callable[[Any], Encode]) -> list[_Part]:
    name, kind = f.name, f.kind
    if isinstance(kind, Text | Buffer):
        return _encode_sized(source, f)
    if isinstance(kind, Nested):
        return [("", f"{_nested_name(source, kind, nested)}({name})")]
    if isinstance(kind, Fixed):
        if f.is_at_end:
            return [("", f'b"" if {name} is None else {source.pack(kind.letter)}({name})')]
        return [(kind.letter, name)]
    if isinstance(kind.element, Text):
        encoded = f"_encode_strings({name})"
    else:
        encode = _nested_name(source, kind.element, nested)
        encoded = f'{source.pack("i")}(len({name})) + b"".join(map({encode}, {name}))'
        usual = usual_lists.get(kind.element.record)
        if usual is not None:
            source.names["_usual"], source.names["_usual_raw"] = usual, _raw(usual, nested)
            encoded = f"_usual_raw if {name} is _usual else {encoded}"
    if f.is_nullable:
        encoded = f"{source.pack('i')}(-1) if {name} is None else {encoded}"
    return [("", encoded)]


def _raw(usual: tuple[Any, ...], nested: Callable[[Any], Encode]) -> bytes:
    """The bytes of a vector of records."""
    return jute.INT.pack(len(usual)) + b"".join(nested(type(item))(item) for item in usual)


def _encode_sized(source: Source, f: Field) -> list[_Part]:
    """A ustring or a buffer: its length and its bytes."""
    name, length = f.name, f"len({f.name})"
    if f.is_nullable:
        length = f"_n_{name}"
        source.add(f"if {name} is None:", f'    {length}, {name} = -1, b""', "else:")
        source.depth += 1
    if isinstance(f.kind, Text):
        source.add(f"{name} = {name}.encode() if {name}.isascii() else _encode_text({name})")
    if f.is_nullable:
        source.add(f"{length} = len({name})")
        source.depth -= 1
    return [("i", length), ("", name)]


def _nested_name(source: Source, kind: Nested, nested: Callable[[Any], Any]) -> str:
    name = f"_{kind.record.__name__}"
    source.names[name] = nested(kind.record)
    return name


def unpack_source(
    record: type[tuple[Any, ...]],
    layout: Layout,
    nested: Callable[[Any], Unpack],
    encoder: Callable[[Any], Encode],
    *,
    is_exact: bool,
) -> Source:
    """The source of `_unpack(buffer, offset, end, max_field) -> (record, offset after it)`."""
    source = Source(["def _unpack(_buf, _pos, _end, _limit):"])
    source.names |= {
        "_cls": record,
        "_new": tuple.__new__,
        "_text": exact_text if is_exact else jute.decode_text,
        "_ends_early": jute.ends_early,
        "_bad_length": jute.bad_length,
        "_bad_count": jute.bad_count,
        "_not_boolean": not_boolean,
    }
    writer = _UnpackWriter(source, record.__name__, nested, encoder, is_exact)
    if layout.is_fixed and not (is_exact and any(f.kind == BOOLEAN for f in layout.fields)):
        size = layout.min_size
        letters = "".join(f.kind.letter for f in layout.fields if isinstance(f.kind, Fixed))
        source.add(f"_stop = _pos + {size}")
        source.add(f"if _stop > _end: raise _ends_early({record.__name__!r}, {size}, _pos, _end)")
        source.add(f"return _new(_cls, {source.at(letters)}(_buf, _pos)), _stop")
        return source
    for is_run, fields in groupby(layout.fields, _is_in_run):
        if is_run:
            writer.fixed_run(list(fields))
        else:
            for f in fields:
                writer.field(f)
    source.add(f"return _new(_cls, ({_listed(layout)})), _pos")
    return source


def _is_in_run(f: Field) -> bool:
    return isinstance(f.kind, Fixed) and not f.is_at_end


class _UnpackWriter:
    """Writes the lines that read one field, or a run of fixed-size fields."""

    def __init__(
        self,
        source: Source,
        record: str,
        nested: Callable[[Any], Unpack],
        encoder: Callable[[Any], Encode],
        is_exact: bool,
    ) -> None:
        self.source = source
        self.record = record
        self.nested = nested
        self.encoder = encoder
        self.is_exact = is_exact

    def fixed_run(self, fields: list[Field]) -> None:
        add = self.source.add
        letters, size = "", 0
        checks: list[tuple[str, int]] = []
        for f in fields:
            letter = f.kind.letter if isinstance(f.kind, Fixed) else ""
            if letter == "?" and self.is_exact:
                letter = "B"
                checks.append((f.name, size))
            letters += letter
            size += Struct(">" + letter).size
        what = f"{self.record}.{fields[0].name}"
        add(f"_stop = _pos + {size}")
        add(f"if _stop > _end: raise _ends_early({what!r}, {size}, _pos, _end)")
        add(
            f"({''.join(f.name + ', ' for f in fields).rstrip()}) = "
            f"{self.source.at(letters)}(_buf, _pos)"
        )
        for name, position in checks:
            what = f"{self.record}.{name}"
            add(f"if {name} > 1: raise _not_boolean({what!r}, {name}, _pos + {position})")
            add(f"{name} = {name} == 1")
        add("_pos = _stop")

    def field(self, f: Field) -> None:
        add = self.source.add
        if f.is_at_end:
            add("if _pos == _end:", f"    {f.name} = None", "else:")
            self.source.depth += 1
            self.fixed_run([f])
            self.source.depth -= 1
        elif isinstance(f.kind, Nested):
            unpack = _nested_name(self.source, f.kind, self.nested)
            add(f"{f.name}, _pos = {unpack}(_buf, _pos, _end, _limit)")
        elif isinstance(f.kind, Vector):
            self.vector(f, f.kind)
        elif isinstance(f.kind, Text | Buffer):
            self.sized(f.name, f"{self.record}.{f.name}", f.kind, f.is_nullable)

    def length(self, what: str) -> None:
        self.source.add(
            "_start = _pos",
            "_pos += 4",
            f"if _pos > _end: raise _ends_early({what!r}, 4, _start, _end)",
            f"(_n,) = {self.source.at('i')}(_buf, _start)",
        )

    def sized(self, name: str, what: str, kind: Text | Buffer, is_nullable: bool) -> None:
        """A ustring or a buffer."""
        source = self.source
        self.length(what)
        if is_nullable:
            source.add("if _n == -1:", f"    {name} = None", "else:")
            source.depth += 1
        elif isinstance(kind, Text) and kind.null_is_empty and not self.is_exact:
            source.add("if _n == -1: _n = 0")
        source.add("_stop = _pos + _n")
        source.add("if _n < 0 or _n > _limit or _stop > _end:")
        source.add(f"    raise _bad_length({what!r}, _n, _start, _end, _limit)")
        if isinstance(kind, Text):
            more = f", {what!r}, _start" if self.is_exact else ""
            source.add("_raw = _buf[_pos:_stop]")
            source.add(f"{name} = _raw.decode() if _raw.isascii() else _text(_raw{more})")
        else:
            source.add(f"{name} = _buf[_pos:_stop]")
        source.add("_pos = _stop")
        if is_nullable:
            source.depth -= 1

    def vector(self, f: Field, kind: Vector) -> None:
        source, name = self.source, f.name
        usual = None if isinstance(kind.element, Text) else usual_lists.get(kind.element.record)
        if usual is None:
            self.any_vector(f, kind)
            return
        raw = _raw(usual, self.encoder)
        source.names["_usual"], source.names["_usual_raw"] = usual, raw
        source.add(f"_stop = _pos + {len(raw)}")
        source.add("if _stop <= _end and _buf.startswith(_usual_raw, _pos):")
        source.add(f"    {name}, _pos = _usual, _stop", "else:")
        source.depth += 1
        self.any_vector(f, kind)
        source.depth -= 1

    def any_vector(self, f: Field, kind: Vector) -> None:
        source, name = self.source, f.name
        what = f"{self.record}.{name}"
        self.length(what)
        if f.is_nullable:
            source.add("if _n == -1:", f"    {name} = None", "else:")
            source.depth += 1
        # Before anything is allocated: a count of two billion in a short frame is refused.
        source.add(f"if _n < 0 or _n * {min_size(kind.element)} > _end - _pos:")
        source.add(f"    raise _bad_count({what!r}, _n, _start, _end)")
        source.add("_items = []")
        source.add("for _ in range(_n):")
        source.depth += 1
        if isinstance(kind.element, Text):
            self.sized("_item", what, kind.element, is_nullable=False)
        else:
            unpack = _nested_name(source, kind.element, self.nested)
            source.add(f"_item, _pos = {unpack}(_buf, _pos, _end, _limit)")
        source.add("_items.append(_item)")
        source.depth -= 1
        source.add(f"{name} = tuple(_items)")
        if f.is_nullable:
            source.depth -= 1
