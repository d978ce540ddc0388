"""Bugs that the product once had outside the order of txns: in sessions, disks and tools.

Each is planted as in `bugs.py`, by taking its mending back. One is not here: a second server with
another data directory on the same log directory. What keeps it out is a lock of the kernel's, so
that takes real processes (tests/storage/test_locks.py).
"""

from __future__ import annotations

from tests.sim.bugs import Bug, Change

PRODUCT_BUGS = (
    Bug(
        "repaired server votes",
        (
            Change(
                "keepfast.storage.repair",
                "plan_repair",
                "if before.standing is not Standing.WHOLE and",
                "if False and",
            ),
        ),
    ),
    Bug(
        "leader with a hung disk stays",
        (
            Change(
                "keepfast.quorum.stall_watch",
                "StallWatch.is_stalled",
                "return self._oldest >= 0",
                "return False",
            ),
        ),
    ),
    Bug(
        "local session forgotten while it is upgraded",
        (
            Change(
                "keepfast.replica.handshake",
                "Handshake.upgrade",
                "self._upgrading.add(connection.session_id)",
                "self.local.forget(connection.session_id)",
            ),
        ),
    ),
    Bug(
        "sync without a quorum",
        (
            Change(
                "keepfast.quorum.confirmations",
                "Confirmations.ask",
                "followers = self._followers()",
                "followers = self._followers()\n    return self.last",
            ),
        ),
    ),
    Bug(
        "expired without a quorum",
        (
            Change(
                "keepfast.replica.handshake",
                "Handshake._reconnect",
                "round_ = 0 if self.confirmations is None else self.confirmations.ask()",
                "round_ = 0",
            ),
            Change(
                "keepfast.replica.learner_desk",
                "LearnerDesk._judge_session",
                "self._leader.confirmations.ask()",
                "0",
            ),
        ),
    ),
    Bug(
        "epoch kept when the history is replaced",
        (
            Change(
                "keepfast.storage.epochs",
                "Epochs.after_promise",
                "min(agreed, promised)",
                "min(agreed, accepted)",
            ),
            Change(
                "keepfast.replica.member",
                "Member.disk_done",
                "min(max(agreed, 0), order.promised)",
                "min(max(agreed, 0), self.state.accepted_epoch)",
            ),
        ),
    ),
    Bug(
        "state not compared before it is served",
        (
            Change(
                "keepfast.replica.following",
                "Following._compare",
                "if applied == expected.zxid and not is_same:",
                "if False:",
            ),
        ),
    ),
    Bug(
        "identity of a term that never was",
        (
            Change(
                "keepfast.replica.following",
                "Following._known_ensemble",
                "return state.ensemble if is_agreed else None",
                "has_records = state.tree is not None and state.tree.last_zxid > 0\n"
                "    return state.ensemble if has_records else None",
            ),
        ),
    ),
    Bug(
        "lost manifest, and nobody asks the witness",
        (
            Change(
                "keepfast.storage.recovery",
                "_check_against_watermark",
                "is_short = result.tree is not None and result.head < known",
                "is_short = False",
            ),
        ),
    ),
    Bug(
        "read-only mode shows the whole log",
        (
            Change(
                "keepfast.replica.member",
                "Member._consider_log",
                "    except MalformedRecord as error:",
                "        self._left_over.apply(self.state.tree)\n"
                "    except MalformedRecord as error:",
            ),
        ),
    ),
    Bug(
        "no start on a full disk",
        (
            Change(
                "keepfast.storage.store",
                "Store.open",
                "with contextlib.suppress(DiskFull):",
                "with contextlib.nullcontext():",
            ),
        ),
    ),
    Bug(
        "failure of the idle fsync ignored",
        (
            Change(
                "keepfast.driver.loop",
                "ServerLoop._tick",
                "self.disk.confirm()",
                "self.disk.store.confirm()",
            ),
            Change(
                "keepfast.driver.loop",
                "ServerLoop._wake",
                "self.run(self._on_time)",
                "try:\n"
                "        self.core.set_clock(self._look(), self._world.wall_ms())\n"
                "        self._on_time()\n"
                "        self.end_turn()\n"
                "    except StorageError:\n"
                "        return  # a task that is over, and nobody looks",
            ),
        ),
    ),
    Bug(
        "TRUNC to a server of Apache's",
        (
            Change(
                "keepfast.quorum.planner",
                "plan_catch_up",
                "if learner.chain is None and is_tree_safe(learner, committed):",
                "if False:",
            ),
        ),
    ),
    Bug(
        "read that waits shows the write after it",
        (
            Change(
                "keepfast.replica.commits",
                "_send_overdue",
                "send_overdue(service, connection)",
                "pass",
            ),
        ),
    ),
    Bug(
        "fenced server purges",
        (
            Change(
                "keepfast.driver.loop",
                "ServerLoop.purge_to",
                "if self.core.may_purge else ()",
                "if True else ()",
            ),
        ),
    ),
    Bug(
        "snapshot shows what was written while it was taken",
        (
            Change(
                "keepfast.tree.tree",
                "Tree.take_data",
                "if own is not None:",
                "if False:",
            ),
            Change(
                "keepfast.tree.tree",
                "Tree.set_data",
                "if own is not None:",
                "if False:",
            ),
        ),
    ),
    Bug(
        "txn larger than servers can read",
        (
            Change(
                "keepfast.replica.proposer",
                "Proposer._check_size",
                "if len(data) > self._max_txn_bytes:",
                "if False:",
            ),
        ),
    ),
    Bug(
        "refused txn is not taken back",
        (
            Change(
                "keepfast.replica.proposer",
                "Proposer._check_size",
                "self._preparer.take_back(zxid, digest)",
                "pass",
            ),
        ),
    ),
    Bug(
        "stream ends where the peer stops reading",
        (
            Change(
                "keepfast.driver.peer_streams",
                "PeerSender._take",
                "self._resume = lambda: self._read(pieces)",
                "self._resume = self._pump",
            ),
        ),
    ),
    Bug(
        "leader commits what it has not stored itself",
        (
            Change(
                "keepfast.quorum.acknowledged",
                "agreed_point",
                "for zxid in sorted({min(acked, own) for acked in acks.values()}, reverse=True):",
                "for zxid in sorted(set(acks.values()), reverse=True):",
            ),
        ),
    ),
    Bug(
        "session stays at the server that its client has left",
        (
            Change(
                "keepfast.replica.proposer",
                "Proposer.revalidate",
                "    self.owners[session_id] = server_id\n",
                "",
            ),
        ),
    ),
    Bug(
        "proposals overtake a stream that waits",
        (
            Change(
                "keepfast.driver.peer_streams",
                "PeerSender.send",
                "if not self._must_wait:",
                "if not self._must_wait or self._resume is not None:",
            ),
        ),
    ),
    Bug(
        # A client that moves to a server without the secret loses its session.
        "session secret used before all have it",
        (
            Change(
                "keepfast.replica.secret_exchange",
                "SecretExchange.lead",
                "self._hold(SharedSecret(self._new_secret()))",
                "self._hold(SharedSecret(self._new_secret(), self._service.wall_ms))",
            ),
        ),
    ),
    Bug(
        "last piece of what a learner sent is forgotten",
        (
            Change(
                "keepfast.driver.learner_reader",
                "LearnerReader._next",
                "if piece:",
                "if len(piece) == self._turn_bytes:",
            ),
        ),
    ),
    Bug(
        # A learner does not know what was asked for elsewhere.
        "other servers' writes are audited",
        (
            Change(
                "keepfast.replica.audit",
                "_records",
                "elif proposal.entry.header.session_id and not is_of_client:",
                "elif False:",
            ),
        ),
    ),
)
