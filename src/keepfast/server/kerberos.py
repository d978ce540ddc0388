"""SASL GSSAPI (RFC 4752) through the system's Kerberos library; the extra `kerberos`.

    client                                server
    a ticket for the server          ->
                                     <-   its proof, if the client asked for one
    nothing                          ->
                                     <-   signed: the layers of protection that are offered
    signed: a layer, as whom it acts ->
                                     <-   nothing

The only layer is none, as in Apache's servers: what follows is neither signed nor encrypted.

Any call may read files (a keytab, the replay cache) or wait for a KDC: none of them is made on the
loop.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection
from typing import Any, Final

from keepfast.apache import (
    ConfigError,
    KerberosLogin,
    NameRuleError,
    NameRules,
    Principal,
    parse_principal,
)
from keepfast.wire import ErrorCode, KeeperError

# Tickets with the groups of a large directory in them are some 10 KiB.
MAX_TOKEN: Final = 64 << 10
_CONFIG_VARIABLE: Final = "KRB5_CONFIG"
_NO_LAYER: Final = 1
_OFFER: Final = bytes((_NO_LAYER, 0, 0, 0))
_HEAD_BYTES: Final = 4
_MINOR: Final = re.compile(r"Major \(\d+\): (.*?)(?:, Minor \(\d+\): (.*))?", re.DOTALL)
_NO_DETAIL: Final = frozenset((None, "", "Unknown error", "Success"))
_HOST_PATTERN: Final = "_HOST"

# Returns the name of an authenticated principal that wants to act as someone; raises
# NameRuleError if it may not.
Judge = Callable[[str, str], str]


class Realm:
    """The Kerberos library with one configuration file."""

    def __init__(self, config_file: str) -> None:
        """`config_file` empty: the system's own one. Raises ConfigError if it cannot be used."""
        if config_file:
            if not os.access(config_file, os.R_OK):
                raise ConfigError(
                    "cannot be read", key="java.security.krb5.conf", value=config_file
                )
            # The library has no other way to set it. It is read at each call.
            os.environ[_CONFIG_VARIABLE] = config_file
        try:
            import gssapi
        except ImportError as error:
            reason = f"Kerberos needs the packages of keepfast[kerberos]: {error}"
            raise ConfigError(reason) from error
        self._gssapi = gssapi
        self.failure: type[Exception] = gssapi.exceptions.GSSError
        try:
            somebody = gssapi.Name("somebody", gssapi.NameType.user)
            full = str(somebody.canonicalize(gssapi.MechType.kerberos))
        except self.failure as error:
            raise ConfigError(f"Kerberos cannot be used: {reason_of(error)}") from error
        self.default = full.partition("@")[2]

    def principal(self, text: str) -> Principal:
        """The parts of a name, in the default realm unless it says another one."""
        return parse_principal(text if "@" in text else f"{text}@{self.default}")

    def acceptor(self, login: KerberosLogin) -> Any:
        """What tickets for a principal are read with. Raises `failure`."""
        store = {} if login.key_table is None else {"keytab": login.key_table}
        return self._gssapi.Credentials(
            name=self._name(self.principal(login.principal)),
            usage="accept",
            store=store or None,
            mechs=[self._gssapi.MechType.kerberos],
        )

    def new_acceptance(self, login: KerberosLogin) -> Any:
        """The server's side of one exchange. Raises `failure`."""
        # Anew each time: a key table that was renewed counts from now on.
        context = self._gssapi.SecurityContext(creds=self.acceptor(login), usage="accept")
        return _raising(context)

    def new_request(self, login: KerberosLogin, service: Principal) -> Any:
        """The client's side of one exchange. Raises `failure`."""
        gssapi = self._gssapi
        me = self.principal(login.principal)
        if login.ticket_cache is None:
            # The library gets tickets by the key, keeps them in memory and renews them.
            store = {"ccache": f"MEMORY:keepfast-{me}-{login.key_table}"}
            if login.key_table is not None:
                store["client_keytab"] = login.key_table
        else:
            store = {"ccache": login.ticket_cache} if login.ticket_cache else {}
        credentials = gssapi.Credentials(
            name=self._name(me),
            usage="initiate",
            store=store or None,
            mechs=[gssapi.MechType.kerberos],
        )
        flags = gssapi.RequirementFlag
        context = gssapi.SecurityContext(
            name=self._name(service),
            creds=credentials,
            usage="initiate",
            mech=gssapi.MechType.kerberos,
            # The other side has to authenticate, too.
            flags=flags.mutual_authentication | flags.integrity | flags.out_of_sequence_detection,
        )
        return _raising(context)

    def is_anonymous(self, context: Any) -> bool:
        """Whether the other side is anonymous."""
        return self._gssapi.RequirementFlag.anonymity in context.actual_flags

    def check(self, login: KerberosLogin, section: str, file: str) -> None:
        """Check that the key of a section exists, as a start does. Raises ConfigError."""
        try:
            self.principal(login.principal)
            if login.ticket_cache is None:
                self.acceptor(login)
        except NameRuleError as error:
            raise ConfigError(f"section {section}: principal: {error}", file=file) from None
        except self.failure as error:
            table = login.key_table or "the system's key table"
            reason = f"section {section}: no key of {login.principal} in {table}"
            raise ConfigError(f"{reason}: {reason_of(error)}", file=file) from None

    def _name(self, principal: Principal) -> Any:
        # Not "service at host": the library would ask the DNS for another name of that host.
        return self._gssapi.Name(str(principal), self._gssapi.NameType.kerberos_principal)


