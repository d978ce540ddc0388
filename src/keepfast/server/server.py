"""One server of the real world: its data, its ports, its reports, from start to stop."""

from __future__ import annotations

import asyncio
import errno
import gc
import os
import random
import secrets
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import msgspec

from keepfast.apache import ConfigError
from keepfast.driver import Failure, ServerLoop, store_facts
from keepfast.quorum import SharedSecret
from keepfast.replica import (
    CadenceOptions,
    Member,
    Replica,
    ReplicaOptions,
    ServerCore,
    SnapshotCadence,
)
from keepfast.server.audit_log import AuditLog
from keepfast.server.certificate_keeper import CertificateKeeper
from keepfast.server.client_port import ClientPort
from keepfast.server.ensemble_report import reason_of
from keepfast.server.listeners import Listeners
from keepfast.server.listening import when_resolved
from keepfast.server.running_server import RunningServer, monotonic_ms
from keepfast.server.server_options import ServerOptions
from keepfast.server.session_secret import SECRET_NAME, passwords_at_start
from keepfast.server.word_answers import answer
from keepfast.server.world import AsyncioWorld
from keepfast.storage import (
    Disk,
    RealDisk,
    Recovery,
    Standing,
    Store,
    data_directory,
)
from keepfast.tree import Tree
from keepfast.wire import DiskFull, format_zxid

if TYPE_CHECKING:
    from keepfast.server.admin import AdminServer
    from keepfast.server.peer_network import PeerNetwork


class NotWholeError(Exception):
    """The data directory has no history that may be served; the recovery says why."""

    def __init__(self, recovery: Recovery) -> None:
        super().__init__(recovery)
        self.recovery = recovery


