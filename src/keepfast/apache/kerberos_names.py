"""From a Kerberos principal to the name that ACLs hold: Apache's rules (`security.auth_to_local`).

    zookeeper/host.example.org@EXAMPLE.ORG
    service   host             realm

A list of rules shortens the principal to one word, which its host and realm are appended to again
unless `kerberos.removeHostFromPrincipal` and `kerberos.removeRealmFromPrincipal` say otherwise:

    DEFAULT                               the first part, of principals of the default realm
    RULE:[2:$1-$2](regex)s/from/to/g      of principals with two parts, what the format makes of
                                          them, if it matches the regex, after the replacement

A principal that no rule applies to has no name, and is refused.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

_PRINCIPAL: Final = re.compile(r"([^/@\\]+)(?:/([^/@\\]+))?@([^/@\\]+)")
_RULE: Final = re.compile(
    r"\s*(?:(DEFAULT)|RULE:\[(\d*):([^\]]*)\](?:\(([^)]*)\))?(?:s/([^/]*)/([^/]*)/(g)?)?)"
)
_PARAMETER: Final = re.compile(r"\$(\d+)")


class NameRuleError(ValueError):
    """An invalid rule, or a principal to which no rule applies."""


class Principal(NamedTuple):
    """The parts of a name."""

    service: str
    host: str | None
    realm: str

    def __str__(self) -> str:
        return (
            f"{self.service}@{self.realm}"
            if self.host is None
            else "/".join((self.service, f"{self.host}@{self.realm}"))
        )


def parse_principal(text: str) -> Principal:
    """The parts of a full name. Raises NameRuleError, also for names with parts in quotes."""
    match = _PRINCIPAL.fullmatch(text)
    if match is None:
        raise NameRuleError(f"{text!r} is not of the form name@REALM or name/host@REALM")
    return Principal(match[1], match[2], match[3])


class _Rule(NamedTuple):
    # None: DEFAULT.
    parts: int | None
    template: str = ""
    wanted: re.Pattern[str] | None = None
    replaced: re.Pattern[str] | None = None
    replacement: str = ""
    is_global: bool = False


class NameRules:
    """Maps principals to names."""

    def __init__(self, text: str, *, keeps_host: bool, keeps_realm: bool) -> None:
        """Raises NameRuleError if `text` is no list of rules."""
        self._rules = _parse(text)
        self._keeps_host = keeps_host
        self._keeps_realm = keeps_realm

    def name_of(self, principal: Principal, default_realm: str) -> str:
        """The name of a principal. Raises NameRuleError if no rule applies to it."""
        name = self._short(principal, default_realm)
        if self._keeps_host and principal.host is not None:
            name += f"/{principal.host}"
        return f"{name}@{principal.realm}" if self._keeps_realm else name

    def _short(self, principal: Principal, default_realm: str) -> str:
        service, host, realm = principal
        parts = [realm, service] if host is None else [realm, service, host]
        for rule in self._rules:
            if rule.parts is None:
                found = service if realm == default_realm else None
            else:
                found = _applied(rule, parts)
            if found is not None:
                if not found or "/" in found or "@" in found:
                    raise NameRuleError(f"a rule makes {found!r} of {principal}: not a name")
                return found
        raise NameRuleError(f"no rule of security.auth_to_local applies to {principal}")


def _applied(rule: _Rule, parts: list[str]) -> str | None:
    if len(parts) - 1 != rule.parts:
        return None
    base = _PARAMETER.sub(lambda match: parts[int(match[1])], rule.template)
    if rule.wanted is not None and rule.wanted.fullmatch(base) is None:
        return None
    if rule.replaced is None:
        return base
    return rule.replaced.sub(rule.replacement, base, count=0 if rule.is_global else 1)


def _parse(text: str) -> list[_Rule]:
    rules, position, text = [], 0, text.strip()
    while position < len(text):
        match = _RULE.match(text, position)
        if match is None:
            raise NameRuleError(f"not a rule: {text[position:]!r}")
        rules.append(_rule(match))
        position = match.end()
    return rules


def _rule(match: re.Match[str]) -> _Rule:
    default, count, template, wanted, replaced, replacement, is_global = match.groups()
    if default is not None:
        return _Rule(None)
    parts = int(count or 0)
    if any(int(number) > parts for number in _PARAMETER.findall(template)):
        raise NameRuleError(f"there is no such part of a principal: {template!r}")
    try:
        return _Rule(
            parts,
            template,
            None if wanted is None else re.compile(wanted),
            None if replaced is None else re.compile(replaced),
            # Java writes groups as $1.
            re.sub(r"\$(\d)", r"\\\1", (replacement or "").replace("\\", "\\\\")),
            is_global is not None,
        )
    except re.error as error:
        raise NameRuleError(f"not a regular expression: {error}") from error
