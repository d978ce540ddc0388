"""Election connections on real sockets: who dials, what is kept, what is sent."""

from __future__ import annotations

import asyncio
import logging
import struct
from contextlib import AsyncExitStack
from functools import partial
from typing import Any

import pytest

from keepfast.quorum import (
    Address,
    Candidacy,
    ElectionOptions,
    MemberRole,
    Membership,
    MemberSpec,
)
from keepfast.server.election_links import LinkOptions
from keepfast.wire import (
    Hello,
    HelloForm,
    Notification,
    PeerState,
    ServerId,
    Zxid,
    decode_hello,
    decode_notification,
    encode_hello,
    encode_notification,
)
from tests.server.voters import Run, Voter, close_at_end, hold_ports, run_on

FAST = LinkOptions(first_retry_ms=20, longest_retry_ms=100, dial_back_ms=2000)
LOOKING = PeerState.LOOKING


def ensemble(*ids: int, observers: tuple[int, ...] = ()) -> Membership:
    """Members on ports of the loopback address that are held until the test ends."""
    ports = iter(hold_ports(2 * len(ids)))
    return Membership(
        tuple(
            MemberSpec(
                ServerId(id),
                (Address("127.0.0.1", next(ports)),),
                (Address("127.0.0.1", next(ports)),),
                MemberRole.OBSERVER if id in observers else MemberRole.PARTICIPANT,
            )
            for id in ids
        )
    )


def port_of(membership: Membership, server_id: int) -> int:
    member = membership.find(ServerId(server_id))
    assert member is not None
    return member.election[0].port


def is_linked(voter: Voter, server_id: int) -> bool:
    return server_id in voter.links.linked


