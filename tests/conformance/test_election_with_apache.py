"""Our election machine and its connections among real Apache servers."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from keepfast.quorum import Candidacy
from keepfast.wire import PacketType, PeerState
from tests.conformance.mixed import Mixed, QuorumPort, mixed_ensemble, play
from tests.server.voters import Voter

pytestmark = pytest.mark.conformance

# More than the servers under test ever reach.
FAR_EPOCH = 7
FAR_ZXID = FAR_EPOCH << 32 | 5


async def wait_modes(mixed: Mixed, **modes: str) -> None:
    await asyncio.to_thread(mixed.wait_modes, **modes)


def test_voter_that_loses__follows_whom_apache_elects(tmp_path: Path) -> None:
    async def work() -> None:
        with mixed_ensemble(tmp_path, mine=3) as mixed:
            # Fresh: theirs are two of three, and elect without us.
            mixed.launch()
            await wait_modes(mixed, server_1="follower", server_2="leader")
            # We come late and are told.
            async with Voter(3, mixed.membership) as voter:
                voter.look()
                result = await voter.wait_elected()
                assert (result.leader, result.state) == (2, PeerState.FOLLOWING)
                heard = await voter.wait_heard(2, PeerState.LEADING)
                assert (heard.peer_epoch or 0) >= 1
            await asyncio.to_thread(mixed.stop)
            # They have an epoch now, and we do not: all look together, and our greater id is
            # no help.
            async with Voter(3, mixed.membership) as voter:
                voter.look()
                mixed.launch()
                result = await voter.wait_elected()
                # The first of them that starts, with our vote, is a quorum already.
                assert result.leader in (1, 2)
                assert result.state is PeerState.FOLLOWING
                assert result.peer_epoch >= 1

    play(work)


@pytest.mark.parametrize("mine", [1, 3])
def test_voter_with_the_longest_history__leads_and_apache_comes_to_its_port(
    tmp_path: Path, mine: int
) -> None:
    async def work() -> None:
        others = {1, 2, 3} - {mine}
        port = QuorumPort()
        with mixed_ensemble(tmp_path, mine=mine) as mixed:
            await port.open(mixed.membership, mine)
            async with Voter(mine, mixed.membership) as voter:
                voter.look(zxid=FAR_ZXID, epoch=FAR_EPOCH)
                # One at first: two of them could elect one of them before they hear us.
                first, second = sorted(others)
                mixed.launch(first)
                result = await voter.wait_elected()
                assert (result.leader, result.state) == (mine, PeerState.LEADING)
                mixed.launch(second)
                await port.wait_learners(others)
            types = {packet.type for packet in port.learners.values()}
            assert types == {PacketType.FOLLOWERINFO}
            await port.close()

    play(work)


def test_observer__is_told_who_leads(tmp_path: Path) -> None:
    async def work() -> None:
        with mixed_ensemble(tmp_path, mine=3, is_observer=True) as mixed:
            async with Voter(3, mixed.membership) as voter:
                voter.look()
                mixed.launch()
                result = await voter.wait_elected()
                assert (result.leader, result.state) == (2, PeerState.OBSERVING)

    play(work)


@pytest.mark.parametrize("candidacy", [Candidacy.EMPTY, Candidacy.BARRED])
def test_voter_that_is_not_whole__apache_elects_without_it_and_tells(
    tmp_path: Path, candidacy: Candidacy
) -> None:
    async def work() -> None:
        # With the best data of all, had it any: only that it is not whole keeps it from leading.
        with mixed_ensemble(tmp_path, mine=1) as mixed:
            async with Voter(1, mixed.membership) as voter:
                voter.look(candidacy, zxid=FAR_ZXID, epoch=FAR_EPOCH)
                mixed.servers[2].launch()
                # A majority is there, of which one is not whole: no leader.
                await voter.wait_heard(2, PeerState.LOOKING)
                mixed.servers[3].launch()
                result = await voter.wait_elected()
                assert (result.leader, result.state) == (3, PeerState.OBSERVING)
                assert all(word.leader != 1 for _, word in voter.heard)

    play(work)
