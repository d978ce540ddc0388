"""Passwords of sessions: which form holds for which session, and that nobody gets in without."""

from __future__ import annotations

import pytest

from keepfast.replica import Phase, ReplicaOptions, SessionPasswords
from keepfast.replica.sessions import first_session_id
from keepfast.wire import ConnectResponse, session_password
from tests.replica.machine import START_MS, Client, Machine

SECRET = b"known to all servers"
SINCE_MS = 1_790_000_000_000


def test_session_of_a_server_started_before_the_secret__has_apaches_password() -> None:
    passwords = SessionPasswords(SECRET, SINCE_MS)
    for server in (1, 127, 255):
        older = first_session_id(server, SINCE_MS - 1) + 7
        newer = first_session_id(server, SINCE_MS)
        assert passwords.of(older) == session_password(older)
        assert passwords.of(newer) != session_password(newer)
        assert passwords.admits(newer, passwords.of(newer))
        assert not passwords.admits(newer, session_password(newer))


def test_clock_of_ids__begins_anew_every_35_years() -> None:
    before_2039 = (2 << 40) - 1000
    passwords = SessionPasswords(SECRET, before_2039)
    for at_ms, is_secret in ((before_2039 - 1, False), (before_2039 + 2000, True)):
        id = first_session_id(1, at_ms)
        assert (passwords.of(id) != session_password(id)) is is_secret


def test_passwords__differ_by_session_and_by_secret() -> None:
    ids = [first_session_id(1, SINCE_MS) + number for number in range(100)]
    found = {SessionPasswords(secret, SINCE_MS).of(id) for secret in (b"a", b"b") for id in ids}
    assert len(found) == 200
    assert {len(password) for password in found} == {16}
    assert "known" not in repr(SessionPasswords(SECRET, SINCE_MS))


@pytest.mark.parametrize("uptime_ms", [0, 3_600_000, 1 << 37])
def test_session_of_apaches__which_counts_from_the_start_of_its_machine__keeps_its_password(
    uptime_ms: int,
) -> None:
    in_2026 = 1_795_000_000_000
    id = first_session_id(1, uptime_ms)
    assert SessionPasswords(SECRET, in_2026).of(id) == session_password(id)


def machine() -> Machine:
    passwords = SessionPasswords(SECRET, START_MS)
    return Machine(ReplicaOptions(tick_ms=1000, min_session_timeout_ms=2000, passwords=passwords))


def test_client__gets_its_session_back_by_the_password_that_it_was_given() -> None:
    world = machine()
    first = Client(world)
    session = first.connect()
    assert session.password != session_password(session.session_id)
    second = Client(world, session=session)
    assert second.connect() == session
    assert first.connection.phase is Phase.CLOSED


def test_who_computes_the_password_from_the_id__is_refused_and_touches_nothing() -> None:
    world = machine()
    client = Client(world)
    session = client.connect()
    for password in (session_password(session.session_id), bytes(16), b"", b"x" * 300):
        guess = ConnectResponse(0, session.timeout_ms, session.session_id, password, False)
        stranger = Client(world, session=guess)
        assert stranger.connect().session_id == 0
        assert stranger.connection.phase is Phase.CLOSED
        assert client.connection.is_open


def test_no_password__is_refused() -> None:
    assert not SessionPasswords(SECRET).admits(5, None)
    assert not SessionPasswords().admits(5, None)
