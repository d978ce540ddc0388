"""A repair gives no vote back: what was acknowledged survives it (R8, R14)."""

from __future__ import annotations

from keepfast.sim.disk_damage import flip_bit
from keepfast.storage import load_manifest, read_watermark, recover
from keepfast.storage.repair import RepairPlan, apply_repair, hold, plan_repair
from tests.replica.simulated import member_of, process_of, started, tree_of

COUNT = 25


def test_repaired_member_and_a_lagging_peer__nothing_acknowledged_is_lost() -> None:
    """The two of them are a quorum, and neither has what the third acknowledged."""
    ensemble = started()
    leader = ensemble.leading()
    damaged, lagging = ensemble.followers()
    for number in range(8):
        ensemble.write(f"/n{number}")
    lagging.stop()
    for number in range(8, COUNT):
        ensemble.write(f"/n{number}")
    damaged.stop()
    leader.stop()
    disk, place = damaged.disk, damaged.directory
    manifest = load_manifest(disk, place)
    assert manifest is not None
    log = place.in_logs(manifest.segments[-1].name)
    watermark = read_watermark(disk, place)
    assert watermark is not None
    flip_bit(disk, log, watermark.end // 2)
    ensemble.world.checkers.damaged(damaged.server_id)
    with hold(disk, place):
        plan = plan_repair(disk, place)
        assert isinstance(plan, RepairPlan)
        assert plan.lost or plan.acknowledged
        apply_repair(disk, place, plan)
    ensemble.world.checkers.repaired(damaged.server_id, recover(disk, place))
    damaged.start()
    lagging.start()
    ensemble.pass_ticks(50)
    assert member_of(damaged).state.standing.value == "catching up"
    assert not any(process_of(host).is_serving for host in ensemble.up())
    leader.start()
    ensemble.wait_all("all serve")
    ensemble.check_equal()
    assert {f"/n{number}" for number in range(COUNT)} <= set(tree_of(damaged).paths())
    assert member_of(damaged).state.standing.may_vote
