"""Key and trust stores of every kind, judged by a TLS handshake with the system's library."""

from __future__ import annotations

import os
import ssl
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from keepfast.apache.config_errors import ConfigError
from keepfast.apache.config_security import ClientAuth, StoreType, TlsConfig
from keepfast.apache.key_stores import KeyStore, load_identity
from keepfast.server.tls_context import server_context
from tests.server.authority import HOST, PASSWORD, Authority, Client, keytool


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def client(authority: Authority) -> Client:
    return authority.client()


def config(key_store: Path, trust_store: Path, **more: Any) -> TlsConfig:
    return TlsConfig(
        **{
            "key_store_location": str(key_store),
            "key_store_password": PASSWORD,
            "trust_store_location": str(trust_store),
            "trust_store_password": PASSWORD,
            **more,
        }
    )


def shake_hands(server: ssl.SSLContext, client: ssl.SSLContext) -> tuple[ssl.SSLObject, str]:
    """A handshake in memory; gives the server's side and the version agreed on."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    server_side = server.wrap_bio(to_server, to_client, server_side=True)
    client_side = client.wrap_bio(to_client, to_server, server_hostname=HOST)
    waiting = [client_side, server_side]
    while waiting:
        side = waiting.pop(0)
        try:
            side.do_handshake()
        except ssl.SSLWantReadError:
            waiting.append(side)
    version = server_side.version()
    assert version is not None
    return server_side, version


KEY_STORES: dict[str, Callable[[Authority], Path]] = {
    "PEM": lambda authority: authority.server_pem(),
    "PEM, encrypted, certificate first": lambda authority: authority.encrypted_pem(),
    "PKCS12 of openssl": lambda authority: authority.pkcs12(),
    "PKCS12 of keytool": lambda authority: authority.key_store("PKCS12", "keytool.p12"),
    "PKCS12 under the name .jks": lambda authority: authority.key_store("PKCS12", "new.jks"),
    "JKS of keytool": lambda authority: authority.key_store("JKS", "server.jks"),
    "JKS under the name .p12": lambda authority: authority.key_store("JKS", "old.p12"),
}
TRUST_STORES: dict[str, Callable[[Authority], Path]] = {
    "PEM": lambda authority: authority.pem,
    "PKCS12": lambda authority: authority.trust_store("PKCS12", "trust.p12"),
    "JKS": lambda authority: authority.trust_store("JKS", "trust.jks"),
}


@pytest.mark.parametrize("kind", KEY_STORES)
def test_key_store__serves_clients(authority: Authority, client: Client, kind: str) -> None:
    loaded = server_context(config(KEY_STORES[kind](authority), authority.pem))
    assert loaded.warnings == ()
    side, version = shake_hands(loaded.context, client.context())
    assert version == "TLSv1.3"
    assert side.getpeercert(binary_form=True) is not None


@pytest.mark.parametrize("kind", TRUST_STORES)
def test_trust_store__lets_its_clients_in_and_no_others(
    authority: Authority, client: Client, tmp_path: Path, kind: str
) -> None:
    path = TRUST_STORES[kind](authority)
    loaded = server_context(config(authority.server_pem(), path))
    shake_hands(loaded.context, client.context())
    stranger = Authority(tmp_path / "other").client()
    context = client.context()
    context.load_cert_chain(stranger.certificate, stranger.key)
    with pytest.raises(ssl.SSLCertVerificationError):
        shake_hands(loaded.context, context)


def test_chain_with_an_intermediate__is_sent_in_order(tmp_path: Path, client: Client) -> None:
    root = Authority(tmp_path / "root")
    child = Authority(tmp_path / "child", root)
    store = child.server_pem()
    blocks = store.read_bytes().split(b"-----BEGIN ")
    # The key last, the certificates from the top down: any order will do.
    store.write_bytes(b"-----BEGIN ".join([b"", *reversed(blocks[1:])]))
    context = ssl.create_default_context(cafile=str(root.pem))
    server = server_context(config(store, root.pem, client_auth=ClientAuth.NONE)).context
    side, _ = shake_hands(server, context)
    assert side.getpeercert(binary_form=True) is None


def test_intermediate_alone_in_the_trust_store__is_trusted_as_in_java(tmp_path: Path) -> None:
    root = Authority(tmp_path / "root")
    child = Authority(tmp_path / "child", root)
    shown = child.client()
    context = ssl.create_default_context(cafile=str(root.pem))
    context.load_cert_chain(shown.certificate, shown.key)
    shake_hands(server_context(config(root.server_pem(), child.pem)).context, context)


def test_password_file__counts_more_than_the_password(
    authority: Authority, client: Client, tmp_path: Path
) -> None:
    file = tmp_path / "password"
    file.write_text(PASSWORD + "\n")
    tls = config(
        authority.pkcs12(),
        authority.trust_store("JKS", "trust.jks"),
        key_store_password="wrong",
        key_store_password_path=str(file),
        trust_store_password="wrong",
        trust_store_password_path=str(file),
    )
    shake_hands(server_context(tls).context, client.context())


def test_type_that_is_set__counts_more_than_the_ending(authority: Authority) -> None:
    path = authority.pkcs12("store.bin")
    server_context(config(path, authority.pem, key_store_type=StoreType.PKCS12))


@pytest.mark.parametrize(
    ("make", "changes", "message"),
    [
        (lambda a: a.folder / "no.pem", {}, "there is no such file"),
        (lambda a: a.folder, {"key_store_type": StoreType.PEM}, "cannot be read: Is a directory"),
        (
            lambda a: a.encrypted_pem(),
            {"key_store_password": "x"},
            "the password does not fit, see ssl.keyStore.password",
        ),
        (
            lambda a: a.encrypted_pem(),
            {"key_store_password": ""},
            "needs a password, see ssl.keyStore.password",
        ),
        (
            lambda a: a.pkcs12(),
            {"key_store_password": "x"},
            "the password does not fit, see ssl.keyStore.password",
        ),
        (
            lambda a: a.key_store("JKS", "server.jks"),
            {"key_store_password": "x"},
            "the password does not fit, see ssl.keyStore.password",
        ),
        (lambda a: a.pem, {}, "there is no private key in it"),
        (lambda a: a.client().key, {}, "there is no certificate in it"),
        (
            lambda a: a.trust_store("JKS", "trust.jks"),
            {},
            "there is no private key in it",
        ),
        (
            lambda a: a.trust_store("PKCS12", "trust.p12"),
            {},
            "there is no private key with a certificate in it",
        ),
        (
            lambda a: a.pem,
            {"key_store_type": StoreType.PKCS12},
            "it is neither a PKCS12 nor a JKS file",
        ),
        (
            lambda a: a.pkcs12("store.bin"),
            {},
            "must end with .jks, .pem or .p12 unless a type is set",
        ),
    ],
)
def test_wrong_key_store__is_an_error_that_names_the_setting(
    authority: Authority,
    make: Callable[[Authority], Path],
    changes: dict[str, Any],
    message: str,
) -> None:
    path = make(authority)
    with pytest.raises(ConfigError) as error:
        server_context(config(path, authority.pem, **changes))
    assert str(error.value) == f"ssl.keyStore.location={path}: {message}"


def test_key_and_certificate_of_two_servers__is_an_error(tmp_path: Path) -> None:
    one, two = Authority(tmp_path / "1"), Authority(tmp_path / "2")
    path = tmp_path / "mixed.pem"
    path.write_bytes(one.client().key.read_bytes() + two.client().certificate.read_bytes())
    with pytest.raises(ConfigError, match="none of its certificates belongs to its private key"):
        server_context(config(path, one.pem))


def test_key_with_another_password_than_its_store__is_an_error(authority: Authority) -> None:
    path = authority.key_store("JKS", "two-passwords.jks")
    keytool(
        *("-keypasswd", "-keystore", str(path), "-storepass", PASSWORD, "-alias", "1"),
        *("-keypass", PASSWORD, "-new", "another password"),
    )
    with pytest.raises(ConfigError, match="its key's password must be the store's"):
        server_context(config(path, authority.pem))


def test_trust_store_without_certificates__is_an_error(authority: Authority) -> None:
    path = authority.client().key
    with pytest.raises(ConfigError, match=r"ssl\.trustStore\.location=.*no certificate in it"):
        server_context(config(authority.server_pem(), path))


def test_every_cut_of_every_store__is_an_error_and_nothing_else(authority: Authority) -> None:
    """A store that is being written is seen at any length."""
    for kind, make in KEY_STORES.items():
        whole = make(authority)
        data = whole.read_bytes()
        path = whole.with_name("cut" + whole.suffix)
        # Behind the certificate there is nothing that could be missed.
        end = data.index(b"-----END CERTIFICATE-----") if kind == "PEM" else len(data)
        for length in range(0, end, 61):
            path.write_bytes(data[:length])
            with pytest.raises(ConfigError):
                load_identity(KeyStore.of_keys(config(path, authority.pem), "ssl."))


@pytest.mark.parametrize(
    ("days", "words"), [(-1, "expired at"), (1, None)], ids=["expired", "valid"]
)
def test_expired_certificate__is_a_warning(
    authority: Authority, days: int, words: str | None
) -> None:
    end = datetime.now(UTC) + timedelta(days=days)
    path = authority.server_pem("dated.pem", expires_at=end)
    warnings = server_context(config(path, authority.pem)).warnings
    assert len(warnings) == (words is not None)
    assert words is None or words in warnings[0]


def test_no_trust_store__is_an_error_if_certificates_are_needed(authority: Authority) -> None:
    tls = TlsConfig(key_store_location=str(authority.server_pem()))
    with pytest.raises(ConfigError, match=r"ssl\.trustStore\.location: needed"):
        server_context(tls)


def test_no_trust_store__asks_for_no_certificate_and_says_so(authority: Authority) -> None:
    tls = TlsConfig(key_store_location=str(authority.server_pem()), client_auth=ClientAuth.WANT)
    loaded = server_context(tls)
    assert loaded.context.verify_mode is ssl.CERT_NONE
    assert "no client is asked" in loaded.warnings[0]


@pytest.mark.parametrize(
    ("auth", "is_let_in"),
    [(ClientAuth.NEED, False), (ClientAuth.WANT, True), (ClientAuth.NONE, True)],
)
def test_client_without_a_certificate(
    authority: Authority, auth: ClientAuth, is_let_in: bool
) -> None:
    context = server_context(
        config(authority.server_pem(), authority.pem, client_auth=auth)
    ).context
    anonymous = ssl.create_default_context(cafile=str(authority.pem))
    if is_let_in:
        side, _ = shake_hands(context, anonymous)
        assert side.getpeercert(binary_form=True) is None
    else:
        with pytest.raises(ssl.SSLError, match="PEER_DID_NOT_RETURN_A_CERTIFICATE"):
            shake_hands(context, anonymous)


@pytest.mark.parametrize(
    ("protocols", "most", "version"),
    [
        (("TLSv1.2",), None, "TLSv1.2"),
        (("TLSv1.3",), None, "TLSv1.3"),
        (("TLSv1.2", "TLSv1.3"), None, "TLSv1.3"),
        (("TLSv1.2", "TLSv1.3"), ssl.TLSVersion.TLSv1_2, "TLSv1.2"),
        (("TLSv1.3",), ssl.TLSVersion.TLSv1_2, None),
    ],
)
def test_protocols__are_those_that_are_set(
    authority: Authority,
    client: Client,
    protocols: tuple[str, ...],
    most: ssl.TLSVersion | None,
    version: str | None,
) -> None:
    tls = config(authority.server_pem(), authority.pem, enabled_protocols=protocols)
    context = client.context()
    if most is not None:
        context.maximum_version = most
    if version is None:
        with pytest.raises(ssl.SSLError):
            shake_hands(server_context(tls).context, context)
    else:
        assert shake_hands(server_context(tls).context, context)[1] == version


class TestSuites:
    def context(self, authority: Authority, *suites: str, **more: Any) -> ssl.SSLContext:
        tls = config(authority.server_pem(), authority.pem, ciphersuites=suites, **more)
        return server_context(tls).context

    def test_suites_of_tls_12_alone__rule_out_tls_13(
        self, authority: Authority, client: Client
    ) -> None:
        context = self.context(authority, "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384")
        side, version = shake_hands(context, client.context())
        assert version == "TLSv1.2"
        assert (side.cipher() or ("",))[0] == "ECDHE-ECDSA-AES256-GCM-SHA384"

    def test_suites_of_tls_13_alone__rule_out_tls_12(
        self, authority: Authority, client: Client
    ) -> None:
        names = (
            *("TLS_AES_256_GCM_SHA384", "TLS_AES_128_GCM_SHA256"),
            *("TLS_CHACHA20_POLY1305_SHA256", "TLS_EMPTY_RENEGOTIATION_INFO_SCSV"),
        )
        context = self.context(authority, *names)
        old = client.context()
        old.maximum_version = ssl.TLSVersion.TLSv1_2
        with pytest.raises(ssl.SSLError):
            shake_hands(context, old)
        assert shake_hands(context, client.context())[1] == "TLSv1.3"

    @pytest.mark.skipif(sys.version_info >= (3, 15), reason="Python can do it since 3.15")
    def test_some_suites_of_tls_13__is_a_warning(self, authority: Authority) -> None:
        tls = config(
            authority.server_pem(), authority.pem, ciphersuites=("TLS_AES_256_GCM_SHA384",)
        )
        assert "cannot choose among the suites of TLS 1.3" in server_context(tls).warnings[0]

    def test_unknown_suite__is_an_error(self, authority: Authority) -> None:
        with pytest.raises(ConfigError, match=r"ssl\.ciphersuites: not known or not safe: SSL_X"):
            self.context(authority, "SSL_X", "TLS_AES_256_GCM_SHA384")

    def test_suites_of_no_version_that_is_spoken__is_an_error(self, authority: Authority) -> None:
        with pytest.raises(ConfigError, match=r"none of them is one of TLSv1\.2"):
            self.context(authority, "TLS_AES_256_GCM_SHA384", enabled_protocols=("TLSv1.2",))


def test_private_key__is_nowhere_on_disk_afterwards(
    authority: Authority, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Also where there are no files in memory."""
    monkeypatch.delattr(os, "memfd_create", raising=False)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    seen: list[int] = []
    load = ssl.SSLContext.load_cert_chain

    def spy(context: ssl.SSLContext, path: str) -> None:
        seen.append(os.stat(path).st_mode & 0o777)
        assert Path(path).parent == tmp_path
        load(context, path)

    monkeypatch.setattr(ssl.SSLContext, "load_cert_chain", spy)
    server_context(config(authority.server_pem(), authority.pem))
    assert seen == [0o600]
    assert list(tmp_path.iterdir()) == []


def test_without_the_extra_packages__the_error_says_what_to_install(authority: Authority) -> None:
    program = f"""
import sys
sys.modules["cryptography"] = None
from keepfast.apache.config_security import TlsConfig
from keepfast.server.tls_context import server_context
try:
    server_context(TlsConfig(key_store_location={str(authority.server_pem())!r}))
except Exception as error:
    print(error)
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=180, check=True
    )
    assert "needs the packages of keepfast[tls]" in done.stdout
