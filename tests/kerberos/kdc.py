"""A KDC of MIT's on loopback, with a realm of its own."""

from __future__ import annotations

import importlib.util
import os
import shutil
import socket
import subprocess
from collections.abc import Mapping
from pathlib import Path

from keepfast.harness import HeldPorts
from tests.apache.words import wait_until

REALM = "KEEPFAST.TEST"
# Where Debian has what an administrator runs.
_PATH = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"
_TOOLS = ("krb5kdc", "kdb5_util", "kadmin.local", "kinit")
_PACKAGES = ("gssapi", "kerberos")
_TIMEOUT_SECONDS = 60
KERBEROS_REQUIREMENTS = Path(__file__).with_name("requirements.txt")

_KRB5_CONF = """\
[libdefaults]
    default_realm = {realm}
    dns_lookup_realm = false
    dns_lookup_kdc = false
    dns_canonicalize_hostname = false
    rdns = false
    ticket_lifetime = 1h
    udp_preference_limit = 1
    # Java reads the same file.
    default_ccache_name = FILE:{folder}/ccache
[realms]
    {realm} = {{
        kdc = 127.0.0.1:{port}
    }}
[domain_realm]
    localhost = {realm}
    127.0.0.1 = {realm}
"""

_KDC_CONF = """\
[kdcdefaults]
    kdc_listen = 127.0.0.1:{port}
    kdc_tcp_listen = 127.0.0.1:{port}
[realms]
    {realm} = {{
        database_name = {folder}/principal
        key_stash_file = {folder}/stash
        acl_file = {folder}/acl
        max_life = 2h
        supported_enctypes = aes256-cts-hmac-sha1-96:normal aes128-cts-hmac-sha1-96:normal
    }}
[logging]
    kdc = FILE:{folder}/kdc.log
"""


def missing() -> str:
    """What these tests need and do not find; empty: nothing."""
    tools = [name for name in _TOOLS if shutil.which(name, path=_PATH) is None]
    packages = [name for name in _PACKAGES if importlib.util.find_spec(name) is None]
    needs = []
    if tools:
        needs.append(f"{', '.join(tools)} (Debian: krb5-kdc krb5-admin-server krb5-user)")
    if packages:
        needs.append(f"{', '.join(packages)} (pip install -r tests/kerberos/requirements.txt)")
    return "; ".join(needs)


class Kdc:
    """One realm. `stop` must be called; a folder is used by one of them alone."""

    def __init__(self, folder: Path, realm: str = REALM) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.realm = realm
        self.config = folder / "krb5.conf"
        self._held = HeldPorts(1)
        (self.port,) = self._held.numbers
        values = {"folder": folder, "port": self.port, "realm": realm}
        self.config.write_text(_KRB5_CONF.format_map(values))
        (folder / "kdc.conf").write_text(_KDC_CONF.format_map(values))
        (folder / "acl").touch()
        self._process: subprocess.Popen[bytes] | None = None
        self.run("kdb5_util", "create", "-s", "-r", realm, "-P", "not a secret")

    @property
    def variables(self) -> Mapping[str, str]:
        """What programs need in their environment to know this realm."""
        return {
            "KRB5_CONFIG": str(self.config),
            "KRB5_KDC_PROFILE": str(self.folder / "kdc.conf"),
            # Replays are looked for in a file of this user; other tests must not share it.
            "KRB5RCACHEDIR": str(self.folder),
        }

    def run(self, *command: str, **variables: str) -> str:
        """Run one of Kerberos' own tools."""
        done = subprocess.run(
            command,
            env={**os.environ, "PATH": _PATH, **self.variables, **variables},
            capture_output=True,
            text=True,
            timeout=_TIMEOUT_SECONDS,
            check=False,
        )
        assert done.returncode == 0, (command, done.stdout, done.stderr)
        return done.stdout

    def start(self) -> None:
        """Answer from now on."""
        self._process = subprocess.Popen(
            ["krb5kdc", "-n", "-r", self.realm],
            env={**os.environ, "PATH": _PATH, **self.variables},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        wait_until(self._answers, "the KDC to listen", timeout=_TIMEOUT_SECONDS)

    def _answers(self) -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0

    def stop(self) -> None:
        """Answer no more."""
        if self._process is not None:
            self._process.terminate()
            self._process.wait(_TIMEOUT_SECONDS)
            self._process = None

    def close(self) -> None:
        """It is not needed any more."""
        self.stop()
        self._held.close()

    def add(self, principal: str, *options: str) -> Path:
        """A principal with a random key, which is in the key table that comes back."""
        table = self.folder / f"{principal.replace('/', '_')}.keytab"
        add = " ".join(("addprinc -randkey", *options, principal))
        self.run("kadmin.local", "-r", self.realm, "-q", add)
        self.run("kadmin.local", "-r", self.realm, "-q", f"ktadd -k {table} {principal}")
        return table

    def log_in(self, principal: str, cache: Path, *options: str) -> str:
        """Get a ticket with the principal's key table; gives the name of the cache."""
        table = self.folder / f"{principal.replace('/', '_')}.keytab"
        name = f"FILE:{cache}"
        self.run("kinit", "-c", name, "-k", "-t", str(table), *options, principal)
        return name