class ListeningServer:
    """A server, standalone or a member of an ensemble."""

    def __init__(self, options: ServerOptions, disk: Disk | None = None) -> None:
        self.running = RunningServer(options, disk or RealDisk())
        self.admin: AdminServer | None = None
        self._peers: PeerNetwork | None = None
        self._audit = AuditLog() if options.replica.is_audited else None
        # Why nobody is served: at the last check, and as last logged.
        self._waiting_seen = self._waiting_logged = ""

    # -- life ------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Recover the data, then listen.

        Raises ConfigError (key stores), NotWholeError, StorageError or OSError.
        """
        loop = asyncio.get_running_loop()
        options = self.running.options
        keeper = (
            None if options.tls is None else CertificateKeeper(options.tls.config, self.running.log)
        )
        self._failed: asyncio.Future[Failure] = loop.create_future()
        self.running.started_ms = monotonic_ms()
        await self._start_admin()
        try:
            await self._start(loop, options, keeper)
        except BaseException:
            if self.admin is not None:
                await self.admin.stop()
            raise

    async def _start_admin(self) -> None:
        options = self.running.options.admin
        if options is None:
            return
        # Not before: HTTP and all the commands are a good part of what a start imports.
        from keepfast.server.admin import AdminServer

        admin = AdminServer(self.running, options)
        try:
            await admin.start()
        except OSError as error:
            if options.is_required or error.errno != errno.EADDRINUSE:
                raise OSError(error.errno, f"admin server: {error.strerror or error}") from error
            advice = "set admin.serverPort, or admin.enableServer=false"
            reason = error.strerror or error
            self.running.log.warning(
                "no-admin-server", port=options.port, reason=reason, advice=advice
            )
            return
        self.admin = admin
        if admin.url is not None:
            self.running.log.info("admin-server", url=admin.url)
        if admin.metrics_port:
            self.running.log.info("metrics", port=admin.metrics_port)

    async def _start(
        self,
        loop: asyncio.AbstractEventLoop,
        options: ServerOptions,
        keeper: CertificateKeeper | None,
    ) -> None:
        running = self.running
        running.directory = data_directory(running.disk, options.data_dir, options.log_dir)
        # On a thread: meanwhile probes report that the data is being read.
        running.store, running.recovery = await loop.run_in_executor(
            None, Store.open, running.disk, running.directory, options.store
        )
        running.statistics.recovery.add(monotonic_ms() - running.started_ms)
        running.statistics.records_replayed.add(running.recovery.records)
        tree = self._tree_of(running.store, running.recovery)
        for problem in running.recovery.problems:
            running.log.warning("data", problem=problem)
        if running.recovery.adopted and running.recovery.tree is not None:
            self._log_adopted(running.recovery)
        # What was loaded stays: the collector need not walk over it ever again.
        gc.collect()
        gc.freeze()
        try:
            passwords, held = passwords_at_start(options)
        except ConfigError:
            running.store.close()
            raise
        self._make_driver(loop, tree, replace(options.replica, passwords=passwords), held)
        self._listeners = Listeners(self.gate, keeper)
        try:
            await when_resolved(self._listeners.open, running.wait_for_name)
            if options.ensemble is not None and running.member is not None:
                # Here, as a standalone server starts sooner without it.
                from keepfast.server.peer_network import PeerNetwork

                peers = PeerNetwork(running.driver, options.ensemble, options.security, running.log)
                self._peers = running.world.peers = peers
                quorums = running.member.state.quorums
                await when_resolved(lambda: peers.start(quorums), running.wait_for_name)
        except OSError:
            await self._listeners.close()
            self._release_store()
            raise
        running.port = self._listeners.port or 0
        running.secure_port = self._listeners.secure_port
        loop.set_exception_handler(self._on_exception)
        running.is_loaded = running.is_up = True
        running.driver.start()
        self._report()
        if running.is_serving:
            zxid = format_zxid(running.replica.tree.last_zxid)
            running.log.info("serving", address=options.host, port=running.port, zxid=zxid)
        else:
            # A member says so itself when there is a leader and clients are let in.
            running.log.info("listening", address=options.host, port=running.port)
        self._log_retention()
        if self._audit is not None:
            self._audit.server_started()

    def _log_adopted(self, recovery: Recovery) -> None:
        """Log that another program's files were verified and adopted."""
        self.running.log.info(
            "adopted",
            directory=self.running.options.data_dir,
            standing=recovery.standing.value,
            zxid=format_zxid(recovery.head),
            records=recovery.records,
            reason="no manifest of Keepfast describes these files: all of them were read",
        )

    def _log_retention(self) -> None:
        """Log what is purged automatically: nobody should learn that from a missing file."""
        kept = self.running.options.retain_snapshots
        if kept:
            self.running.log.info(
                "retention", snapshots=kept, reason="older ones go, with their logs"
            )
        else:
            self.running.log.info(
                "retention", snapshots="all", reason="autopurge.purgeInterval is 0"
            )

    def _make_driver(
        self,
        loop: asyncio.AbstractEventLoop,
        tree: Tree | None,
        replica: ReplicaOptions,
        held: SharedSecret | None,
    ) -> None:
        running = self.running
        options = running.options
        running.world = world = AsyncioWorld(loop, running.log, self._audit, self._over)
        world.secret_file = os.path.join(options.data_dir, SECRET_NAME)
        now_ms = monotonic_ms()
        running.replica = Replica(tree, replica, now_ms, world.wall_ms(), make_nonce=_nonce)
        if options.ensemble is not None:
            running.member = Member(
                running.replica,
                options.ensemble.membership,
                options.ensemble.quorum,
                msgspec.structs.replace(store_facts(running.store, running.recovery), secret=held),
                lambda: secrets.token_hex(16),
            )
        cadence = CadenceOptions(
            options.snapshot_every, options.snapshot_every_bytes, options.snapshot_every_percent
        )
        running.core = ServerCore(
            running.replica,
            running.member,
            SnapshotCadence(cadence, random.randrange),
            world.turn_time(),
        )
        running.driver = ServerLoop(
            running.core,
            running.store,
            world,
            running.statistics,
            options.retain_snapshots,
        )
        self.gate = ClientPort(
            running.driver,
            world.clients,
            world.leaving,
            options,
            running.log,
            running.statistics,
            lambda data: answer(running, data),
            lambda: self.admin_url,
        )

    def _tree_of(self, store: Store, recovery: Recovery) -> Tree | None:
        """The tree to serve immediately; None: the ensemble decides."""
        if self.running.options.ensemble is not None:
            return None
        if recovery.standing is Standing.EMPTY and recovery.epochs.current is None:
            return store.initialise()
        if recovery.tree is None or recovery.standing is Standing.DAMAGED:
            store.close()
            raise NotWholeError(recovery)
        return recovery.tree

    @property
    def admin_url(self) -> str | None:
        """Where the admin server's commands are; None: nowhere."""
        return None if self.admin is None else self.admin.url

    async def wait_failed(self) -> Failure:
        """Wait until the server fails; it must be stopped then."""
        return await self._failed

    async def stop(self) -> None:
        """Close all connections, make everything durable, release the directory."""
        running = self.running
        running.is_up = False
        if self._audit is not None:
            self._audit.server_stops()
        await self._listeners.close()
        if self._peers is not None:
            await self._peers.stop()
        self._reports.cancel()
        clients = running.world.clients
        for protocol in (*clients.values(), *running.world.leaving.values()):
            protocol.close()
        running.driver.stop()
        running.driver.snapshots.abandon()
        for protocol in list(clients.values()):
            if protocol.is_secure:
                # Cancelled; its response to that is not waited for.
                protocol.abort()
        if self.admin is not None:
            await self.admin.stop()
        await self._listeners.wait_closed()
        self._release_store()
        running.log.info("stopped", zxid=format_zxid(running.replica.tree.last_zxid))

    def _release_store(self) -> None:
        running = self.running
        running.world.join_disk()
        try:
            running.store.close()
        except DiskFull as error:
            # Whoever sent the records that still wait was never notified that they are written.
            running.log.warning("waiting-writes-dropped", reason=error)

    # -- failures --------------------------------------------------------------------------------

    def _over(self, failure: Failure) -> None:
        """This process may no longer act on anything in its memory (R7, R14)."""
        running = self.running
        if failure.is_disk:
            running.log.critical("disk-failed", reason=failure.error)
            running.statistics.disk_failures += 1
        else:
            running.log.critical("bug", error=failure.error, reason=failure)
        running.failure = failure
        running.is_up = False
        self.gate.abort_all()
        if not self._failed.done():
            self._failed.set_result(failure)

    def _on_exception(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """What a callback, a task or a protocol of this process raised and nobody caught."""
        error = context.get("exception")
        if isinstance(error, Exception) and not isinstance(error, OSError):
            self.running.driver.guard.fail(error)
        else:
            # An error of the network, or asyncio's own complaint.
            loop.default_exception_handler(context)

    # -- reports ---------------------------------------------------------------------------------

    def _report(self) -> None:
        """Log conditions that persist; called about twice per tick."""
        running = self.running
        interval = max(running.options.replica.tick_ms / 2000, 0.01)
        self._reports = asyncio.get_running_loop().call_later(interval, self._report)
        reason = "" if running.is_serving or not running.is_up else reason_of(running)
        if reason and reason == self._waiting_seen and reason != self._waiting_logged:
            self._waiting_logged = reason
            running.log.warning("not-serving", reason=reason)
        elif not reason:
            self._waiting_logged = ""
        self._waiting_seen = reason
        slowest_ms = running.statistics.take_slowest_sync()
        if slowest_ms is not None:
            running.log.warning("slow-fsync", ms=round(slowest_ms))


def _nonce() -> str:
    return secrets.token_urlsafe(30)
