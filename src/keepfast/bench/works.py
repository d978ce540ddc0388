"""The workloads: each defines, request by request, what a client does.

A workload is a generator per request in flight: it yields a request and is sent the reply to it,
so that a client that deletes what it created reads as such. The same names are known to
`benchmarks/zkload.c`, which costs less CPU.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass
from itertools import count
from random import Random
from typing import Final, NamedTuple

from keepfast.wire import (
    OPEN_ACL,
    CheckVersionRequest,
    CreateMode,
    CreateRequest,
    CreateResponse,
    DeleteRequest,
    ExistsRequest,
    GetChildren2Request,
    GetChildrenRequest,
    GetDataRequest,
    MultiOp,
    OpCode,
    SetDataRequest,
    decode,
    encode,
    encode_multi_request,
)

ANY_VERSION: Final = -1
# Below `WorkSetting.root`.
MADE: Final = "/made"
LOCK: Final = "/lock"
KIDS: Final = "/kids"
MANY: Final = "/many"
KIDS_COUNT: Final = 20


class BenchRequest(NamedTuple):
    """One request: its type and its encoded body."""

    op: OpCode
    body: bytes


# The body of a reply; a workload never sees errors, as they end the measurement.
Slot = Generator[BenchRequest, bytes, None]


@dataclass(frozen=True, slots=True)
class WorkSetting:
    """What all works share."""

    root: str
    keys: int
    value: bytes
    # Of the znode whose children `list` asks for.
    children: int
    # Unlike that of any other run: names below MADE never meet.
    run: str

    def key(self, rng: Random) -> str:
        """A znode of the working set."""
        return f"{self.root}/k{rng.randrange(self.keys)}"


_names = count()


def create(path: str, value: bytes, mode: CreateMode = CreateMode.PERSISTENT) -> BenchRequest:
    """A create request."""
    return BenchRequest(OpCode.CREATE, encode(CreateRequest(path, value, OPEN_ACL, mode.value)))


def delete(path: str) -> BenchRequest:
    """A delete request for any version."""
    return BenchRequest(OpCode.DELETE, encode(DeleteRequest(path, ANY_VERSION)))


def get(path: str, watch: bool = False) -> BenchRequest:
    """A getData request."""
    return BenchRequest(OpCode.GET_DATA, encode(GetDataRequest(path, watch)))


def set_data(path: str, value: bytes) -> BenchRequest:
    """A setData request for any version."""
    return BenchRequest(OpCode.SET_DATA, encode(SetDataRequest(path, value, ANY_VERSION)))


def exists(path: str, watch: bool = False) -> BenchRequest:
    """An exists request."""
    return BenchRequest(OpCode.EXISTS, encode(ExistsRequest(path, watch)))


def children2(path: str) -> BenchRequest:
    """A getChildren2 request."""
    return BenchRequest(OpCode.GET_CHILDREN2, encode(GetChildren2Request(path, False)))


def _new_name(setting: WorkSetting) -> str:
    return f"{setting.root}{MADE}/{setting.run}-{next(_names):x}"


def _get(setting: WorkSetting, rng: Random) -> Slot:
    while True:
        yield get(setting.key(rng))


def _exists(setting: WorkSetting, rng: Random) -> Slot:
    while True:
        yield exists(setting.key(rng))


def _set(setting: WorkSetting, rng: Random) -> Slot:
    while True:
        yield set_data(setting.key(rng), setting.value)


def _mix(setting: WorkSetting, rng: Random) -> Slot:
    while True:
        key = setting.key(rng)
        yield get(key) if rng.random() < 0.9 else set_data(key, setting.value)


def _children(setting: WorkSetting, rng: Random) -> Slot:
    while True:
        yield children2(setting.root + KIDS)


def _list(setting: WorkSetting, rng: Random) -> Slot:
    body = encode(GetChildrenRequest(setting.root + MANY, False))
    while True:
        yield BenchRequest(OpCode.GET_CHILDREN, body)


def _watch(setting: WorkSetting, rng: Random) -> Slot:
    while True:
        key = setting.key(rng)
        yield get(key, watch=True) if rng.random() < 0.9 else set_data(key, setting.value)


def _create(setting: WorkSetting, rng: Random) -> Slot:
    while True:
        yield create(_new_name(setting), setting.value)


def _create_delete(setting: WorkSetting, rng: Random) -> Slot:
    while True:
        yield from _made_and_deleted(setting, CreateMode.PERSISTENT)


def _ephemeral(setting: WorkSetting, rng: Random) -> Slot:
    while True:
        yield from _made_and_deleted(setting, CreateMode.EPHEMERAL)


def _made_and_deleted(setting: WorkSetting, mode: CreateMode) -> Slot:
    path = _new_name(setting)
    yield create(path, setting.value, mode)
    yield delete(path)


def _lock(setting: WorkSetting, rng: Random) -> Slot:
    while True:
        name = f"{setting.root}{LOCK}/{setting.run}-"
        body = yield create(name, setting.value, CreateMode.EPHEMERAL_SEQUENTIAL)
        yield delete(decode(CreateResponse, body).path)


def _multi(setting: WorkSetting, rng: Random) -> Slot:
    while True:
        key, name = setting.key(rng), _new_name(setting)
        made = CreateRequest(name, setting.value, OPEN_ACL, 0)
        operations = (
            MultiOp(OpCode.CHECK.value, CheckVersionRequest(key, ANY_VERSION)),
            MultiOp(OpCode.SET_DATA.value, SetDataRequest(key, setting.value, ANY_VERSION)),
            MultiOp(OpCode.CREATE.value, made),
            MultiOp(OpCode.DELETE.value, DeleteRequest(name, ANY_VERSION)),
        )
        yield BenchRequest(OpCode.MULTI, encode_multi_request(operations))


def _everyday(setting: WorkSetting, rng: Random) -> Slot:
    while True:
        dice, key = rng.random(), setting.key(rng)
        if dice < 0.50:
            yield get(key)
        elif dice < 0.65:
            yield exists(key, watch=True)
        elif dice < 0.80:
            yield children2(setting.root + KIDS)
        elif dice < 0.90:
            yield set_data(key, setting.value)
        else:
            yield from _made_and_deleted(setting, CreateMode.PERSISTENT)


@dataclass(frozen=True, slots=True)
class Work:
    """One row of the table: what clients do, and how many of them."""

    name: str
    summary: str
    # None: it is not a stream of requests (load.py).
    requests: Callable[[WorkSetting, Random], Slot] | None
    connections: int = 8
    in_flight: int = 32


WORKS: Final = {
    work.name: work
    for work in (
        Work("get", "getData", _get),
        Work("exists", "exists", _exists),
        Work("children", f"getChildren2 of {KIDS_COUNT} children", _children),
        Work("list", "getChildren of a large znode", _list, 4, 4),
        Work("watch", "90 % getData with a watch, 10 % setData", _watch),
        Work("set", "setData", _set),
        Work("mix", "90 % getData, 10 % setData", _mix),
        Work("create", "create", _create),
        Work("createdelete", "create, then delete", _create_delete),
        Work("ephemeral", "ephemeral create, then delete", _ephemeral),
        Work("lock", "ephemeral sequential create, then delete", _lock, 8, 8),
        Work("multi", "check, setData, create and delete in one multi", _multi),
        Work(
            "everyday",
            "50 % get, 15 % exists with a watch, 15 % children, 10 % set, 10 % create/delete",
            _everyday,
        ),
        Work("connect", "sessions opened and closed", None, 50, 1),
        Work("watchers", "events of one change to many watchers", None, 500, 1),
    )
}
