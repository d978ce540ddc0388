"""A certificate authority for tests, and stores of its certificates in every format.

Made with other programs than the one under test where there are any: keytool comes with the Java
runtime of the conformance tests, openssl with most systems.
"""

from __future__ import annotations

import ssl
import subprocess
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import trustme
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ec import (
    SECP256R1,
    EllipticCurvePrivateKey,
    generate_private_key,
)
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    KeySerializationEncryption,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)

from tests.apache import find_java

PASSWORD = "correct horse"
HOST = "localhost"


@dataclass(frozen=True, slots=True)
class Client:
    """The files that a client shows."""

    key: Path
    certificate: Path
    authority: Path

    def context(self) -> ssl.SSLContext:
        """For sockets that connect with them."""
        context = ssl.create_default_context(cafile=str(self.authority))
        context.load_cert_chain(self.certificate, self.key)
        return context

    def kazoo(self) -> dict[str, object]:
        """Arguments of KazooClient."""
        return {
            "use_ssl": True,
            "keyfile": str(self.key),
            "certfile": str(self.certificate),
            "ca": str(self.authority),
        }


class Authority:
    """Issues certificates and writes them below a folder."""

    def __init__(self, folder: Path, parent: Authority | None = None) -> None:
        self.folder = folder
        folder.mkdir(exist_ok=True)
        self._ca: trustme.CA = trustme.CA() if parent is None else parent._ca.create_child_ca()
        self.pem = folder / "ca.pem"
        self._ca.cert_pem.write_to_path(self.pem)

    def server_pem(self, name: str = "server.pem", *, expires_at: datetime | None = None) -> Path:
        """A key store in PEM: the private key, then the chain."""
        path = self.folder / name
        issued = self._ca.issue_cert(HOST, "127.0.0.1", not_after=expires_at)
        issued.private_key_and_cert_chain_pem.write_to_path(path)
        return path

    def namesake(self, *, has_identifiers: bool) -> Client:
        """A client's certificate with the subject of this authority, as scripts make them."""
        signer = load_pem_private_key(self._ca.private_key_pem.bytes(), None)
        assert isinstance(signer, EllipticCurvePrivateKey | RSAPrivateKey)
        above = x509.load_pem_x509_certificate(self._ca.cert_pem.bytes())
        own = generate_private_key(SECP256R1())
        builder = (
            x509.CertificateBuilder(above.subject, above.subject, own.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(above.not_valid_before_utc)
            .not_valid_after(above.not_valid_after_utc)
        )
        if has_identifiers:
            of_above = x509.AuthorityKeyIdentifier.from_issuer_public_key(above.public_key())  # type: ignore[arg-type]
            of_own = x509.SubjectKeyIdentifier.from_public_key(own.public_key())
            builder = builder.add_extension(of_above, critical=False)
            builder = builder.add_extension(of_own, critical=False)
        issued = builder.sign(signer, SHA256())
        key = self.folder / "namesake.key.pem"
        key.write_bytes(own.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
        certificate = self.folder / "namesake.pem"
        certificate.write_bytes(issued.public_bytes(Encoding.PEM))
        return Client(key, certificate, self.pem)

    def client(
        self, *names: str, common_name: str = "bob", organization: str = "Acme, Inc."
    ) -> Client:
        """A client's key and certificate; `names` are the hosts that it is for."""
        issued = self._ca.issue_cert(
            *(names or ("client.test",)), common_name=common_name, organization_name=organization
        )
        key = self.folder / f"{common_name}.key.pem"
        certificate = self.folder / f"{common_name}.pem"
        issued.private_key_pem.write_to_path(key)
        certificate.write_bytes(b"".join(blob.bytes() for blob in issued.cert_chain_pems))
        return Client(key, certificate, self.pem)

    def encrypted_pem(self) -> Path:
        """The same as `server_pem`, with an encrypted private key behind the certificate."""
        return self._pkcs8_pem("encrypted.pem", BestAvailableEncryption(PASSWORD.encode()))

    def pkcs8_pem(self) -> Path:
        """The same with the one kind of private key that Apache reads from PEM."""
        return self._pkcs8_pem("pkcs8.pem", NoEncryption())

    def _pkcs8_pem(self, name: str, encryption: KeySerializationEncryption) -> Path:
        plain = self.server_pem("plain.pem").read_bytes()
        key = load_pem_private_key(plain, None).private_bytes(
            Encoding.PEM, PrivateFormat.PKCS8, encryption
        )
        path = self.folder / name
        path.write_bytes(plain[plain.index(b"-----BEGIN CERTIFICATE") :] + key)
        return path

    def pkcs12(self, name: str = "server.p12", *extra: str) -> Path:
        """A key store made by openssl, once."""
        path = self.folder / name
        if path.exists():
            return path
        source = self.server_pem()
        _run("openssl", "pkcs12", "-export", "-in", str(source), "-out", str(path), *extra)
        return path

    def key_store(self, kind: str, name: str) -> Path:
        """A key store made by keytool, once: it takes a second."""
        path = self.folder / name
        if path.exists():
            return path
        source = self.pkcs12("source.p12")
        keytool(
            *("-importkeystore", "-srckeystore", str(source), "-srcstoretype", "PKCS12"),
            *("-srcstorepass", PASSWORD, "-destkeystore", str(path)),
            *("-deststoretype", kind, "-deststorepass", PASSWORD, "-noprompt"),
        )
        return path

    def trust_store(self, kind: str, name: str) -> Path:
        """A trust store made by keytool, once."""
        path = self.folder / name
        if path.exists():
            return path
        keytool(
            *("-importcert", "-file", str(self.pem), "-alias", "authority", "-noprompt"),
            *("-keystore", str(path), "-storetype", kind, "-storepass", PASSWORD),
        )
        return path


def keytool(*arguments: str) -> None:
    """Run Java's tool."""
    _run(str(find_java().with_name("keytool")), *arguments)


def _run(*command: str) -> None:
    arguments = list(command)
    if command[0] == "openssl":
        arguments += ["-passout", f"pass:{PASSWORD}"]
    done = subprocess.run(arguments, capture_output=True, text=True, timeout=180, check=False)
    if done.returncode:
        raise AssertionError(f"{command[:2]}: {done.stdout}{done.stderr}")
