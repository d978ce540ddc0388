"""Quotas: two znodes below /zookeeper/quota, which the shell makes and the server watches.

    /zookeeper/quota/<path>/zookeeper_limits   what is allowed, written here
    /zookeeper/quota/<path>/zookeeper_stats    what is used, made here and kept up by the server

Their text is `count=5,bytes=-1=;byteHardLimit=10;countHardLimit=-1`: the first two fields and the
stray `=` are for readers of 3.4, which know nothing else; -1 is no limit.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from keepfast.client import Client, OperationFailed, validate_path
from keepfast.shell.command import Context, ShellCommand, decimal, flag, value_flag
from keepfast.shell.flags import Given, Syntax
from keepfast.shell.formats import Document
from keepfast.shell.reading import visit_subtree
from keepfast.shell.shell_failures import ShellFailure, UsageError
from keepfast.wire import ErrorCode

_ROOT: Final = "/zookeeper/quota"
_LIMITS: Final = "zookeeper_limits"
_STATS: Final = "zookeeper_stats"
_FIELD_OF_FLAG: Final = {
    "n": "count",
    "b": "bytes",
    "N": "countHardLimit",
    "B": "byteHardLimit",
}
_COUNTS: Final = ("n", "N")
_MAX_COUNT: Final = 0x7FFFFFFF
_MAX_BYTES: Final = 0x7FFFFFFFFFFFFFFF


@dataclass(slots=True)
class QuotaText:
    """The fields of one of the two znodes, in the order in which they are written."""

    fields: dict[str, int]

    @classmethod
    def parse(cls, data: bytes | None, path: str) -> QuotaText:
        fields: dict[str, int] = {}
        for pair in re.split("[,;]+", (data or b"").decode("utf-8", "replace")):
            name, _, value = pair.partition("=")
            number = value.partition("=")[0]
            try:
                fields[name] = int(number) if number else -1
            except ValueError as error:
                raise ShellFailure(f"{path} holds no quota: {data!r}") from error
        return cls(fields)

    def __str__(self) -> str:
        first = f"count={self.get('count')},bytes={self.get('bytes')}"
        others = sorted(name for name in self.fields if name not in ("count", "bytes"))
        if not others:
            return first
        return "=;".join([first, ";".join(f"{name}={self.fields[name]}" for name in others)])

    def get(self, name: str) -> int:
        return self.fields.get(name, -1)


def _setquota(context: Context, given: Given) -> Document:
    path = given.arguments[0]
    _refuse_chroot(context.client)
    if path.startswith(_ROOT):
        raise ShellFailure(f"cannot set a quota under the path: {_ROOT}")
    wanted = {_FIELD_OF_FLAG[name]: _limit(name, text) for name, text in given.flags.items()}
    client = context.client
    if client.exists(path) is None:
        raise ShellFailure(f"{path} does not exist.")
    _refuse_quota_below(client, path)
    _refuse_quota_above(client, path)
    limits_path, stats_path = f"{_ROOT}{path}/{_LIMITS}", f"{_ROOT}{path}/{_STATS}"
    _make_parents(client, path)
    if client.exists(limits_path) is None:
        limits = QuotaText(dict.fromkeys(_FIELD_OF_FLAG.values(), -1) | wanted)
        client.create(limits_path, str(limits).encode())
        client.create(stats_path, str(QuotaText({"count": 0, "bytes": 0})).encode())
        warnings = _warn_if_used_up(context, limits, _read(client, stats_path))
    else:
        limits = _read(client, limits_path)
        limits.fields |= wanted
        warnings = _warn_if_used_up(context, limits, _read(client, stats_path))
        client.set_data(limits_path, str(limits).encode())
    return {"path": path, "limits": limits.fields, "warnings": warnings}


def _refuse_chroot(client: Client) -> None:
    # The server looks for quotas below its own root: through a chroot one would be made, and kept
    # by nobody.
    if client.target.chroot:
        raise ShellFailure(f"quotas need a connection without a chroot, not {client.target.chroot}")


def _limit(flag: str, text: str) -> int:
    value = decimal(text)
    if value is None or value > (_MAX_COUNT if flag in _COUNTS else _MAX_BYTES):
        raise UsageError("NumberFormatException happens when parsing the option value")
    if flag in _COUNTS and value <= 0:
        raise UsageError("the num quota must be greater than zero")
    if value < 0:
        raise UsageError("the bytes quota must be greater than or equal to zero")
    return value


def _refuse_quota_below(client: Client, path: str) -> None:
    own = _ROOT + path
    try:
        for one in visit_subtree(client, own):
            parent, _, name = one.rpartition("/")
            if name == _LIMITS and parent != own:
                raise ShellFailure(
                    f"{path} has a child {parent.removeprefix(_ROOT)} which has a quota"
                )
    except OperationFailed as error:
        if error.code is not ErrorCode.NO_NODE:
            raise


def _refuse_quota_above(client: Client, path: str) -> None:
    names = path.split("/")[1:-1]
    for depth in range(1, len(names) + 1):
        ancestor = "/" + "/".join(names[:depth])
        try:
            children = client.get_children(_ROOT + ancestor)
        except OperationFailed as error:
            if error.code is ErrorCode.NO_NODE:
                return
            raise
        if _LIMITS in children:
            raise ShellFailure(f"{path} has a parent {ancestor} which has a quota")


def _make_parents(client: Client, path: str) -> None:
    """Make /zookeeper/quota/<path> and what is above it."""
    names = [*_ROOT.split("/")[1:], *path.split("/")[1:]]
    for depth in range(1, len(names) + 1):
        one = "/" + "/".join(names[:depth])
        if client.exists(one) is None:
            try:
                client.create(one)
            except OperationFailed as error:
                if error.code is not ErrorCode.NODE_EXISTS:
                    raise


def _read(client: Client, path: str) -> QuotaText:
    return QuotaText.parse(client.get_data(path).data, path)


def _warn_if_used_up(context: Context, limits: QuotaText, stats: QuotaText) -> list[str]:
    warnings = []
    for field, hard, word in (
        ("count", "countHardLimit", "count"),
        ("bytes", "byteHardLimit", "bytes"),
    ):
        used = stats.get(field)
        if -1 < limits.get(field) < used or -1 < limits.get(hard) < used:
            warnings.append(f"the {word} quota you create is less than the existing {word}:{used}")
    for warning in warnings:
        context.output.say(f"[Warning]: {warning}")
    return warnings


def _listquota(context: Context, given: Given) -> Document:
    path = given.arguments[0]
    _refuse_chroot(context.client)
    limits_path, stats_path = f"{_ROOT}{path}/{_LIMITS}", f"{_ROOT}{path}/{_STATS}"
    context.output.note(f"absolute path is {limits_path}")
    try:
        limits = _read(context.client, limits_path)
        context.output.say(f"Output quota for {path} {limits}")
        stats = _read(context.client, stats_path)
        context.output.say(f"Output stat for {path} {stats}")
    except OperationFailed as error:
        if error.code is ErrorCode.NO_NODE:
            raise ShellFailure(f"quota for {path} does not exist.") from error
        raise
    return {"path": path, "limits": limits.fields, "stats": stats.fields}


def _delquota(context: Context, given: Given) -> Document:
    path = given.arguments[0]
    client = context.client
    _refuse_chroot(client)
    validate_path(path)
    own = _ROOT + path
    limits_path = f"{own}/{_LIMITS}"
    if client.exists(limits_path) is None:
        raise ShellFailure(f"Quota does not exist for {path}")
    if given.flags:
        limits = _read(client, limits_path)
        limits.fields |= {_FIELD_OF_FLAG[name]: -1 for name in given.flags}
        client.set_data(limits_path, str(limits).encode())
        return {"path": path, "limits": limits.fields}
    for name in client.get_children(own):
        client.delete(f"{own}/{name}")
    # The way down to it goes too, as far as no other quota lies on it.
    while own != _ROOT and not client.get_children(own):
        client.delete(own)
        own = own.rpartition("/")[0]
    return {"path": path, "limits": None}


_ONE_OF: Final = tuple(_FIELD_OF_FLAG)
QUOTAS: Final = (
    ShellCommand(
        "setquota",
        "-n|-b|-N|-B val path",
        _setquota,
        Syntax(
            (
                value_flag("n", "num soft quota"),
                value_flag("b", "bytes soft quota"),
                value_flag("N", "num hard quota"),
                value_flag("B", "bytes hard quota"),
            ),
            one_of=_ONE_OF,
            is_required=True,
        ),
        min_arguments=1,
    ),
    ShellCommand("listquota", "path", _listquota, min_arguments=1),
    ShellCommand(
        "delquota",
        "[-n|-b|-N|-B] path",
        _delquota,
        Syntax(
            (
                flag("n", "num soft quota"),
                flag("b", "bytes soft quota"),
                flag("N", "num hard quota"),
                flag("B", "bytes hard quota"),
            ),
            one_of=_ONE_OF,
        ),
        min_arguments=1,
    ),
)
