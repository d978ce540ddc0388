"""The options of a console, and which combinations it refuses."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass

from keepfast.client import ServerAddress, Target
from keepfast.wire import KeepfastError

DEFAULT_LISTEN = ServerAddress("127.0.0.1", 8180)


class ConsoleRefused(KeepfastError):  # noqa: N818 - it says what is the case
    """The console does not start like this; `str()` is one sentence with what to do next."""


@dataclass(frozen=True, slots=True)
class ConsoleOptions:
    """How a console is run."""

    target: Target
    # Places of the servers' files; none: no history, no time travel, no proof.
    places: tuple[str, ...] = ()
    # Where the page is served. Port 0: any free one.
    listen: ServerAddress = DEFAULT_LISTEN
    # Off: every request that would change a znode is refused, whatever the page sends.
    allows_writes: bool = False
    # PEM files; both or none. Needed beyond loopback.
    certificate: str | None = None
    key: str | None = None
    # Users who may read this znode may log in; "": no login needed. Needed beyond loopback.
    login_znode: str = ""
    # Names under which browsers may reach the page, beside the address that is listened on.
    host_names: tuple[str, ...] = ()
    # Spark for audits; None: embedded.
    master: str | None = None
    # Where audits are kept. Nothing is written before one is run.
    audits_dir: str = "keepfast-audits"
    # Where changes are reported, one line each; None: standard error.
    audit_log: str | None = None
    # Between two polls of each server while a page is open, in seconds. Less: fresher figures,
    # more load on the servers.
    interval_s: float = 2.0

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine can reach the page."""
        return is_loopback(self.listen.host)

    @property
    def has_tls(self) -> bool:
        return self.certificate is not None

    @property
    def needs_login(self) -> bool:
        """Whether nothing is shown before a login."""
        return bool(self.login_znode)

    def check(self) -> None:
        """Raise ConsoleRefused for what would not be safe."""
        if self.is_loopback:
            return
        where = f"{self.listen.host} can be reached from other machines"
        if not self.has_tls:
            raise ConsoleRefused(f"{where}: give --tls-cert and --tls-key, or listen on 127.0.0.1")
        if not self.login_znode:
            raise ConsoleRefused(
                f"{where}: give --login-znode PATH, a znode that only those may read who may log "
                "in, or listen on 127.0.0.1"
            )


def is_loopback(host: str) -> bool:
    """Whether an address is this machine's own."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
