"""Any order of delivery, loss of connections and restarts: who may be elected, and that one is."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from keepfast.quorum import Candidacy, Membership
from keepfast.wire import PeerState, ServerId, Zxid
from tests.quorum.electorate import Electorate, Standing, majority, member

MAX_SERVERS = 5


@st.composite
def memberships(draw: st.DrawFn) -> Membership:
    """Three to five voters by majority, or in groups with weights; perhaps an observer."""
    count = draw(st.integers(3, MAX_SERVERS))
    observers = draw(st.sampled_from([(), (9,)]))
    plain = majority(count, observers=observers)
    if not draw(st.booleans()):
        return plain
    ids = sorted(plain.voters)
    numbers = draw(st.lists(st.integers(1, 3), min_size=count, max_size=count))
    groups = {
        group: [id for id, of in zip(ids, numbers, strict=True) if of == group] for group in numbers
    }
    weights = draw(st.lists(st.integers(0, 2), min_size=count, max_size=count).filter(any))
    return Membership(
        plain.members,
        groups=tuple((group, tuple(of)) for group, of in groups.items()),
        weights=tuple(zip(ids, weights, strict=True)),
    )


standings = st.builds(
    Standing,
    st.sampled_from([Candidacy.ELIGIBLE, Candidacy.ELIGIBLE, Candidacy.ELIGIBLE, *Candidacy]),
    st.integers(0, 3).map(lambda counter: Zxid(1 << 32 | counter)),
    st.integers(1, 2),
)


@st.composite
def electorates(draw: st.DrawFn) -> Electorate:
    membership = draw(memberships())
    ids = [one.server_id for one in membership.members]
    return Electorate(membership, {id: draw(standings) for id in ids})


def play(world: Electorate, data: st.DataObject, *, steps: int) -> None:
    """Deliver, cut, restart and wait in an order that Hypothesis draws."""
    ids = sorted(world.standings)
    for _ in range(steps):
        pairs = world.pairs()
        action = data.draw(st.sampled_from("ddddddddccswt"))
        if action == "d" and pairs:
            world.deliver(data.draw(st.sampled_from(pairs)))
        elif action == "c" and pairs:
            world.cut(data.draw(st.sampled_from(pairs)))
        elif action == "s":
            world.start(data.draw(st.sampled_from(ids)))
        elif action == "t":
            world.part_unsupported()
        else:
            world.advance(data.draw(st.sampled_from([1, 100, 200, 1000])))
        check(world)


def check(world: Electorate) -> None:
    membership = world.membership
    for id, result in world.results:
        standing = world.standings[id]
        voters = world.votes.get((result.election_epoch, result.leader), set())
        # Nobody is led by one whom no quorum of that round has voted for.
        assert membership.is_quorum(voters), (id, result, voters)
        assert world.standings[result.leader].candidacy is Candidacy.ELIGIBLE
        assert membership.weight(result.leader) > 0
        may_vote = standing.candidacy is Candidacy.ELIGIBLE and id in membership.voters
        assert may_vote or result.state is PeerState.OBSERVING
        assert result.state is not PeerState.LEADING or result.leader == id
    for machine in world.machines.values():
        assert not machine.may_initialise


def quorate_leaders(world: Electorate) -> list[tuple[int, ServerId]]:
    followers: dict[tuple[int, ServerId], set[ServerId]] = {}
    for id, result in world.results:
        if result.state is not PeerState.OBSERVING:
            followers.setdefault((result.election_epoch, result.leader), set()).add(id)
    return [key for key, ids in followers.items() if world.membership.is_quorum(ids)]


@settings(max_examples=60)
@given(electorates(), st.data())
def test_any_interleaving__whoever_is_elected_had_a_quorum_and_others_never_count(
    world: Electorate, data: st.DataObject
) -> None:
    for id in world.standings:
        world.start(id)

    play(world, data, steps=40)


@settings(max_examples=60)
@given(electorates(), st.data())
def test_without_restarts__one_round_has_one_leader_whom_a_quorum_follows(
    world: Electorate, data: st.DataObject
) -> None:
    for id in world.standings:
        world.start(id)
    for _ in range(60):
        pairs = world.pairs()
        if data.draw(st.integers(0, 4)) and pairs:
            world.deliver(data.draw(st.sampled_from(pairs)))
        else:
            world.advance(data.draw(st.sampled_from([1, 100, 200])))
        check(world)

    rounds = [round_ for round_, _ in quorate_leaders(world)]
    assert len(rounds) == len(set(rounds))


@settings(max_examples=60)
@given(electorates(), st.data())
def test_after_any_interleaving__a_whole_quorum_agrees_on_one_leader(
    world: Electorate, data: st.DataObject
) -> None:
    for id in world.standings:
        world.start(id)
    play(world, data, steps=25)

    for _ in range(6):
        world.run()
        world.part_unsupported()
    world.run()

    whole = {id for id, one in world.standings.items() if one.candidacy is Candidacy.ELIGIBLE}
    if not world.membership.is_quorum(whole):
        assert world.leaders() == set()
        return
    (leader,) = world.leaders()
    assert world.led_by(leader) == whole & world.membership.voters
    for id, machine in world.machines.items():
        assert machine.result is not None, id
        assert machine.result.leader == leader


@settings(max_examples=60)
@given(electorates())
def test_all_messages_arrive_in_time__the_best_server_leads(world: Electorate) -> None:
    whole = {id for id, one in world.standings.items() if one.candidacy is Candidacy.ELIGIBLE}
    for id in world.standings:
        world.start(id)
    world.deliver_all()

    world.run()

    if world.membership.is_quorum(whole):
        assert world.leaders() == {world.best().leader}
    else:
        assert world.leaders() == set()


@settings(max_examples=40)
@given(st.integers(2, MAX_SERVERS), st.data())
def test_new_ensemble__starts_in_any_order_when_the_last_voter_is_there(
    count: int, data: st.DataObject
) -> None:
    empty = {id: Standing(Candidacy.EMPTY) for id in range(1, count + 1)}
    world = Electorate(majority(count), empty)
    order = data.draw(st.permutations(sorted(empty)))
    for id in order[:-1]:
        world.start(id)
        world.run(rounds=12)
        for machine in world.machines.values():
            assert not machine.may_initialise
            assert order[-1] in machine.waiting_for
    world.start(order[-1])

    for _ in range(400):
        initialise(world)
        pairs = world.pairs()
        if data.draw(st.booleans()) and pairs:
            world.deliver(data.draw(st.sampled_from(pairs)))
        else:
            world.advance(50)
        if world.leaders():
            break
    for _ in range(3):
        world.run()
        initialise(world)
        world.part_unsupported()
    world.run()

    (leader,) = world.leaders()
    # Who was late has to learn from those who began; nobody waits forever.
    assert all(one.result and one.result.leader == leader for one in world.machines.values())


def initialise(world: Electorate) -> None:
    """What the caller does: an empty server that may, begins a history."""
    for id, machine in world.machines.items():
        if machine.may_initialise:
            world.standings[id] = Standing()
            world.look(id)


@settings(max_examples=40)
@given(st.integers(3, MAX_SERVERS), st.data())
def test_wiped_servers__never_take_the_ensemble_for_new_while_one_has_a_history(
    count: int, data: st.DataObject
) -> None:
    holder = data.draw(st.integers(1, count))
    world = Electorate(
        majority(count),
        {
            id: Standing(zxid=Zxid(5), epoch=1)
            if id == holder
            else data.draw(st.sampled_from([Standing(), Standing(Candidacy.EMPTY)]))
            for id in range(1, count + 1)
        },
    )
    for id in world.standings:
        world.start(id)

    play(world, data, steps=60)
    world.run()

    for id, machine in world.machines.items():
        assert not machine.may_initialise
        if machine.candidacy is Candidacy.EMPTY and machine.state is PeerState.LOOKING:
            assert holder in machine.waiting_for, id


def test_electorate_is_as_described() -> None:
    world = Electorate(majority(3), {id: Standing() for id in (1, 2, 3)})
    world.start(1)
    assert world.pairs() == []
    world.start(2)
    assert world.pairs() == [(1, 2), (2, 1)]
    assert member(1).server_id == 1
