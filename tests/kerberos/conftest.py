"""One KDC for each file of tests, and an environment in which programs know its realm."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kerberos.kdc import Kdc, missing

HOST = "127.0.0.1"
# The principals of the realm.
PRINCIPALS = (
    f"zookeeper/{HOST}",
    f"HTTP/{HOST}",
    f"zkquorum/{HOST}",
    "zkquorum/elsewhere",
    "bob",
    "ann/desk",
)


@pytest.fixture(scope="module")
def realm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kdc]:
    if missing():
        pytest.skip(f"Kerberos needs {missing()}")
    kdc = Kdc(tmp_path_factory.mktemp("kdc"))
    try:
        kdc.start()
        for principal in PRINCIPALS:
            kdc.add(principal)
        yield kdc
    finally:
        kdc.close()


@pytest.fixture
def kdc(realm: Kdc, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Kdc:
    """The KDC, and an empty cache of tickets."""
    for name, value in realm.variables.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("KRB5CCNAME", f"FILE:{tmp_path / 'tickets'}")
    return realm
