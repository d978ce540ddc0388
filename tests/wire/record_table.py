"""Every record of ZooKeeper, as its reference lists them, and a naive encoder to judge ours by.

The types are written down here a second time, on purpose: `keepfast.wire` derives its codecs from
annotations, and a wrong annotation would encode and decode happily.

    ustring buffer int long ulong boolean    the primitives
    Stat, ACL, …                             another record of the table
    vector<T>                                a vector
    T?                                       may be null
    T*                                       may be absent at the end of the record
"""

from __future__ import annotations

import functools
import struct
from collections.abc import Callable
from typing import Any, TypeVar

from hypothesis import strategies as st

from keepfast import wire

Record = type[tuple[Any, ...]]
T = TypeVar("T")

DATA: dict[Record, str] = {
    wire.Id: "ustring ustring",
    wire.ACL: "int Id",
    wire.Stat: "long long long long int int int long int int long",
    wire.StatPersisted: "long long long long int int int long long",
    wire.ClientInfo: "ustring ustring",
}
CLIENT: dict[Record, str] = {
    wire.ConnectRequest: "int long int long buffer? boolean*",
    wire.ConnectResponse: "int int long buffer? boolean*",
    wire.RequestHeader: "int int",
    wire.ReplyHeader: "int long int",
    wire.AuthPacket: "int ustring buffer?",
    wire.MultiHeader: "int boolean int",
    wire.ErrorResponse: "int",
    wire.WatcherEvent: "int int ustring",
    wire.CreateRequest: "ustring buffer? vector<ACL>? int",
    wire.CreateTTLRequest: "ustring buffer? vector<ACL>? int long",
    wire.CreateResponse: "ustring",
    wire.Create2Response: "ustring Stat",
    wire.DeleteRequest: "ustring int",
    wire.DeleteContainerRequest: "buffer",
    wire.ExistsRequest: "ustring boolean",
    wire.GetDataRequest: "ustring boolean",
    wire.GetChildrenRequest: "ustring boolean",
    wire.GetChildren2Request: "ustring boolean",
    wire.ExistsResponse: "Stat",
    wire.SetDataResponse: "Stat",
    wire.SetACLResponse: "Stat",
    wire.GetDataResponse: "buffer? Stat",
    wire.SetDataRequest: "ustring buffer? int",
    wire.GetACLRequest: "ustring",
    wire.GetACLResponse: "vector<ACL>? Stat",
    wire.SetACLRequest: "ustring vector<ACL>? int",
    wire.GetChildrenResponse: "vector<ustring>",
    wire.GetChildren2Response: "vector<ustring> Stat",
    wire.SyncRequest: "ustring?",
    wire.SyncResponse: "ustring?",
    wire.CheckVersionRequest: "ustring int",
    wire.ReconfigRequest: "ustring? ustring? ustring? long",
    wire.GetSASLRequest: "buffer?",
    wire.SetSASLResponse: "buffer?",
    wire.SetWatches: "long vector<ustring>? vector<ustring>? vector<ustring>?",
    wire.SetWatches2: "long" + 5 * " vector<ustring>?",
    wire.AddWatchRequest: "ustring int",
    wire.CheckWatchesRequest: "ustring int",
    wire.RemoveWatchesRequest: "ustring int",
    wire.GetEphemeralsRequest: "ustring?",
    wire.GetEphemeralsResponse: "vector<ustring>",
    wire.GetAllChildrenNumberRequest: "ustring",
    wire.GetAllChildrenNumberResponse: "int",
    wire.WhoAmIResponse: "vector<ClientInfo>",
}
QUORUM: dict[Record, str] = {
    wire.QuorumPacket: "int long buffer? vector<Id>?",
    wire.LearnerInfo: "long int long*",
    wire.QuorumAuthPacket: "long int buffer?",
    wire.RevalidateRequest: "long int",
    wire.RevalidateReply: "long boolean",
    wire.TouchedSession: "long int",
}
STORAGE: dict[Record, str] = {
    wire.TxnHeader: "long int long long int",
    wire.TxnDigest: "int ulong",
    wire.CreateTxnV0: "ustring buffer? vector<ACL>? boolean",
    wire.CreateTxn: "ustring buffer? vector<ACL>? boolean int",
    wire.CreateTTLTxn: "ustring buffer? vector<ACL>? int long",
    wire.CreateContainerTxn: "ustring buffer? vector<ACL>? int",
    wire.DeleteTxn: "ustring",
    wire.SetDataTxn: "ustring buffer? int",
    wire.CheckVersionTxn: "ustring int",
    wire.SetACLTxn: "ustring vector<ACL>? int",
    wire.CreateSessionTxn: "int",
    wire.CloseSessionTxn: "vector<ustring>?",
    wire.ErrorTxn: "int",
    wire.SubTxn: "int buffer?",
    wire.MultiTxn: "vector<SubTxn>?",
}
RECORDS: dict[Record, str] = {**DATA, **CLIENT, **QUORUM, **STORAGE}

