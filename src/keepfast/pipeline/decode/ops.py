"""The names of txn types, as ZooKeeper spells them."""

from __future__ import annotations

from keepfast.wire import OpCode

OP_NAMES: dict[int, str] = {
    int(OpCode.CREATE): "create",
    int(OpCode.DELETE): "delete",
    int(OpCode.SET_DATA): "setData",
    int(OpCode.SET_ACL): "setACL",
    int(OpCode.CHECK): "check",
    int(OpCode.MULTI): "multi",
    int(OpCode.CREATE2): "create2",
    int(OpCode.RECONFIG): "reconfig",
    int(OpCode.CREATE_CONTAINER): "createContainer",
    int(OpCode.DELETE_CONTAINER): "deleteContainer",
    int(OpCode.CREATE_TTL): "createTTL",
    int(OpCode.CREATE_SESSION): "createSession",
    int(OpCode.CLOSE_SESSION): "closeSession",
    int(OpCode.ERROR): "error",
}
