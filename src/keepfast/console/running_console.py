"""What a console watches and keeps; all requests work on it."""

from __future__ import annotations

import asyncio

from keepfast.console.audit_jobs import Proofs
from keepfast.console.change_log import ChangeLog
from keepfast.console.children_cache import ChildrenCache
from keepfast.console.console_options import ConsoleOptions
from keepfast.console.ensemble_overview import overview_of
from keepfast.console.ensemble_session import EnsembleSession
from keepfast.console.hub import Hub
from keepfast.console.page_changes import Changes
from keepfast.console.past import Past
from keepfast.console.server_watching import EnsembleWatch, Picture
from keepfast.console.session_list import SessionList
from keepfast.console.txn_feed import Feed
from keepfast.console.viewers import Viewers


class Console:
    """Everything that requests need; started and stopped with the web server."""

    def __init__(self, options: ConsoleOptions) -> None:
        """Nothing is asked yet."""
        self.options = options
        self.hub = Hub()
        self.children_cache = ChildrenCache()
        self._session = EnsembleSession(options.target)
        self.viewers = Viewers(options, self._session)
        self.changes = Changes()
        self.change_log = ChangeLog(options.audit_log)
        self.sessions = SessionList()
        self.past = Past(options.places) if options.places else None
        self.proofs: Proofs | None = None
        if options.places:
            self.proofs = Proofs(self.hub, options.places, options.audits_dir, options.master)
        self.feed = Feed(self.hub, self.past, options.target)
        self.watch = EnsembleWatch(
            options.target.addresses, self._session, self._on_round, options.interval_s
        )

    @property
    def connect_text(self) -> str:
        """What a client connects to."""
        names = ",".join(map(str, self.watch.addresses))
        return names + self.options.target.chroot

    async def start(self) -> None:
        """Begin to watch."""
        self.hub.attach(asyncio.get_running_loop())
        self.watch.start()

    async def stop(self) -> None:
        """Let go of the ensemble."""
        self.hub.close()
        if self.proofs is not None:
            await asyncio.to_thread(self.proofs.close)
        await asyncio.to_thread(self.feed.stop)
        await asyncio.to_thread(self.watch.stop)
        await asyncio.to_thread(self.viewers.close)

    def look(self, change: int, *, wants_feed: bool) -> None:
        """A page was opened (+1) or closed (-1)."""
        self.watch.look(change)
        if wants_feed:
            self.feed.look(change)

    def _on_round(self, picture: Picture) -> None:
        local = {} if self.past is None else self.past.local_facts(picture.servers)
        self.hub.publish("overview", overview_of(picture, self.connect_text, local))
