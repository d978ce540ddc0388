"""Subjects as Java writes them, and the hosts that a certificate is for."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from ipaddress import ip_address

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.name import _ASN1Type as Kind
from cryptography.x509.oid import NameOID as Oid

from keepfast.server.certificates import distinguished_name, names_host, read_certificate

_KEY = ec.generate_private_key(ec.SECP256R1())
Attribute = x509.NameAttribute


def certificate(
    *relative_names: list[x509.NameAttribute[str]], names: list[x509.GeneralName] | None = None
) -> x509.Certificate:
    now = datetime.now(UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.RelativeDistinguishedName(one) for one in relative_names]))
        .issuer_name(x509.Name([Attribute(Oid.COMMON_NAME, "ca")]))
        .public_key(_KEY.public_key())
        .serial_number(1)
        .not_valid_before(now)
        .not_valid_after(now + timedelta(days=1))
    )
    if names is not None:
        builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
    # As it comes from a client.
    return read_certificate(builder.sign(_KEY, hashes.SHA256()).public_bytes(Encoding.DER))


# Each was printed by X500Principal.getName() of Java 17 for the same certificate.
@pytest.mark.parametrize(
    ("subject", "name"),
    [
        (
            [
                [Attribute(Oid.COUNTRY_NAME, "DE")],
                [Attribute(Oid.ORGANIZATION_NAME, "Acme, Inc.")],
                [Attribute(Oid.COMMON_NAME, "bob")],
            ],
            r"CN=bob,O=Acme\, Inc.,C=DE",
        ),
        ([[Attribute(Oid.COMMON_NAME, " lead and trail ")]], "CN=\\ lead and trail\\ "),
        ([[Attribute(Oid.COMMON_NAME, "   ")]], "CN=\\ \\ \\ "),
        ([[Attribute(Oid.COMMON_NAME, "#hash")]], r"CN=\#hash"),
        (
            [[Attribute(Oid.ORGANIZATION_NAME, 'a=b+c<d>e;f"g\\h#i')]],
            r"O=a\=b\+c\<d\>e\;f\"g\\h\#i",
        ),
        ([[Attribute(Oid.COMMON_NAME, "jörg 漢字 \U0001f600")]], "CN=jörg 漢字 \U0001f600"),
        (
            [[Attribute(Oid.EMAIL_ADDRESS, "a@b.c")], [Attribute(Oid.COMMON_NAME, "x")]],
            "CN=x,1.2.840.113549.1.9.1=#16056140622e63",
        ),
        (
            [
                [Attribute(Oid.SERIAL_NUMBER, "123"), Attribute(Oid.COMMON_NAME, "multi")],
                [Attribute(Oid.USER_ID, "u")],
                [Attribute(Oid.DOMAIN_COMPONENT, "com")],
                [Attribute(Oid.STREET_ADDRESS, "s 1")],
                [Attribute(Oid.STATE_OR_PROVINCE_NAME, "st")],
                [Attribute(Oid.LOCALITY_NAME, "l")],
                [Attribute(Oid.ORGANIZATIONAL_UNIT_NAME, "ou")],
            ],
            "OU=ou,L=l,ST=st,STREET=s 1,DC=com,UID=u,2.5.4.5=#1303313233+CN=multi",
        ),
        ([[Attribute(Oid.COMMON_NAME, "b", Kind.BMPString)]], r"CN=\00b"),
        ([[Attribute(Oid.COMMON_NAME, "a\0b")]], r"CN=a\00b"),
        ([[Attribute(Oid.COMMON_NAME, "a\nb\tc\x7f")]], "CN=a\nb\tc\x7f"),
        (
            [
                [Attribute(Oid.COMMON_NAME, "t61", Kind.T61String)],
                [Attribute(Oid.ORGANIZATION_NAME, "vis", Kind.VisibleString)],
                [Attribute(Oid.ORGANIZATION_NAME, "12", Kind.NumericString)],
            ],
            "O=#12023132,O=#1a03766973,CN=t61",
        ),
        (
            [
                [Attribute(x509.ObjectIdentifier("1.2.3.4.5555"), "x")],
                [Attribute(Oid.TITLE, "dr")],
            ],
            "2.5.4.12=#0c026472,1.2.3.4.5555=#0c0178",
        ),
        (
            [[Attribute(Oid.COMMON_NAME, "x" * 64)] for _ in range(3)],
            ",".join(["CN=" + "x" * 64] * 3),
        ),
        ([], ""),
    ],
)
def test_subject__is_written_as_java_does(
    subject: list[list[x509.NameAttribute[str]]], name: str
) -> None:
    assert distinguished_name(certificate(*subject)) == name


def test_bytes_that_are_no_certificate__raise() -> None:
    with pytest.raises(ValueError):
        read_certificate(b"x")


def test_certificate_of_a_version_that_is_none__raises() -> None:
    der = certificate([Attribute(Oid.COMMON_NAME, "bob")]).public_bytes(Encoding.DER)
    with pytest.raises(ValueError):
        read_certificate(der.replace(b"\xa0\x03\x02\x01\x02", b"\xa0\x03\x02\x01\x22", 1))


_NAMED = certificate(
    [Attribute(Oid.COMMON_NAME, "common.example.org")],
    names=[
        x509.DNSName("host.example.org"),
        x509.DNSName("*.apps.example.org"),
        x509.DNSName("*.org"),
        x509.IPAddress(ip_address("10.0.0.7")),
        x509.IPAddress(ip_address("2001:db8::1")),
    ],
)
_COMMON_ONLY = certificate([Attribute(Oid.COMMON_NAME, "common.example.org")])


@pytest.mark.parametrize(
    ("host", "is_named"),
    [
        ("host.example.org", True),
        ("HOST.example.org.", True),
        ("other.example.org", False),
        ("a.apps.example.org", True),
        ("a.b.apps.example.org", False),
        ("apps.example.org", False),
        # A star for everything below a top-level domain is nobody's.
        ("example.org", False),
        ("10.0.0.7", True),
        ("10.0.0.8", False),
        ("2001:db8:0::1", True),
        # There are alternative names: the common name does not count.
        ("common.example.org", False),
    ],
)
def test_alternative_names__decide(host: str, is_named: bool) -> None:
    assert names_host(_NAMED, host) is is_named


@pytest.mark.parametrize(
    ("host", "is_named"),
    [("common.example.org", True), ("x.example.org", False), ("10.0.0.7", False)],
)
def test_common_name__counts_where_there_is_no_other(host: str, is_named: bool) -> None:
    assert names_host(_COMMON_ONLY, host) is is_named
