"""`keepfast console`: an ensemble in a browser."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass

from keepfast.cli.output import CommandFailed, ExitCode
from keepfast.client import ServerAddress, Target, parse_target

_MISSING = "the console needs its extra: pip install 'keepfast[console]'"


@dataclass(frozen=True, slots=True)
class ConsoleArguments:
    """The command line of `keepfast console`."""

    servers: str
    places: tuple[str, ...]
    listen: str
    allows_writes: bool
    certificate: str | None
    key: str | None
    login_znode: str
    host_names: tuple[str, ...]
    master: str | None
    audits_dir: str
    audit_log: str | None
    interval_s: float


def sorted_out(words: list[str], places: list[str]) -> tuple[str, tuple[str, ...]]:
    """The servers, and all directories: `--data zk/*` leaves all but the first among the words."""
    more = [word for word in words if places and _is_place(word)]
    return ",".join(word for word in words if word not in more), (*places, *more)


def _is_place(word: str) -> bool:
    # A server may have a path after its port, a directory that of its logs after a colon.
    return word.startswith(("/", ".")) or os.path.isdir(word.partition(":")[0])


def console(arguments: ConsoleArguments) -> int:
    """Serve the page until Ctrl-C."""
    try:
        from keepfast.console import ConsoleOptions, ConsoleRefused, run_console
    except ModuleNotFoundError as error:
        if error.name in ("starlette", "uvicorn"):
            raise CommandFailed(_MISSING, ExitCode.REFUSED) from error
        raise
    if (arguments.certificate is None) != (arguments.key is None):
        raise CommandFailed("--tls-cert and --tls-key belong together; give both")
    for place in arguments.places:
        _check_place(place)
    options = ConsoleOptions(
        target=_target(arguments.servers),
        places=arguments.places,
        listen=_address(arguments.listen),
        allows_writes=arguments.allows_writes,
        certificate=arguments.certificate,
        key=arguments.key,
        login_znode=arguments.login_znode,
        host_names=arguments.host_names,
        master=arguments.master,
        audits_dir=arguments.audits_dir,
        audit_log=arguments.audit_log,
        interval_s=arguments.interval_s,
    )
    try:
        run_console(options, _say_address)
    except ConsoleRefused as error:
        raise CommandFailed(str(error), ExitCode.REFUSED) from error
    return ExitCode.OK


def _check_place(place: str) -> None:
    """Servers' directories may still be empty, but a name that is wrong never fills."""
    from keepfast.pipeline import is_remote, local_path, split_place

    for part in filter(None, split_place(place)):
        if not is_remote(part) and not os.path.isdir(local_path(part)):
            is_there = os.path.exists(local_path(part))
            reason = "is a file" if is_there else "there is no such directory"
            raise CommandFailed(f"--data {part}: {reason}; name the servers' data directories")


def _say_address(address: str) -> None:
    print(f"console: {address}", flush=True)
    print("keepfast: Ctrl-C stops it", file=sys.stderr, flush=True)


def _target(text: str) -> Target:
    try:
        return parse_target(text)
    except ValueError as error:
        raise CommandFailed(str(error)) from error


def _address(text: str) -> ServerAddress:
    host, colon, port = text.rpartition(":")
    is_number = port.isdecimal() and int(port) < 1 << 16
    if not colon or not host or not is_number:
        raise CommandFailed(f"--listen {text}: expected HOST:PORT, such as 127.0.0.1:8180")
    return ServerAddress(host.strip("[]"), int(port))
