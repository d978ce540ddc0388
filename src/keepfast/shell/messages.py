"""Error messages of failed operations, worded as in ZooKeeper's shell."""

from __future__ import annotations

from typing import Final

from keepfast.client import InvalidPath, OperationFailed
from keepfast.shell.shell_failures import ShellExitCode
from keepfast.wire import ErrorCode

_ABOUT_A_PATH: Final = {
    ErrorCode.NO_NODE: "Node does not exist: ",
    ErrorCode.NO_CHILDREN_FOR_EPHEMERALS: "Ephemerals cannot have children: ",
    ErrorCode.NODE_EXISTS: "Node already exists: ",
    ErrorCode.NOT_EMPTY: "Node not empty: ",
    ErrorCode.NOT_READ_ONLY: "Not a read-only call: ",
    ErrorCode.INVALID_ACL: "Acl is not valid : ",
    ErrorCode.NO_AUTH: "Insufficient permission : ",
    ErrorCode.BAD_ARGUMENTS: "Arguments are not valid : ",
    ErrorCode.BAD_VERSION: "version No is not valid : ",
    ErrorCode.QUOTA_EXCEEDED: "Quota has exceeded : ",
}
_WHOLE: Final = {
    ErrorCode.AUTH_FAILED: "Authentication failed; the session is closed",
    ErrorCode.RECONFIG_IN_PROGRESS: (
        "Another reconfiguration is in progress -- concurrent reconfigs not supported (yet)"
    ),
    ErrorCode.NEW_CONFIG_NO_QUORUM: (
        "No quorum of new config is connected and up-to-date with the leader of last committed "
        "config - try invoking reconfiguration after new servers are connected and synced"
    ),
}
_CODE_TEXTS: Final = {
    ErrorCode.SYSTEM_ERROR: "SystemError",
    ErrorCode.RUNTIME_INCONSISTENCY: "RuntimeInconsistency",
    ErrorCode.DATA_INCONSISTENCY: "DataInconsistency",
    ErrorCode.CONNECTION_LOSS: "ConnectionLoss",
    ErrorCode.MARSHALLING_ERROR: "MarshallingError",
    ErrorCode.UNIMPLEMENTED: "Unimplemented",
    ErrorCode.OPERATION_TIMEOUT: "OperationTimeout",
    ErrorCode.BAD_ARGUMENTS: "BadArguments",
    ErrorCode.UNKNOWN_SESSION: "UnknownSession",
    ErrorCode.NEW_CONFIG_NO_QUORUM: "NewConfigNoQuorum",
    ErrorCode.RECONFIG_IN_PROGRESS: "ReconfigInProgress",
    ErrorCode.API_ERROR: "APIError",
    ErrorCode.NO_NODE: "NoNode",
    ErrorCode.NO_AUTH: "NoAuth",
    ErrorCode.BAD_VERSION: "BadVersion",
    ErrorCode.NO_CHILDREN_FOR_EPHEMERALS: "NoChildrenForEphemerals",
    ErrorCode.NODE_EXISTS: "NodeExists",
    ErrorCode.NOT_EMPTY: "Directory not empty",
    ErrorCode.SESSION_EXPIRED: "Session expired",
    ErrorCode.INVALID_CALLBACK: "Invalid callback",
    ErrorCode.INVALID_ACL: "InvalidACL",
    ErrorCode.AUTH_FAILED: "AuthFailed",
    ErrorCode.SESSION_MOVED: "Session moved",
    ErrorCode.NOT_READ_ONLY: "Not a read-only call",
    ErrorCode.EPHEMERAL_ON_LOCAL_SESSION: "Ephemeral node on local session",
    ErrorCode.NO_WATCHER: "No such watcher",
    ErrorCode.REQUEST_TIMEOUT: "RequestTimeout",
    ErrorCode.RECONFIG_DISABLED: "Reconfig is disabled",
    ErrorCode.SESSION_CLOSED_REQUIRE_SASL_AUTH: (
        "Session closed because client failed to authenticate"
    ),
    ErrorCode.QUOTA_EXCEEDED: "Quota has exceeded",
    ErrorCode.THROTTLED_OP: "Op throttled due to high load",
}


def code_message(error: OperationFailed) -> str:
    """An error as Java's client words it, by its code."""
    text = f"KeeperErrorCode = {_CODE_TEXTS.get(error.code, error.code.name)}"
    return f"{text} for {error.path}" if error.path else text


def failure_message(error: OperationFailed) -> str:
    """An error as the shell prints it."""
    if isinstance(error, InvalidPath):
        return error.detail
    if error.code in _WHOLE:
        return _WHOLE[error.code]
    if error.code in _ABOUT_A_PATH:
        path = "null" if error.path is None else error.path
        return _ABOUT_A_PATH[error.code] + path
    text = code_message(error)
    return f"{text} ({error.detail})" if error.detail else text


def exit_code(error: OperationFailed) -> ShellExitCode:
    if isinstance(error, InvalidPath):
        return ShellExitCode.USAGE
    return ShellExitCode.UNREACHABLE if error.is_connection_failure else ShellExitCode.FAILED