# Named tuples of the package that are not jute records: their bytes have a form of their own.
NOT_JUTE: set[Record] = {
    wire.ForwardedRequest,
    wire.Hello,
    wire.LogEntry,
    wire.MultiOp,
    wire.MultiResult,
    wire.Notification,
}

_BY_NAME = {record.__name__: record for record in RECORDS}
_STRUCTS = {"int": ">i", "long": ">q", "ulong": ">Q", "boolean": ">?"}
_RANGES = {
    "int": (-(2**31), 2**31 - 1),
    "long": (-(2**63), 2**63 - 1),
    "ulong": (0, 2**64 - 1),
}


def naive_encode(kind: str, value: Any) -> bytes:
    """The bytes of one value of a type, by the rules of jute and nothing else."""
    if kind.endswith("*"):
        return b"" if value is None else naive_encode(kind[:-1], value)
    if kind.endswith("?"):
        return b"\xff\xff\xff\xff" if value is None else naive_encode(kind[:-1], value)
    if kind in _STRUCTS:
        return struct.pack(_STRUCTS[kind], value)
    if kind == "buffer":
        return struct.pack(">i", len(value)) + bytes(value)
    if kind == "ustring":
        raw = b"".join(_java_bytes(unit) for unit in _utf16_units(value))
        return struct.pack(">i", len(raw)) + raw
    if kind.startswith("vector<"):
        elements = b"".join(naive_encode(kind[7:-1], element) for element in value)
        return struct.pack(">i", len(value)) + elements
    return naive_encode_record(_BY_NAME[kind], value)


def naive_encode_record(record: Record, value: tuple[Any, ...]) -> bytes:
    kinds = RECORDS[record].split()
    return b"".join(naive_encode(kind, v) for kind, v in zip(kinds, value, strict=True))


def _utf16_units(text: str) -> list[int]:
    units: list[int] = []
    for character in text:
        point = ord(character)
        if point > 0xFFFF:
            units += [0xD800 + (point - 0x10000 >> 10), 0xDC00 + (point - 0x10000 & 0x3FF)]
        else:
            units.append(point)
    return units


def _java_bytes(unit: int) -> bytes:
    if unit < 0x80:
        return bytes([unit])
    if unit < 0x800:
        return bytes([0xC0 | unit >> 6, 0x80 | unit & 0x3F])
    return bytes([0xE0 | unit >> 12, 0x80 | unit >> 6 & 0x3F, 0x80 | unit & 0x3F])


@functools.cache
def values(kind: str) -> st.SearchStrategy[Any]:
    """Values of one type."""
    if kind[-1] in "?*":
        return st.none() | values(kind[:-1])
    if kind == "boolean":
        return st.booleans()
    if kind in _RANGES:
        return st.integers(*_RANGES[kind])
    if kind == "buffer":
        return st.binary(max_size=40)
    if kind == "ustring":
        return st.text(max_size=20)
    if kind.startswith("vector<"):
        return st.lists(values(kind[7:-1]), max_size=4).map(tuple)
    return records(_BY_NAME[kind])


@functools.cache
def records(record: Record) -> st.SearchStrategy[Any]:
    """Records of one kind."""
    fields = [values(kind) for kind in RECORDS[record].split()]
    return st.tuples(*fields).map(lambda chosen: make(record, chosen))


def attempt(function: Callable[..., T], *arguments: Any) -> T | wire.MalformedRecord:
    """What the function returns, or the one error that malformed input may raise."""
    try:
        return function(*arguments)
    except wire.MalformedRecord as error:
        return error


def make(record: Any, fields: tuple[Any, ...]) -> Any:
    """A record of a kind that only the running test knows."""
    return record(*fields)


def record_id(record: Any) -> str:
    """The name of a record, for pytest's parametrize."""
    return str(record.__name__)