@pytest.fixture(params=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Run:
    """Runs a coroutine, on both kinds of loop."""
    return partial(run_on, request.param)


class Stranger:
    """The other side, byte by byte."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        close_at_end(writer.transport.abort)

    @classmethod
    async def dial(cls, port: int) -> Stranger:
        return cls(*await asyncio.open_connection("127.0.0.1", port))

    def write(self, data: bytes) -> None:
        self._writer.write(data)

    def hello(self, server_id: int, form: HelloForm = HelloForm.V1, *addresses: str) -> None:
        self.write(encode_hello(Hello(form, ServerId(server_id), addresses)))

    def tell(self, notification: Notification) -> None:
        payload = encode_notification(notification)
        self.write(struct.pack(">i", len(payload)) + payload)

    async def read_hello(self) -> Hello:
        data = b""
        while True:
            data += await self._reader.readexactly(1)
            found = decode_hello(data)
            if found is not None:
                return found[0]

    async def read(self) -> Notification:
        (length,) = struct.unpack(">i", await self._reader.readexactly(4))
        return decode_notification(await self._reader.readexactly(length))

    async def read_until_leader(self, leader: int) -> None:
        """Read up to a vote for that server: votes are repeated if nothing is heard for a while."""
        while (await self.read()).leader != leader:
            pass

    async def wait_closed(self) -> None:
        try:
            while await self._reader.read(4096):
                pass
        except ConnectionError:
            pass

    def close(self) -> None:
        self._writer.close()


async def dialled_at(port: int) -> asyncio.Queue[Stranger]:
    """Listen there; gives whoever dials."""
    dialled: asyncio.Queue[Stranger] = asyncio.Queue()
    listener = await asyncio.start_server(
        lambda reader, writer: dialled.put_nowait(Stranger(reader, writer)), "127.0.0.1", port
    )
    close_at_end(listener.close)
    return dialled


def vote(leader: int, zxid: int = 0, *, state: int = LOOKING, round_: int = 1) -> Notification:
    return Notification(state, ServerId(leader), Zxid(zxid), round_, 0, 2, b"")


def test_three_servers__elect_the_greatest_id(run: Run) -> None:
    async def play() -> None:
        members = ensemble(1, 2, 3)
        # Or the first two would not wait for the third until a slow machine has connected it.
        patience = ElectionOptions(finalize_wait_ms=600_000)
        async with AsyncExitStack() as stack:
            voters = [
                await stack.enter_async_context(Voter(id, members, options=FAST, patience=patience))
                for id in (1, 2, 3)
            ]
            for voter in voters:
                voter.look()
            results = [await voter.wait_elected() for voter in voters]

        assert {result.leader for result in results} == {3}
        assert [result.state for result in results] == [
            PeerState.FOLLOWING,
            PeerState.FOLLOWING,
            PeerState.LEADING,
        ]

    run(play())


@pytest.mark.parametrize("late", [1, 2, 3])
def test_server_that_comes_late_or_again__finds_the_leader(run: Run, late: int) -> None:
    async def play() -> None:
        members = ensemble(1, 2, 3)
        async with AsyncExitStack() as stack:
            early = [
                await stack.enter_async_context(Voter(id, members, options=FAST))
                for id in (1, 2, 3)
                if id != late
            ]
            for voter in early:
                voter.look(zxid=7, epoch=1)
            leader = {(await voter.wait_elected()).leader for voter in early}
            assert len(leader) == 1
            for _ in range(3):
                async with Voter(late, members, options=FAST) as voter:
                    voter.look(zxid=9, epoch=1)
                    result = await voter.wait_elected()
                    assert result.leader in leader
                    assert result.state is PeerState.FOLLOWING

    run(play())


@pytest.mark.parametrize("candidacy", [Candidacy.BARRED, Candidacy.EMPTY])
def test_server_that_is_not_whole__is_told_who_leads(run: Run, candidacy: Candidacy) -> None:
    async def play() -> None:
        members = ensemble(1, 2, 3)
        async with AsyncExitStack() as stack:
            one, two, three = [
                await stack.enter_async_context(Voter(id, members, options=FAST))
                for id in (1, 2, 3)
            ]
            three.look(candidacy)
            one.look(zxid=7, epoch=1)
            two.look(zxid=7, epoch=1)

            assert (await one.wait_elected()).leader == 2
            result = await three.wait_elected()
            assert (result.leader, result.state) == (2, PeerState.OBSERVING)

    run(play())


def test_new_ensemble__every_empty_server_learns_that_it_is_new(run: Run) -> None:
    async def play() -> None:
        members = ensemble(1, 2, 3)
        async with AsyncExitStack() as stack:
            voters = [
                await stack.enter_async_context(Voter(id, members, options=FAST))
                for id in (1, 2, 3)
            ]
            for voter in voters[:2]:
                voter.look(Candidacy.EMPTY)
            await voters[0].wait_until(lambda: voters[0].election.waiting_for == {3})
            assert not voters[0].election.may_initialise
            voters[2].look(Candidacy.EMPTY)
            for voter in voters:
                await voter.wait_until(partial(getattr, voter.election, "may_initialise"))

    run(play())


def test_observer__asks_and_is_told(run: Run) -> None:
    async def play() -> None:
        members = ensemble(1, 2, 9, observers=(9,))
        async with AsyncExitStack() as stack:
            one, two, asker = [
                await stack.enter_async_context(Voter(id, members, options=FAST))
                for id in (1, 2, 9)
            ]
            asker.look()
            one.look()
            two.look()

            result = await asker.wait_elected()
            assert (result.leader, result.state) == (2, PeerState.OBSERVING)

    run(play())


@pytest.mark.parametrize(
    ("form", "addresses"),
    [(HelloForm.V34, ()), (HelloForm.V1, ("127.0.0.1:1",)), (HelloForm.V2, ("a:1", "[::1]:2"))],
)
def test_greater_id_dials__connection_is_kept(
    run: Run, form: HelloForm, addresses: tuple[str, ...]
) -> None:
    async def play() -> None:
        members = ensemble(1, 2)
        async with Voter(1, members, options=FAST) as voter:
            stranger = await Stranger.dial(port_of(members, 1))
            stranger.hello(2, form, *addresses)
            voter.look(zxid=5)
            assert (await stranger.read()).leader == 1
            stranger.tell(vote(2, 9))
            await stranger.read_until_leader(2)
            assert (await voter.wait_elected()).leader == 2
            stranger.close()

    run(play())


def test_smaller_id_dials__is_dialled_back_where_it_says(run: Run) -> None:
    async def play() -> None:
        members = ensemble(1, 2)
        (elsewhere,) = hold_ports(1)
        dialled = await dialled_at(elsewhere)
        async with Voter(2, members, options=FAST) as voter:
            voter.look(zxid=5)
            stranger = await Stranger.dial(port_of(members, 2))
            stranger.hello(1, HelloForm.V1, f"127.0.0.1:{elsewhere}")
            await stranger.wait_closed()
            back = await dialled.get()
            hello = await back.read_hello()
            own = f"127.0.0.1:{port_of(members, 2)}"
            assert hello == Hello(HelloForm.V1, ServerId(2), (own,))
            assert (await back.read()).leader == 2
            # It asks again: the connection that is there must be dead.
            again = await Stranger.dial(port_of(members, 2))
            again.hello(1, HelloForm.V1, f"127.0.0.1:{elsewhere}")
            await again.wait_closed()
            await back.wait_closed()
            second = await dialled.get()
            assert (await second.read_hello()).server_id == 2
            for one in (stranger, again, back, second):
                one.close()

    run(play())


def test_smaller_id__asks_for_a_connection_and_closes(run: Run) -> None:
    async def play() -> None:
        members = ensemble(1, 2)
        dialled = await dialled_at(port_of(members, 2))
        async with Voter(1, members, options=FAST) as voter:
            voter.look()
            asked = await dialled.get()
            assert (await asked.read_hello()).server_id == 1
            await asked.wait_closed()
            asked.close()

    run(play())


def test_connection_is_lost__greater_id_makes_it_again_and_says_what_holds_now(run: Run) -> None:
    async def play() -> None:
        members = ensemble(1, 2)
        dialled = await dialled_at(port_of(members, 1))
        async with Voter(2, members, options=FAST) as voter:
            voter.look(zxid=5)
            first = await dialled.get()
            await first.read_hello()
            assert (await first.read()).state == LOOKING
            first.tell(vote(2, 5))
            await voter.wait_elected()
            voter.settle(PeerState.LEADING, 2, 8)
            first.close()
            second = await dialled.get()
            await second.read_hello()
            word = await second.read()
            # Not the last that was sent: who hears it may have lost its disk meanwhile.
            assert (word.state, word.leader, word.peer_epoch) == (PeerState.LEADING, 2, 8)
            second.close()

    run(play())


def test_peer_that_does_not_read__gets_the_newest_word_only(run: Run) -> None:
    async def play() -> None:
        members = ensemble(1, 2)
        async with Voter(1, members, options=FAST) as voter:
            stranger = await Stranger.dial(port_of(members, 1))
            stranger.hello(2, HelloForm.V1, "127.0.0.1:1")
            await voter.wait_until(lambda: voter.links.linked == {2})
            big = b"#" * 500_000
            for number in range(200):
                word = Notification(0, ServerId(1), Zxid(number), 1, 0, 2, big)
                voter.links.send(ServerId(2), word)
            got: list[int] = []
            while not got or got[-1] < 199:
                got.append((await stranger.read()).zxid)
            assert got == sorted(set(got))
            assert len(got) < 150
            stranger.close()

    run(play())


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (struct.pack(">q", -3), "unknown form"),
        (struct.pack(">qqi", -65536, 2, 5000), "5000 bytes"),
        (struct.pack(">qqi", -65536, 2, 0), "0 bytes"),
        (struct.pack(">q", 1), "says it is server 1"),
        (struct.pack(">q", 2) + struct.pack(">i", 600_000), ""),
        (struct.pack(">q", 2) + struct.pack(">i", 0), ""),
        (struct.pack(">q", 2) + struct.pack(">i", -1), ""),
    ],
)
def test_who_breaks_the_protocol__is_cut_off(
    run: Run, data: bytes, reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def play() -> None:
        members = ensemble(1, 2)
        async with Voter(1, members, options=FAST) as voter:
            stranger = await Stranger.dial(port_of(members, 1))
            stranger.write(data)
            await stranger.wait_closed()
            stranger.close()
            assert voter.links.linked == frozenset() or reason == ""

    with caplog.at_level(logging.INFO, "keepfast.server"):
        run(play())
    assert reason in caplog.text


def test_who_does_not_say_who_it_is__is_cut_off(run: Run) -> None:
    async def play() -> None:
        members = ensemble(1, 2)
        async with Voter(1, members, options=LinkOptions(identify_timeout_ms=50)):
            stranger = await Stranger.dial(port_of(members, 1))
            stranger.write(b"\xff\xff\xff")
            await stranger.wait_closed()
            stranger.close()

    run(play())


def test_notification_that_cannot_be_read__is_dropped_and_the_next_one_counts(run: Run) -> None:
    async def play() -> None:
        members = ensemble(1, 2)
        async with Voter(1, members, options=FAST) as voter:
            voter.look()
            stranger = await Stranger.dial(port_of(members, 1))
            stranger.hello(2, HelloForm.V34)
            stranger.write(struct.pack(">i", 5) + b"12345")
            stranger.tell(vote(2, 9))
            assert (await voter.wait_elected()).leader == 2
            stranger.close()

    run(play())


def test_strangers__are_limited(run: Run) -> None:
    async def play() -> None:
        members = ensemble(1, 2)
        async with Voter(1, members, options=LinkOptions(max_strangers=2)) as voter:
            strangers = []
            for id in (50, 51, 52):
                stranger = await Stranger.dial(port_of(members, 1))
                stranger.hello(id, HelloForm.V34)
                strangers.append(stranger)
                if id != 52:
                    await voter.wait_until(partial(is_linked, voter, id))
            # The newcomer gets in: who makes up ids shuts nobody out.
            await strangers[0].wait_closed()
            await voter.wait_until(partial(is_linked, voter, 52))
            assert voter.links.linked == {51, 52}
            for stranger in strangers:
                stranger.close()

    run(play())


def test_several_addresses__the_one_that_answers_is_used(run: Run) -> None:
    async def play() -> None:
        (dead,) = hold_ports(1)
        members = ensemble(1, 2)
        alive = members.find(ServerId(1))
        assert alive is not None
        options = LinkOptions(is_multi_address=True, first_retry_ms=20)
        async with (
            Voter(1, members, options=options) as one,
            Voter(2, members, options=options) as two,
        ):
            two.links.set_members({ServerId(1): [Address("127.0.0.1", dead), *alive.election]})
            two.look()
            one.look()
            assert (await one.wait_elected()).leader == 2

    run(play())


def test_port_that_is_taken__is_an_error_after_some_attempts(run: Run) -> None:
    async def play() -> None:
        members = ensemble(1, 2)
        async with Voter(1, members, options=FAST):
            with pytest.raises(OSError):
                await Voter(1, members, options=LinkOptions(bind_attempts=1)).links.start()

    run(play())


@pytest.mark.parametrize("is_readable", [True, False])
def test_flood_of_notifications__is_taken_slowly(run: Run, *, is_readable: bool) -> None:
    """Others on the same loop would wait for all of them."""
    flood, allowed = 20_000, 60

    async def play() -> None:
        members = ensemble(1, 2)
        async with Voter(1, members) as voter:
            taken, has_begun = 0, asyncio.Event()
            read = voter.links._read_notification

            async def counted(*arguments: Any) -> Notification | None:
                nonlocal taken
                taken += 1
                has_begun.set()
                return await read(*arguments)

            voter.links._read_notification = counted  # type: ignore[method-assign, assignment]
            stranger = await Stranger.dial(port_of(members, 1))
            stranger.hello(50, HelloForm.V34)
            payload = encode_notification(vote(50)) if is_readable else b"short"
            stranger.write((struct.pack(">i", len(payload)) + payload) * flood)
            await has_begun.wait()
            begin = asyncio.get_running_loop().time()
            for _ in range(100):
                await asyncio.sleep(0.001)
            spent = asyncio.get_running_loop().time() - begin
            assert taken < allowed + 30 * spent
            stranger.close()

    run(play())