class GssapiServer:
    """The server's side of one exchange; see `replica.Exchange`."""

    def __init__(self, realm: Realm, login: KerberosLogin, judge: Judge) -> None:
        self._realm = realm
        self._login = login
        self._judge = judge
        self._context: Any = None
        self._has_offered = False
        self._is_over = False
        self.user: str | None = None

    def step(self, token: bytes) -> bytes | None:
        """The answer to a token. Raises KeeperError(AUTH_FAILED) if the client proves nothing."""
        if self._is_over:
            raise _failed("the exchange is over")
        try:
            if len(token) > MAX_TOKEN:
                raise _failed(f"a token of {len(token)} bytes")
            return self._step(token)
        except KeeperError:
            self._is_over = True
            raise
        except self._realm.failure as error:
            self._is_over = True
            raise _failed(reason_of(error)) from None
        except NameRuleError as error:
            self._is_over = True
            raise _failed(str(error)) from None

    def _step(self, token: bytes) -> bytes | None:
        if self._context is None or not self._context.complete:
            if not token:
                raise _failed("a token of Kerberos is wanted, there is none")
            if self._context is None:
                self._context = self._realm.new_acceptance(self._login)
            answer: bytes | None = self._context.step(token)
            if answer or not self._context.complete:
                return answer or b""
        elif self._has_offered:
            self._is_over = True
            self.user = self._accepted(token)
            return None
        self._has_offered = True
        offer: bytes = self._context.wrap(_OFFER, False).message
        return offer

    def _accepted(self, token: bytes) -> str:
        choice = self._context.unwrap(token).message
        if len(choice) < _HEAD_BYTES:
            raise _failed("its choice of protection is cut off")
        if choice[0] != _NO_LAYER:
            raise _failed("auth-int and auth-conf are not offered: use TLS")
        if self._realm.is_anonymous(self._context):
            raise _failed("it is anonymous")
        acts_as = choice[_HEAD_BYTES:].decode("utf-8", "replace")
        return self._judge(str(self._context.initiator_name), acts_as)


class GssapiClient:
    """The client's side of one exchange, with a server of this principal."""

    def __init__(self, realm: Realm, login: KerberosLogin, service: Principal) -> None:
        self._realm = realm
        self._login = login
        self._service = service
        self._context: Any = None
        self.is_complete = False

    def step(self, token: bytes) -> bytes:
        """The next token, after the server's; the first one comes after nothing.

        Raises KeeperError(AUTH_FAILED) if there is no ticket, or the server proves nothing.
        """
        try:
            return self._step(token)
        except self._realm.failure as error:
            reason = f"{self._login.principal} to {self._service}: {reason_of(error)}"
            raise _failed(reason) from None

    def _step(self, token: bytes) -> bytes:
        if self._context is None:
            self._context = self._realm.new_request(self._login, self._service)
        if not self._context.complete:
            return self._context.step(token or None) or b""
        offer = self._context.unwrap(token).message
        if len(offer) < _HEAD_BYTES or not offer[0] & _NO_LAYER:
            raise _failed("the server wants auth-int or auth-conf, which are not spoken here")
        choice: bytes = self._context.wrap(_OFFER, False).message
        self.is_complete = True
        return choice


def _raising(context: Any) -> Any:
    """Raise failures immediately, and not after a token that reports them to the other side."""
    context.__DEFER_STEP_ERRORS__ = False
    return context


def client_judge(rules: NameRules, default_realm: str) -> Judge:
    """Clients are called what the rules make of their principals; as whom they want to act is
    not up to them."""
    return lambda principal, _: rules.name_of(parse_principal(principal), default_realm)


def peer_judge(ours: Collection[Principal], hosts: Collection[str]) -> Judge:
    """Servers of the ensemble: a service and realm of ours, on the host of a member."""
    services = {(one.service, one.realm) for one in ours}
    known = {host.lower() for host in hosts}

    def judge(text: str, acts_as: str) -> str:
        principal = parse_principal(text)
        if acts_as not in ("", text):
            raise NameRuleError(f"{text} wants to act as {acts_as!r}")
        if (principal.service, principal.realm) not in services:
            raise NameRuleError(f"{text} is a principal of the realm, but none of a server")
        is_member = principal in ours if principal.host is None else principal.host.lower() in known
        if not is_member:
            raise NameRuleError(f"{text} is on no host of a server.N line")
        return text

    return judge


def service_at(pattern: str, host: str, realm: Realm, me: Principal) -> Principal:
    """The principal of the server that is dialled; `_HOST` stands for its host."""
    service, _, place = pattern.partition("/")
    if place == _HOST_PATTERN:
        pattern = f"{service}/{host.lower()}"
    return realm.principal(pattern if "@" in pattern else f"{pattern}@{me.realm}")


def reason_of(error: Exception) -> str:
    """The library's reason for a failure, without its numbers."""
    match = _MINOR.fullmatch(str(error))
    if match is None:
        return str(error)
    return match[1] if match[2] in _NO_DETAIL else str(match[2])


def _failed(reason: str) -> KeeperError:
    return KeeperError(ErrorCode.AUTH_FAILED, reason)
