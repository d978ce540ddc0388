"""`keepfast serve`: a server in the foreground."""

from __future__ import annotations

import logging
import os
import sys

import msgspec

from keepfast.apache import (
    ConfigError,
    ImageStart,
    ServerConfig,
    image_start,
    load_config,
    split_definitions,
)
from keepfast.cli.output import CommandFailed, ExitCode, Out
from keepfast.server import ListeningServer, LogFormat, check_files, configure_logs, run_server
from keepfast.wire import safe_lines


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
    everything: bool = False
    is_from_environment: bool = False


def serve(arguments: ServeArguments) -> int:
    """Run a server until it is asked to stop, or show its configuration."""
    start = _start_of(arguments)
    try:
        config = load_config(
            start.path,
            overrides=split_definitions([f"-D{text}" for text in arguments.definitions]),
            environment=start.environment,
            data_dir=arguments.data_dir,
            port=arguments.port,
        )
        warnings = [*config.warnings, *(check_files(config) if arguments.check else ())]
    except ConfigError as error:
        raise CommandFailed(str(error), ExitCode.UNUSABLE) from error
    for warning in warnings:
        print(f"keepfast: {safe_lines(str(warning))}", file=sys.stderr)
    if arguments.check:
        return _show(config, len(warnings), everything=arguments.everything)
    os.umask(config.data.umask)
    level = logging.getLevelNamesMapping()[arguments.log_level.upper()]
    try:
        configure_logs(LogFormat(arguments.log_format), level, audit_file=arguments.audit_log)
    except OSError as error:
        raise CommandFailed(f"the audit log cannot be written: {error}") from error
    return run_server(config, _ready, sys.stderr)


def _start_of(arguments: ServeArguments) -> ImageStart:
    if not arguments.is_from_environment:
        return ImageStart(arguments.path, os.environ)
    if arguments.path is not None:
        reason = "--from-environment takes no file: it reads $ZOO_CONF_DIR/zoo.cfg if there is one"
        raise CommandFailed(reason, ExitCode.UNUSABLE)
    return image_start(os.environ)


def _show(config: ServerConfig, warnings: int, *, everything: bool) -> int:
    """Print what was configured, or every key, and the verdict."""
    out = Out()
    rows = [row for row in config.describe() if everything or not row.origin.startswith("default")]
    if rows:
        out.table(("key", "value", "from"), rows)
    found = f"{warnings} warning{'s' * (warnings != 1)}" if warnings else "no warnings"
    rest = "" if everything else "; all other keys have their defaults (--all shows them)"
    out.line(f"A server starts with this configuration: {found}{rest}.")
    out.flush()
    return ExitCode.OK


def _ready(server: ListeningServer) -> None:
    options = server.running.options
    places = [] if options.port is None else [f"{options.host}:{server.running.port}"]
    if options.tls is not None and server.running.secure_port is not None:
        places.append(f"{options.tls.host}:{server.running.secure_port} (TLS)")
    where = f"{' and '.join(places)}, data in {options.data_dir}"
    if server.running.is_serving:
        sentence = f"serving {where}, last zxid {server.running.replica.tree.last_zxid:#x}"
    else:
        sentence = f"listening on {where}; clients are let in when there is a leader"
    print(f"keepfast: {sentence}", file=sys.stderr, flush=True)
