"""What Kerberos principals are called."""

from __future__ import annotations

import pytest

from keepfast.apache import NameRuleError, NameRules, parse_principal

REALM = "HERE.ORG"


def name(principal: str, rules: str = "DEFAULT", *, host: bool = False, realm: bool = False) -> str:
    found = NameRules(rules, keeps_host=host, keeps_realm=realm)
    return found.name_of(parse_principal(principal), REALM)


@pytest.mark.parametrize(
    ("host", "realm", "expected"),
    [
        (True, True, "zk/h1@HERE.ORG"),
        (False, True, "zk@HERE.ORG"),
        (True, False, "zk/h1"),
        (False, False, "zk"),
    ],
)
def test_default_rule__takes_the_first_part(host: bool, realm: bool, expected: str) -> None:
    assert name("zk/h1@HERE.ORG", host=host, realm=realm) == expected


@pytest.mark.parametrize(
    ("principal", "rules", "expected"),
    [
        ("ann@HERE.ORG", "RULE:[1:$1@$0](.*@HERE.ORG)s/@.*// DEFAULT", "ann"),
        ("ann@OTHER.ORG", "RULE:[1:$1-$0](.*OTHER.ORG)s/[.]ORG// DEFAULT", "ann-OTHER"),
        ("ann@HERE.ORG", "RULE:[1:$1-$0](.*OTHER.ORG)s/[.]ORG// DEFAULT", "ann"),
        ("nn/h1@HERE.ORG", "RULE:[2:$1-$2](nn-.*)s/([a-z]+)-(.*)/$2-$1/", "h1-nn"),
        ("aaa@HERE.ORG", "RULE:[1:$1]s/a/b/", "baa"),
        ("aaa@HERE.ORG", "RULE:[1:$1]s/a/b/g", "bbb"),
    ],
)
def test_rules__are_tried_in_order(principal: str, rules: str, expected: str) -> None:
    assert name(principal, rules) == expected


@pytest.mark.parametrize(
    ("principal", "rules"),
    [
        ("ann@OTHER.ORG", "DEFAULT"),
        ("ann@HERE.ORG", ""),
        ("ann@HERE.ORG", "RULE:[2:$1]"),
        ("ann@HERE.ORG", "RULE:[1:$1@$0]"),
        ("ann@HERE.ORG", "RULE:[1:$1]s/ann//"),
        ("ann", "DEFAULT"),
        ("a/b/c@HERE.ORG", "DEFAULT"),
        ("super\\@evil@HERE.ORG", "DEFAULT"),
        ("@HERE.ORG", "DEFAULT"),
    ],
)
def test_principal_without_a_name__is_refused(principal: str, rules: str) -> None:
    with pytest.raises(NameRuleError):
        name(principal, rules)


@pytest.mark.parametrize("rules", ["oops", "RULE:[1:$2]", "RULE:[1:$1](*)", "DEFAULT oops"])
def test_what_is_no_rule__is_refused(rules: str) -> None:
    with pytest.raises(NameRuleError):
        NameRules(rules, keeps_host=True, keeps_realm=True)
