"""Ways in: open, and where a client has to show a certificate and log in before anything else.

Whoever has both is still a stranger to other people's data, and may send what it likes.
"""

from __future__ import annotations

import ssl
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from keepfast.replica import CLIENT_SERVICE, DigestMd5Client
from tests.differential.requests import Op
from tests.hostile.offenders import Offender
from tests.keepfast_server import KeepfastServer
from tests.server.authority import Authority

_USER, PASSWORD = "eve", "eve's secret"
_MODULE = "org.apache.zookeeper.server.auth.DigestLoginModule"
DOORS = ("open", "secured")


class Door(NamedTuple):
    """What a server needs in its configuration, and how its clients connect."""

    configuration: Mapping[str, str]
    properties: Mapping[str, str]
    tls: ssl.SSLContext | None = None

    def server(
        self,
        data_dir: Path,
        configuration: Mapping[str, str],
        properties: Mapping[str, str] | None = None,
    ) -> KeepfastServer:
        """A server behind this door, not started."""
        return KeepfastServer(
            data_dir,
            configuration={**configuration, **self.configuration},
            properties={**(properties or {}), **self.properties},
        )

    def knock(self, port: int, receive_buffer: int | None = None) -> Offender:
        """Somebody without a session; a certificate is shown where one is needed."""
        return Offender(port, receive_buffer=receive_buffer, tls=self.tls)

    def enter(
        self, port: int, timeout_ms: int = 60_000, receive_buffer: int | None = None
    ) -> Offender:
        """Somebody with a session, and a name if one is needed."""
        return self.greet(self.knock(port, receive_buffer), timeout_ms)

    def greet(self, offender: Offender, timeout_ms: int = 60_000) -> Offender:
        """Give a session to somebody who has knocked."""
        offender.greet(timeout_ms)
        self.log_in(offender)
        return offender

    def log_in(self, offender: Offender) -> None:
        """Prove a name by SASL, where one is needed."""
        if self.tls is not None:
            _prove_name(offender)


def door_of(kind: str, folder: Path) -> Door:
    """A door; `folder` is for its certificates and passwords."""
    if kind == "open":
        return Door({}, {})
    folder.mkdir(parents=True, exist_ok=True)
    authority = Authority(folder / "authority")
    client = authority.client()
    jaas = folder / "jaas.conf"
    jaas.write_text(f'Server {{ {_MODULE} required user_{_USER}="{PASSWORD}"; }};')
    context = ssl.create_default_context(cafile=str(authority.pem))
    context.load_cert_chain(client.certificate, client.key)
    return Door(
        {
            "client.portUnification": "true",
            "ssl.keyStore.location": str(authority.server_pem()),
            "ssl.trustStore.location": str(authority.pem),
            "authProvider.1": "org.apache.zookeeper.server.auth.SASLAuthenticationProvider",
            "sessionRequireClientSASLAuth": "true",
        },
        {"java.security.auth.login.config": str(jaas)},
        context,
    )


def _prove_name(offender: Offender) -> None:
    client = DigestMd5Client(_USER, PASSWORD, "a nonce", CLIENT_SERVICE)
    answer = client.step(b"")
    while not client.is_complete:
        offender.send(struct.pack(">iii", 1, Op.SASL, len(answer)) + answer)
        frame = offender.frame()
        assert frame is not None, "not let in"
        (length,) = struct.unpack_from(">i", frame, 16)
        answer = client.step(frame[20 : 20 + length])
