"""TLS and SASL between servers, with real Apache servers on the other side, in both directions."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from keepfast.quorum import Address
from keepfast.server.election_links import LinkSecurity
from keepfast.server.peer_stream import connect
from keepfast.wire import (
    PROTOCOL_VERSION,
    LearnerInfo,
    PacketParser,
    PacketType,
    PeerState,
    QuorumPacket,
    ServerId,
    Zxid,
    encode,
)
from tests.conformance.guards import GUARDS, Guard
from tests.conformance.mixed import QuorumPort, mixed_ensemble, play, quorum_addresses
from tests.server.voters import PATIENCE_SECONDS, Voter

pytestmark = pytest.mark.conformance

FAR_EPOCH = 7
FAR_ZXID = FAR_EPOCH << 32 | 5


@pytest.mark.parametrize("guarded", GUARDS, ids=lambda guarded: guarded.__name__)
def test_guarded_ports__work_both_ways(tmp_path: Path, guarded: Callable[[Path], Guard]) -> None:
    guard = guarded(tmp_path)

    async def work() -> None:
        port = QuorumPort(guard.security)
        with mixed_ensemble(
            tmp_path, mine=2, properties=guard.properties, configuration=guard.configuration
        ) as mixed:
            await port.open(mixed.membership, 2)
            # In the middle: we dial server 1, server 3 dials us. Both come to our quorum port.
            async with Voter(2, mixed.membership, security=guard.security) as voter:
                voter.look(zxid=FAR_ZXID, epoch=FAR_EPOCH)
                # One at first: two of them could elect one of them before they hear us.
                mixed.launch(1)
                result = await voter.wait_elected()
                assert (result.leader, result.state) == (2, PeerState.LEADING)
                mixed.launch(3)
                await port.wait_learners({1, 3})
            await port.close()
            # Without us they elect each other, and we come to theirs.
            await asyncio.to_thread(mixed.wait_modes, server_1="follower", server_3="leader")
            async with asyncio.timeout(PATIENCE_SECONDS):
                packet = await introduce(guard.security, quorum_addresses(mixed.membership, 3))
            assert packet.type == PacketType.LEADERINFO

    play(work)


async def introduce(security: LinkSecurity, addresses: Sequence[Address]) -> QuorumPacket:
    """What a leader answers to a learner's first packet."""
    stream = await connect(addresses, timeout_seconds=PATIENCE_SECONDS, tls=security.tls)
    try:
        if security.sasl is not None:
            await security.sasl.prove(stream)
        info = encode(LearnerInfo(ServerId(2), PROTOCOL_VERSION, 0))
        stream.write(encode(QuorumPacket(PacketType.FOLLOWERINFO, Zxid(0), info)))
        parser = PacketParser()
        packets: list[QuorumPacket] = []
        while not packets:
            packets = parser.feed(await stream.read_exactly(1))
    finally:
        stream.abort()
    return packets[0]
