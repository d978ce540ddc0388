"""`keepfast serve`: a server in the foreground."""

from __future__ import annotations

import logging
import os
import sys

import msgspec

from keepfast.cli.output import CommandFailed, ExitCode, Out
from keepfast.server import (
    ConfigError,
    LogFormat,
    Server,
    ServerConfig,
    check_files,
    configure_logs,
    load_config,
    run_server,
    split_definitions,
)


class ServeArguments(msgspec.Struct, frozen=True):
    """The command line of `keepfast serve`."""

    path: str | None
    data_dir: str | None
    port: int | None
    definitions: tuple[str, ...]
    check: bool
    log_format: str = "text"
    log_level: str = "info"
    audit_log: str | None = None


def serve(arguments: ServeArguments) -> int:
    """Run a server until it is told to stop, or show its configuration."""
    try:
        config = load_config(
            arguments.path,
            overrides=split_definitions([f"-D{text}" for text in arguments.definitions]),
            environment=os.environ,
            data_dir=arguments.data_dir,
            port=arguments.port,
        )
        warnings = [*config.warnings, *(check_files(config) if arguments.check else ())]
    except ConfigError as error:
        raise CommandFailed(str(error), ExitCode.UNUSABLE) from error
    for warning in warnings:
        print(f"keepfast: {warning}", file=sys.stderr)
    if arguments.check:
        return _show(config)
    level = logging.getLevelNamesMapping()[arguments.log_level.upper()]
    try:
        configure_logs(LogFormat(arguments.log_format), level, audit_file=arguments.audit_log)
    except OSError as error:
        raise CommandFailed(f"the audit log cannot be written: {error}") from error
    return run_server(config, _ready, sys.stderr)


def _show(config: ServerConfig) -> int:
    out = Out()
    out.table(("key", "value", "from"), config.describe())
    out.flush()
    return ExitCode.OK


def _ready(server: Server) -> None:
    zxid, options = server.replica.tree.last_zxid, server.options
    places = [] if options.port is None else [f"{options.host}:{server.port}"]
    if options.tls is not None and server.secure_port is not None:
        places.append(f"{options.tls.host}:{server.secure_port} (TLS)")
    print(
        f"keepfast: serving {' and '.join(places)}, data in {options.data_dir}, "
        f"last zxid {zxid:#x}",
        file=sys.stderr,
        flush=True,
    )
