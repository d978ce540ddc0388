"""Viewers: a session with the ensemble per login, acting with that login's rights.

ZooKeeper's own credentials are the login: `digest` or SASL. The digest scheme takes any password
and only decides what it opens, so that a login counts as one if it may read a znode that the
operator named (`--login-znode`) and that others may not read. Its ACL is the list of users.
"""

from __future__ import annotations

import hmac
import secrets
import threading
import time
from dataclasses import dataclass, field
from typing import Final

from keepfast.client import Client, OperationFailed, Target
from keepfast.console.console_options import ConsoleOptions, ConsoleRefused
from keepfast.console.ensemble_session import Credential, EnsembleSession
from keepfast.replica import digest_id
from keepfast.tree import is_allowed
from keepfast.wire import AclList, ErrorCode, Id, Perms

_TOKEN_BYTES: Final = 32
# A login that was idle for this long ends.
_IDLE_SECONDS: Final = 30 * 60.0
_MAX_VIEWERS: Final = 100
# Failed logins of all users together, per minute: guessing passwords takes forever.
_MAX_FAILURES: Final = 20
_FAILURE_SECONDS: Final = 60.0


class LoginRefused(ConsoleRefused):
    """The login is not accepted."""


@dataclass(slots=True)
class Viewer:
    """A viewer, and what their requests have to carry."""

    name: str
    session: EnsembleSession
    # None: whoever runs the console, who can read the files anyway.
    ids: tuple[Id, ...] | None
    csrf_token: str = field(default_factory=lambda: secrets.token_urlsafe(_TOKEN_BYTES))
    used_s: float = field(default_factory=time.monotonic)
    # Logged out, or idle for too long: nothing more is shown, also on streams that are open.
    is_over: bool = False

    @property
    def owner(self) -> str:
        """Whose changes theirs are: the digest scheme takes any password for a name."""
        return " ".join(f"{one.scheme}:{one.id}" for one in self.ids or ())

    def client(self) -> Client:
        """A client with this viewer's rights."""
        return self.session.client()

    def has_token(self, given: str) -> bool:
        """Whether a request comes from a page that this console served."""
        return hmac.compare_digest(given.encode(), self.csrf_token.encode())

    def may_read(self, acl: AclList | None) -> bool:
        """Whether a znode in the servers' files may be shown, by the ACL that it had then.

        None: its ACL is not known, so only to whoever can read the files anyway.
        """
        return self.ids is None or (acl is not None and is_allowed(acl, Perms.READ, self.ids))


class Viewers:
    """Everybody who is logged in; without a login, one viewer for all."""

    def __init__(self, options: ConsoleOptions, anonymous: EnsembleSession) -> None:
        self._options = options
        self._target = options.target
        self._anonymous = Viewer("", anonymous, None)
        self._logins: dict[str, Viewer] = {}
        self._failures: list[float] = []
        self._lock = threading.Lock()

    def find(self, token: str) -> Viewer | None:
        """Whose cookie this is; without one, the viewer for all, if nobody has to log in."""
        self._forget_idle()
        with self._lock:
            viewer = self._logins.get(token)
        if viewer is not None:
            viewer.used_s = time.monotonic()
            return viewer
        return None if self._options.needs_login else self._anonymous

    def log_in(self, credential: Credential) -> tuple[str, Viewer]:
        """Try a login; returns the cookie's value. Raises LoginRefused or OperationFailed."""
        self._forget_idle()
        with self._lock:
            self._refuse_guessing()
            if len(self._logins) >= _MAX_VIEWERS:
                raise LoginRefused("too many people are logged in; try again later")
        if self._options.login_znode:
            self.check_login_znode()
        session = EnsembleSession(Target(self._target.addresses), credential)
        try:
            ids = self._checked(session.client(), credential)
        except OperationFailed as error:
            session.close()
            if error.is_connection_failure:
                raise
            with self._lock:
                self._failures.append(time.monotonic())
            raise LoginRefused("this user and password are not accepted") from error
        viewer = Viewer(f"{credential.scheme}:{credential.user}", session, ids)
        token = secrets.token_urlsafe(_TOKEN_BYTES)
        with self._lock:
            self._logins[token] = viewer
        return token, viewer

    def log_out(self, token: str) -> None:
        """End a login and its session."""
        with self._lock:
            viewer = self._logins.pop(token, None)
        if viewer is not None:
            viewer.is_over = True
            viewer.session.close()

    def close(self) -> None:
        """End all of them."""
        for token in list(self._logins):
            self.log_out(token)
        self._anonymous.session.close()

    def check_login_znode(self) -> None:
        """Raise ConsoleRefused if everybody may read the znode that decides on logins."""
        path = self._options.login_znode
        try:
            self._anonymous.client().get_data(path)
        except OperationFailed as error:
            if error.code is ErrorCode.NO_AUTH:
                return
            if error.code is ErrorCode.NO_NODE:
                raise ConsoleRefused(
                    f"there is no znode {path}: create it with an ACL of those who may log in"
                ) from error
            raise ConsoleRefused(f"{path} cannot be asked for: {error}") from error
        raise ConsoleRefused(
            f"everybody may read {path}, so that anybody could log in; give it an ACL of those who "
            "may: keepfast shell setAcl"
        )

    def _checked(self, client: Client, credential: Credential) -> tuple[Id, ...]:
        """Who a client is, once it has shown that it may log in."""
        client.wait_connected()
        if self._options.login_znode:
            client.get_data(self._options.login_znode)
        ids = [Id(one.auth_scheme, one.user) for one in client.who_am_i()]
        if credential.scheme == "digest":
            # A server reports the name alone; ACLs hold it with its hash.
            ids.append(Id("digest", digest_id(credential.secret)))
        return tuple(ids)

    def _refuse_guessing(self) -> None:
        now = time.monotonic()
        self._failures = [one for one in self._failures if now - one < _FAILURE_SECONDS]
        if len(self._failures) >= _MAX_FAILURES:
            raise LoginRefused("too many logins failed; wait a minute")

    def _forget_idle(self) -> None:
        now = time.monotonic()
        with self._lock:
            idle = [t for t, one in self._logins.items() if now - one.used_s > _IDLE_SECONDS]
        for token in idle:
            self.log_out(token)
