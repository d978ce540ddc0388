"""DIGEST-MD5: judged by exchanges recorded from Apache 3.9.5 and by another implementation."""

from __future__ import annotations

from typing import NamedTuple

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from puresasl.client import SASLClient

from keepfast.replica.sasl import DigestMd5
from keepfast.wire import ErrorCode, KeeperError

USERS = {"bob": "secret", "jörg": "päss", "漢": "字", "quo": 'a"b\\c'}
NONCE = "/fwIzA5dZweozNdzcDIL3w7EXL7gbBjQ0bPDyi+q"
_FORM = (
    'charset=utf-8,username="{user}",realm="zk-sasl-md5",nonce="{nonce}",cnonce="abc",'
    'nc=00000001,qop=auth,digest-uri="zookeeper/zk-sasl-md5",response={response}'
)


class Recorded(NamedTuple):
    """What Apache was sent and accepted, and what it answered."""

    user: str
    nonce: str
    response: str
    answer: str
    form: str = _FORM

    @property
    def token(self) -> bytes:
        return self.form.format(**self._asdict()).encode()


RECORDED = {
    "plain": Recorded(
        "bob", NONCE, "b42f8937578994de629ba2e01b6bc065", "27fa17fbf41a3dbb82d9c65904bd3253"
    ),
    "hashed as ISO 8859-1": Recorded(
        "jörg",
        "OGYxxsiDIwGfq1LSM4Zlp118zm+iQXkylcVQpRFm",
        "972a3b76c60ff7d684c1211fb435fcce",
        "58bad2dca28e423235dc3846e588fa9d",
    ),
    "not in ISO 8859-1": Recorded(
        "漢",
        "mJ+yoHBhfMc7Fn6V+LGH2dzzae6GPQGR/fkHJnn9",
        "1c47ea33f6d2e0149fc7bafdf5370800",
        "d649eb956f6d45b522dfd5f2be690689",
    ),
    "quotes in the password": Recorded(
        "quo",
        "rh1aoSF4ML2/cym8sy8fgVos5ClWKz1d18vkA+ys",
        "7670bc4be45e43310555764569e46fb5",
        "1232df8d847cbf2b6af75e0265252876",
    ),
    "another case of the uri": Recorded(
        "bob",
        "LG/6x2GscJXu4+o9j7D5OmiegpuziJltUSxwUll+",
        "13f43a12e3ddbad82ca52ae4733ad5bb",
        "0cdde3f633fdef2627acbc2101efc674",
        _FORM.replace("zookeeper/zk", "ZooKeeper/ZK"),
    ),
    "neither qop nor charset": Recorded(
        "bob",
        "Lr+kSltmV90FxGZY8Va5WOUqtdi52DkLevm3bJT0",
        "db1ece0c634caffa527751c4bfa1b7a8",
        "a1e3dae7d7f7e11dcd4318ea8e85df7f",
        _FORM.replace("charset=utf-8,", "").replace("qop=auth,", ""),
    ),
    "wants to act as another user": Recorded(
        "bob",
        "phFoQRNDwNIIwctIw210ETR+KmYIYfh+OmPEkyJB",
        "0b65456f93969985a653226cee457798",
        "b19cf884a02a38dc231b28be609efe13",
        _FORM + ',authzid="super"',
    ),
}
RESPONSE = RECORDED["plain"].token


def challenged(nonce: str = NONCE) -> DigestMd5:
    exchange = DigestMd5(USERS, nonce)
    exchange.step(b"")
    return exchange


def test_challenge__is_apaches() -> None:
    assert DigestMd5(USERS, NONCE).step(b"") == (
        b'realm="zk-sasl-md5",nonce="/fwIzA5dZweozNdzcDIL3w7EXL7gbBjQ0bPDyi+q",charset=utf-8,'
        b"algorithm=md5-sess"
    )


