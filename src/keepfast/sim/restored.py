"""Worlds that begin after a disaster: a majority was restored from a backup.

The ensemble continued after the backup was taken, so servers that were not restored know later
epochs. That history is given up: the restored majority decides. A voter that was not restored is
damaged, and still knows which epochs it promised; observers were emptied, or have all of the
history that was given up, under zxids that are used again. What was committed begins with what the
backup holds.
"""

from __future__ import annotations

import random
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from keepfast.sim.damage import NOTICEABLE
from keepfast.sim.script import Script, quiet_options
from keepfast.storage import Standing, recover
from keepfast.wire import OpCode, ServerId

if TYPE_CHECKING:
    from keepfast.sim.host import Host
    from keepfast.sim.simulated_world import World

_PATH: Final = "/before"
_STALE_CHANCE: Final = 0.7


def restore_majority(world: World) -> None:
    """Put the disks of such an ensemble into a world in which nothing runs yet."""
    rng = random.Random(f"{world.seed} restored")
    script = _first_life(world)
    hosts = script.world.hosts.values()
    backups = {host.server_id: host.disk.clone() for host in hosts}
    base = recover(backups[ServerId(1)].clone(), world.hosts[ServerId(1)].directory).tree
    for number in range(rng.randint(1, 4)):
        _live_on(script, number)
    voters = [host for host in world.hosts.values() if host.server_id <= world.options.servers]
    rng.shuffle(voters)
    lost = voters[: rng.randint(1, (len(voters) - 1) // 2)]
    for host in world.hosts.values():
        is_restored = host in voters and host not in lost
        if is_restored:
            host.disk = backups[host.server_id]
        elif host in lost:
            host.disk = script.world.hosts[host.server_id].disk.clone()
            _damage(host, rng)
            host.is_impaired = True
            world.checkers.ledger.shadow_of(host.server_id).is_damaged = True
    if random.Random(f"{world.seed} stale").random() < _STALE_CHANCE:
        for host in world.hosts.values():
            if host not in voters:
                host.disk = script.world.hosts[host.server_id].disk.clone()
                world.checkers.ledger.shadow_of(host.server_id).is_stale = True
    if base is not None:
        world.checkers.ledger.begin_with(base)


def _first_life(world: World) -> Script:
    """An ensemble of the same members that has committed something, and was stopped."""
    options = replace(quiet_options(world.options.servers), observers=world.options.observers)
    script = Script(options, world.seed)
    everybody = [int(server_id) for server_id in script.world.hosts]
    script.start(*everybody)
    script.connect(1)
    script.create(_PATH, b"0")
    _stop(script)
    return script


def _live_on(script: Script, number: int) -> None:
    """One more epoch, in which something is committed."""
    script.client.is_stopped = False
    script.start(*(int(server_id) for server_id in script.world.hosts))
    script.connect(1)
    script.set(_PATH, b"%d" % number)
    _stop(script)


def _stop(script: Script) -> None:
    """End the session, so that no backup has it, and stop everybody."""
    client = script.client
    client.ask(OpCode.CLOSE_SESSION, "", None)
    script.wait(lambda: client.session is None, "the session to end")
    client.is_stopped = True
    everybody = [int(server_id) for server_id in script.world.hosts]
    script.wait(lambda: script.are_current(everybody), "all to have it")
    script.stop(*everybody)


def _damage(host: Host, rng: random.Random) -> None:
    """Damage a server's files so that it notices."""
    while recover(host.disk.clone(), host.directory).standing is Standing.WHOLE:
        NOTICEABLE[rng.choice(sorted(NOTICEABLE))](host.disk, None, rng)
