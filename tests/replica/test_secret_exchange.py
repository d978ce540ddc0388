"""Session passwords of an ensemble: by a secret, as soon as every server has it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from keepfast.quorum import (
    QuorumOptions,
    Receipt,
    SharedSecret,
    StoreSecret,
    decode_offer,
    decode_receipt,
    encode_offer,
    encode_receipt,
)
from keepfast.replica import ReplicaOptions, SessionPasswords
from keepfast.replica.secret_exchange import SecretExchange
from keepfast.replica.service import Service
from keepfast.sim.host import Host
from keepfast.sim.options import SimOptions
from keepfast.sim.script import quiet_options
from keepfast.tree import Tree
from keepfast.wire import ConnectResponse, ServerId, encode_touched_sessions, session_password
from tests.replica.simulated import Ensemble, PlainClient, member_of, process_of, started

_SECRET = b"s" * 32


def sharing(**changes: object) -> SimOptions:
    return replace(quiet_options(), is_secret_shared=True, **changes)  # type: ignore[arg-type]


def passwords_of(host: Host) -> SessionPasswords:
    return process_of(host).replica.service.passwords


def is_used(host: Host) -> bool:
    """Whether sessions that this server gives out now have passwords by a secret."""
    return bool(passwords_of(host).secret) and host.wall_ms >= passwords_of(host).since_ms


def wait_used(ensemble: Ensemble) -> None:
    ensemble.wait(lambda: all(map(is_used, ensemble.up())), "the secret is in use")
    assert (
        len({(one := passwords_of(host)).secret + b"%d" % one.since_ms for host in ensemble.up()})
        == 1
    )


def session_at(ensemble: Ensemble, host: Host) -> ConnectResponse:
    client = PlainClient(ensemble, host)
    session = client.greeting
    assert session is not None
    assert session.session_id
    client.leave()
    return session


def is_apaches(session: ConnectResponse) -> bool:
    return session.password == session_password(session.session_id)


def comes_back(ensemble: Ensemble, host: Host, session: ConnectResponse) -> bool:
    client = PlainClient(ensemble, host, session=session)
    client.leave()
    return client.greeting is not None and client.greeting.session_id == session.session_id


def test_all_servers_are_ours__sessions_move_by_passwords_that_do_not_follow_from_ids() -> None:
    ensemble = started(options=sharing())
    wait_used(ensemble)
    for host in ensemble.hosts:
        session = session_at(ensemble, host)
        assert not is_apaches(session)
        guess = session._replace(password=session_password(session.session_id))
        for other in ensemble.hosts:
            assert not comes_back(ensemble, other, guess)
            assert comes_back(ensemble, other, session)


def test_secret_that_all_hold__counts_when_whoever_leads_has_heard_of_it() -> None:
    ensemble = Ensemble(sharing())
    ensemble.start(*ensemble.world.hosts)
    ensemble.wait(lambda: bool(passwords_of(ensemble.leading()).secret), "a time is set")
    leader = ensemble.leading()
    assert passwords_of(leader).since_ms >= leader.wall_ms + ensemble.world.quorum_options.sync_ms


@pytest.mark.parametrize("skew_ms", [0, 3_600_000, -3_600_000])
def test_session_from_before__keeps_its_password_whatever_the_clocks_say(skew_ms: int) -> None:
    ensemble = Ensemble(sharing())
    ensemble.hosts[0].skew_ms = skew_ms
    ensemble.start(*ensemble.world.hosts)
    before = [session_at(ensemble, host) for host in ensemble.hosts]
    assert all(map(is_apaches, before))
    # Where one clock is an hour ahead, those of the others do not reach its time in this test.
    ensemble.wait(lambda: all(passwords_of(host).secret for host in ensemble.hosts), "a secret")
    ensemble.pass_ticks(20)
    for session in before:
        for host in ensemble.hosts:
            assert comes_back(ensemble, host, session)
    after = [session_at(ensemble, host) for host in ensemble.hosts]
    for session in after:
        for host in ensemble.hosts:
            assert comes_back(ensemble, host, session)


def test_one_server_is_not_there__no_secret_is_used_before_it_is() -> None:
    ensemble = Ensemble(sharing())
    *first, last = ensemble.world.hosts
    ensemble.start(*ensemble.world.hosts)
    ensemble.world.hosts[last].kill()
    ensemble.pass_ticks(1)
    for host in ensemble.up():
        host.kill()
    for host in ensemble.hosts:
        host.secret = None
    for server_id in first:
        ensemble.world.hosts[server_id].start()
    ensemble.wait_all("two of three serve")
    ensemble.pass_ticks(30)
    assert not any(passwords_of(host).secret for host in ensemble.up())
    assert is_apaches(session_at(ensemble, ensemble.leading()))
    ensemble.world.hosts[last].start()
    wait_used(ensemble)


def test_one_server_is_apaches__no_secret_is_used() -> None:
    ensemble = started(options=sharing(apache=3))
    ensemble.pass_ticks(40)
    ours = [host for host in ensemble.hosts if not host.is_apache]
    assert not any(passwords_of(host).secret for host in ours)
    # Nor is one made, and sent around.
    assert all(host.secret is None for host in ours)
    assert all(is_apaches(session_at(ensemble, host)) for host in ours)


def test_servers_that_have_it__are_not_told_again_and_again() -> None:
    ensemble = started(options=sharing())
    wait_used(ensemble)
    ensemble.pass_ticks(2)
    leader = member_of(ensemble.leading()).leader
    assert leader is not None
    assert leader.said_to_ours is not None
    assert not any(learner.wants_saying for learner in leader.learners.values())


def test_leader_dies__sessions_move_to_the_others_and_back_to_it() -> None:
    ensemble = started(options=sharing())
    wait_used(ensemble)
    old = ensemble.leading()
    session = session_at(ensemble, old)
    old.cut_power()
    ensemble.wait_all("another one leads")
    for host in ensemble.up():
        assert comes_back(ensemble, host, session)
    later = session_at(ensemble, ensemble.leading())
    assert not is_apaches(later)
    old.start()
    ensemble.wait_all("it is back")
    assert comes_back(ensemble, old, session)
    assert comes_back(ensemble, old, later)


def test_all_are_restarted__sessions_live_on() -> None:
    ensemble = started(options=sharing())
    wait_used(ensemble)
    session = session_at(ensemble, ensemble.leading())
    for host in ensemble.hosts:
        host.kill()
    for host in ensemble.hosts:
        host.start()
    ensemble.wait_all("all are back")
    for host in ensemble.hosts:
        assert comes_back(ensemble, host, session)


def test_server_that_lost_its_secret__has_it_before_it_serves() -> None:
    ensemble = started(options=sharing())
    wait_used(ensemble)
    session = session_at(ensemble, ensemble.leading())
    lost = ensemble.followers()[0]
    lost.kill()
    lost.secret = None
    lost.start()
    ensemble.wait(lambda: process_of(lost).is_serving, "it serves")
    assert comes_back(ensemble, lost, session)
    ensemble.pass_ticks(2)
    assert lost.secret is not None


def test_leader_that_did_not_hear_that_the_secret_is_in_use__is_told() -> None:
    ensemble = started(options=sharing())
    wait_used(ensemble)
    session = session_at(ensemble, ensemble.leading())
    for host in ensemble.hosts:
        host.kill()
    knows = ensemble.hosts[0]
    for host in ensemble.hosts:
        held = host.secret
        assert held is not None
        host.secret = held if host is knows else held._replace(since_ms=0)
    for host in reversed(ensemble.hosts):
        host.start()
    ensemble.wait_all("all are back")
    assert ensemble.leading() is not knows
    wait_used(ensemble)
    assert all(comes_back(ensemble, host, session) for host in ensemble.hosts)
    assert len({host.secret for host in ensemble.hosts}) == 1


def test_two_secrets__the_leaders_counts() -> None:
    ensemble = started(options=sharing())
    wait_used(ensemble)
    for host in ensemble.hosts:
        host.kill()
    for number, host in enumerate(ensemble.hosts):
        host.secret = SharedSecret(bytes([number]) * 32, host.wall_ms)
    for host in ensemble.hosts:
        host.start()
    ensemble.wait_all("all are back")
    ensemble.pass_ticks(2)
    leader = ensemble.leading()
    assert {host.secret for host in ensemble.hosts} == {leader.secret}
    session = session_at(ensemble, leader)
    assert not is_apaches(session)
    assert all(comes_back(ensemble, host, session) for host in ensemble.hosts)


# -- what peers say --------------------------------------------------------------------------------


def exchange(
    held: SharedSecret | None, orders: list[StoreSecret], **options: bool
) -> SecretExchange:
    service = Service(Tree(), ReplicaOptions(), 0, 5000)
    quorum = QuorumOptions(**({"is_secret_shared": True} | options))  # type: ignore[arg-type]
    return SecretExchange(service, quorum, held, lambda: _SECRET, [], orders.append)


def test_receipt_for_another_secret__changes_nothing() -> None:
    orders: list[StoreSecret] = []
    held = SharedSecret(_SECRET)
    secrets = exchange(held, orders)
    secrets.on_receipt(ServerId(2), Receipt(SharedSecret(b"x" * 32).fingerprint, 77, 5000))
    assert not orders
    secrets.on_receipt(ServerId(2), Receipt(held.fingerprint, 77, 5000))
    assert orders == [StoreSecret(held._replace(since_ms=77))]


def test_receipt_of_a_far_day__changes_nothing() -> None:
    orders: list[StoreSecret] = []
    held = SharedSecret(_SECRET)
    secrets = exchange(held, orders)
    day = 24 * 3_600_000
    secrets.on_receipt(ServerId(2), Receipt(held.fingerprint, 6000 + day, 5000))
    secrets.on_receipt(ServerId(2), Receipt(held.fingerprint, 77, 6000 + day))
    assert not orders


def test_said_secret__is_acknowledged_when_it_is_on_disk_and_tried_again_if_it_is_not() -> None:
    orders: list[StoreSecret] = []
    secrets = exchange(None, orders)
    said = encode_offer(SharedSecret(_SECRET, 77))
    assert secrets.on_said(said) is None
    secrets.not_stored()
    assert secrets.on_said(said) is None
    assert len(orders) == 2
    secrets.stored(orders[-1].secret)
    receipt = decode_receipt(secrets.on_said(said))
    assert receipt == Receipt(SharedSecret(_SECRET).fingerprint, 77, 5000)
    # What it knows already is not taken back by a leader that does not.
    assert decode_receipt(secrets.on_said(encode_offer(SharedSecret(_SECRET)))) == receipt
    assert len(orders) == 2


def test_server_that_is_to_have_apaches_passwords__takes_no_part() -> None:
    orders: list[StoreSecret] = []
    secrets = exchange(None, orders, is_secret_shared=False)
    assert secrets.on_said(encode_offer(SharedSecret(_SECRET, 77))) is None
    assert secrets.offer is None
    assert not orders


def test_other_data__is_no_secret_and_no_receipt() -> None:
    offer, receipt = SharedSecret(_SECRET, 5), Receipt(b"12345678", 5, 6)
    assert decode_offer(encode_offer(offer)) == offer
    assert decode_receipt(encode_receipt(receipt)) == receipt
    for data in (None, b"", b"KFss", encode_offer(offer)[:-1], encode_receipt(receipt)):
        assert decode_offer(data) is None
    for data in (None, b"", b"KFsr", encode_receipt(receipt) + b"x", encode_offer(offer)):
        assert decode_receipt(data) is None
    assert decode_receipt(encode_touched_sessions(())) is None
    for time_ms in (-1, 1 << 60):
        assert decode_offer(encode_offer(offer._replace(since_ms=time_ms))) is None
        assert decode_receipt(encode_receipt(receipt._replace(since_ms=time_ms))) is None
        assert decode_receipt(encode_receipt(receipt._replace(wall_ms=time_ms))) is None
    assert "ss" not in repr(offer).replace("SharedSecret", "")
