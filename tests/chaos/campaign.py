"""The campaign, `python -m tests.chaos.campaign`: workloads under faults on real processes.

All workloads run at once; fault after fault strikes and is healed. After each, all servers have to
serve the same tree again. At the end every workload checks what its clients were told.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from kazoo.client import KazooClient

from keepfast.client import Client, ClientEvent, ClientOptions, OperationFailed
from tests.chaos.faults import FAULTS, Fault
from tests.chaos.kazoo_clients import KazooWorker
from tests.chaos.processes import PATIENCE_SECONDS, RealEnsemble
from tests.chaos.workloads import WORKLOADS, Watches, Workload, make_znode

_ROOT = "/chaos"
_PAUSE_SECONDS = 0.004
_RECONNECT_SECONDS = 0.05
_MAX_SHOWN = 20


@dataclass(frozen=True, slots=True)
class Plan:
    """What is run."""

    seed: int
    faults: tuple[type[Fault], ...] = FAULTS
    workloads: tuple[type[Workload], ...] = WORKLOADS
    size: int = 3
    # How long a fault lasts, and how long is waited before the next one.
    fault_seconds: float = 3.0
    calm_seconds: float = 1.0
    workers: int = 2  # for each workload
    # Clients of kazoo's make; every other one has the address of one server only.
    kazoo_clients: int = 3


@dataclass(slots=True)
class Outcome:
    """What came of it."""

    complaints: list[str] = field(default_factory=list)
    struck: list[str] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)
    done: int = 0
    unknown: int = 0


class Worker(threading.Thread):
    """One client that works until it is told to stop, through every loss of its session."""

    def __init__(
        self, ensemble: RealEnsemble, workload: Workload, seed: int, is_over: threading.Event
    ) -> None:
        super().__init__(name=f"{workload.name}-{seed}", daemon=True)
        self._ensemble = ensemble
        self._workload = workload
        self._rng = random.Random(seed)
        self._is_over = is_over
        self.bug: BaseException | None = None

    def run(self) -> None:
        try:
            while not self._is_over.is_set():
                self._session()
        except Exception as error:  # noqa: BLE001 - shown by the campaign, which fails with it
            self.bug = error

    def _session(self) -> None:
        """Work as long as one session lives."""
        client = self._client()
        try:
            client.start()
            while not self._is_over.is_set() and client.state.is_alive:
                try:
                    self._workload.take(client, self._rng)
                except OperationFailed as error:
                    if not error.is_connection_failure and not _is_unavailable(error):
                        raise
                    self._is_over.wait(_RECONNECT_SECONDS)
                self._is_over.wait(_PAUSE_SECONDS)
        finally:
            client.close()

    def _client(self) -> Client:
        addresses = [str(self._ensemble.address(id)) for id in self._ensemble.servers]
        self._rng.shuffle(addresses)
        options = ClientOptions(
            session_timeout_ms=4000, connect_timeout_s=1.0, operation_timeout_s=10.0
        )
        workload = self._workload
        holder: list[Client] = []

        def on_event(event: ClientEvent) -> None:
            if isinstance(workload, Watches):
                workload.on_event(holder[0].session_id, event)

        holder.append(Client(",".join(addresses), options, on_event))
        return holder[0]


def _is_unavailable(error: OperationFailed) -> bool:
    """Whether a server refuses writes for now, as on a full disk."""
    return error.code.name in ("SYSTEM_ERROR", "THROTTLED_OP", "RUNTIME_INCONSISTENCY")


def run_campaign(plan: Plan, root: Path, say: Callable[[str], None]) -> Outcome:
    """Run a plan on a new ensemble below `root`; complaints are in the outcome."""
    outcome = Outcome()
    rng = random.Random(plan.seed)
    names = {fault.name for fault in plan.faults}
    with RealEnsemble(
        root,
        plan.size,
        with_small_disk="disk-full" in names,
        with_clocks="clock-jump" in names,
        with_power="power-cut" in names,
    ) as ensemble:
        ensemble.start()
        workloads = [kind(_ROOT) for kind in plan.workloads]
        ensemble.with_client(lambda client: make_znode(client, _ROOT))
        for workload in workloads:
            ensemble.with_client(workload.set_up)
        is_over = threading.Event()
        workers = [
            Worker(ensemble, workload, rng.randrange(1 << 30), is_over)
            for workload in workloads
            for _ in range(plan.workers)
        ]
        rude = _kazoo_workers(ensemble, plan, is_over)
        for worker in (*workers, *rude):
            worker.start()
        try:
            for kind in plan.faults:
                _strike(kind(ensemble, rng), plan, outcome, say)
        finally:
            is_over.set()
            for worker in (*workers, *rude):
                worker.join(PATIENCE_SECONDS)
        everybody: tuple[Worker | KazooWorker, ...] = (*workers, *rude)
        outcome.complaints += [f"{w.name}: does not end" for w in everybody if w.is_alive()]
        outcome.complaints += [f"{w.name}: {w.bug!r}" for w in everybody if w.bug is not None]
        _check(ensemble, workloads, outcome, say)
        _check_kazoo(ensemble, rude, outcome, say)
    return outcome


def _kazoo_workers(
    ensemble: RealEnsemble, plan: Plan, is_over: threading.Event
) -> list[KazooWorker]:
    addresses = [str(ensemble.address(id)) for id in ensemble.servers]
    return [
        KazooWorker(
            _ROOT,
            number,
            addresses if number % 2 else [addresses[number % len(addresses)]],
            is_over,
        )
        for number in range(plan.kazoo_clients)
    ]


def _check_kazoo(
    ensemble: RealEnsemble,
    workers: Sequence[KazooWorker],
    outcome: Outcome,
    say: Callable[[str], None],
) -> None:
    addresses = ",".join(str(ensemble.address(id)) for id in ensemble.servers)
    client = KazooClient(hosts=addresses)
    client.start(timeout=PATIENCE_SECONDS)
    try:
        for worker in workers:
            worker.check(client)
            outcome.complaints += worker.complaints
            outcome.done += worker.done
            outcome.unknown += worker.unknown
            count = f"{worker.done} sets done, {worker.unknown} unknown"
            say(f"{worker.name}: {count}, {len(worker.complaints)} violations")
    finally:
        client.stop()
        client.close()


def _strike(fault: Fault, plan: Plan, outcome: Outcome, say: Callable[[str], None]) -> None:
    """Let a fault happen, heal it, and wait until all is well."""
    reason = fault.missing()
    if reason:
        outcome.skipped.append(fault.name)
        say(f"{fault.name}: skipped, {reason}")
        return
    time.sleep(plan.calm_seconds)
    what = fault.inject()
    time.sleep(plan.fault_seconds)
    fault.heal()
    start = time.monotonic()
    verdict = fault.ensemble.wait_well()
    spent = time.monotonic() - start
    leader = verdict.leader
    at = "" if leader is None else f"server {leader.server_id} leads, epoch {leader.epoch}"
    outcome.struck.append(fault.name)
    say(f"{fault.name}: {what}; well again after {spent:.1f} s, {at}")


def _check(
    ensemble: RealEnsemble,
    workloads: Sequence[Workload],
    outcome: Outcome,
    say: Callable[[str], None],
) -> None:
    ensemble.wait_well()
    for workload in workloads:
        ensemble.with_client(workload.check)
        outcome.complaints += workload.complaints
        outcome.done += workload.done
        outcome.unknown += workload.unknown
        count = f"{workload.done} steps done, {workload.unknown} unknown"
        say(f"{workload.name}: {count}, {len(workload.complaints)} violations")
    # At one zxid: sessions of workers still run out, one server after the other.
    verdict = ensemble.wait_equal()
    digests = {f"{one.zxid:#x} {one.facts['state_digest']}" for one in verdict.servers if one.zxid}
    say(f"all servers: {', '.join(sorted(digests))}")
    if len(digests) != 1:
        outcome.complaints.append(f"the trees differ: {sorted(digests)}")


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(prog="tests.chaos.campaign", description=__doc__)
    parser.add_argument("--seed", type=int, default=1, help="the first seed")
    parser.add_argument("--rounds", type=int, default=2, help="runs, each with the next seed")
    parser.add_argument("--size", type=int, default=3, help="servers")
    parser.add_argument("--seconds", type=float, default=3.0, help="how long a fault lasts")
    parser.add_argument("--faults", default="", help="names, with commas; all without it")
    parser.add_argument("--keep", help="a directory for data and logs, which stays")
    given = parser.parse_args(arguments)
    wanted = set(filter(None, given.faults.split(",")))
    known = {fault.name for fault in FAULTS}
    if wanted - known:
        parser.error(f"unknown: {', '.join(wanted - known)}; known: {', '.join(sorted(known))}")
    faults = tuple(fault for fault in FAULTS if not wanted or fault.name in wanted)
    failed = 0
    for seed in range(given.seed, given.seed + given.rounds):
        plan = Plan(seed, _shuffled(faults, seed), size=given.size, fault_seconds=given.seconds)
        print(f"== seed {seed}, {given.size} servers", flush=True)
        with tempfile.TemporaryDirectory(prefix="keepfast-chaos-") as folder:
            root = Path(given.keep or folder) / str(seed)
            outcome = run_campaign(plan, root, lambda line: print(line, flush=True))
        for complaint in outcome.complaints[:_MAX_SHOWN]:
            print(f"VIOLATION {complaint}")
        if len(outcome.complaints) > _MAX_SHOWN:
            print(f"and {len(outcome.complaints) - _MAX_SHOWN} more")
        if outcome.complaints:
            failed += 1
            names = f" --faults {given.faults}" if given.faults else ""
            print(
                f"again: python -m tests.chaos.campaign --seed {seed} --rounds 1 "
                f"--size {given.size} --seconds {given.seconds:g}{names}"
            )
        print(f"seed {seed}: {outcome.done} steps, {outcome.unknown} unknown", flush=True)
    print(f"{given.rounds - failed} of {given.rounds} runs without a violation")
    return 1 if failed else 0


def _shuffled(faults: tuple[type[Fault], ...], seed: int) -> tuple[type[Fault], ...]:
    found = list(faults)
    random.Random(seed).shuffle(found)
    return tuple(found)


if __name__ == "__main__":
    sys.exit(main())