@pytest.mark.parametrize("name", RECORDED)
def test_recorded_exchange__gives_apaches_answer(name: str) -> None:
    recorded = RECORDED[name]
    exchange = challenged(recorded.nonce)
    assert exchange.step(recorded.token) == f"rspauth={recorded.answer}".encode()
    # Whoever it wants to act as, it is who it proved to be.
    assert exchange.user == recorded.user


@pytest.mark.parametrize("user", USERS)
def test_another_implementation__agrees(user: str) -> None:
    exchange = DigestMd5(USERS, NONCE)
    client = SASLClient(
        "zk-sasl-md5",
        service="zookeeper",
        mechanism="DIGEST-MD5",
        username=user,
        password=USERS[user],
    )
    assert client.process(None) is None
    response = client.process(exchange.step(b""))
    # It checks our proof, too, and raises if that does not fit.
    assert client.process(exchange.step(response)) is None
    assert client.complete
    assert exchange.user == user


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        (b"b42f", b"b42e", "wrong password for 'bob'"),
        (b"b42f8937", b"B42F8937", "wrong password for 'bob'"),
        (b'username="bob"', b'username="zed"', "no user 'zed'"),
        (b'username="bob",', b"", "no username"),
        (b'username="bob"', b'username="\xff"', "username is not UTF-8"),
        (b'realm="zk-sasl-md5"', b'realm="x"', "realm is 'x'"),
        (b'realm="zk-sasl-md5",', b"", "no realm"),
        (b'nonce="/fw', b'nonce="/fx', "nonce is"),
        (b'cnonce="abc",', b"", "no cnonce"),
        (b"nc=00000001", b"nc=00000002", "nc is '00000002'"),
        (b"qop=auth", b"qop=auth-conf", "qop is 'auth-conf'"),
        (b"charset=utf-8", b"charset=latin1", "charset is 'latin1'"),
        (b"zookeeper/zk", b"zookeeper/xk", "digest-uri is"),
        (b"nc=00000001", b"nc=00000001,nc=00000002", "nc is given twice"),
        (b'"bob"', b'"bob', "not a digest response from byte"),
        (b"qop=auth", b"junk", "not a digest response from byte"),
        (b"charset=utf-8", b"x=" + b"y" * 4096, "a response of 42"),
    ],
)
def test_wrong_response__fails_and_says_why(old: bytes, new: bytes, reason: str) -> None:
    assert old in RESPONSE
    exchange = challenged()
    with pytest.raises(KeeperError, match=reason) as error:
        exchange.step(RESPONSE.replace(old, new))
    assert error.value.code is ErrorCode.AUTH_FAILED
    assert exchange.user is None


def test_second_attempt_on_one_nonce__fails_even_if_it_is_right() -> None:
    exchange = challenged()
    with pytest.raises(KeeperError):
        exchange.step(b"")
    with pytest.raises(KeeperError, match="the exchange is over"):
        exchange.step(RESPONSE)
    assert exchange.user is None


def test_token_behind_the_end__fails() -> None:
    exchange = challenged()
    exchange.step(RESPONSE)
    with pytest.raises(KeeperError, match="the exchange is over"):
        exchange.step(b"")


def test_spaces_and_unknown_directives__do_not_matter() -> None:
    response = RESPONSE.replace(b",", b" ,\t ") + b' , something="else, and \\"more\\"",,'
    assert challenged().step(response) == b"rspauth=27fa17fbf41a3dbb82d9c65904bd3253"


@given(
    st.binary(max_size=200)
    | st.builds(lambda cut, end: RESPONSE[:cut] + end, st.integers(0, 250), st.binary(max_size=9))
)
def test_arbitrary_response__is_refused_and_nothing_else(token: bytes) -> None:
    # Commas and spaces around the right directives say nothing else.
    assume(token.strip(b", \t\r\n") != RESPONSE)
    exchange = challenged()
    with pytest.raises(KeeperError):
        exchange.step(token)
    assert exchange.user is None
