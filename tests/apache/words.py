"""Four-letter words: what a server says about itself on its client port, parsed."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable


class NotReadyError(Exception):
    """A condition did not come true in time; the text says which."""


def ask(port: int, word: str, *, timeout: float = 60) -> str:
    """Send a four-letter word to a server of this machine and return its whole answer.

    A busy server of Apache's was seen to reset the connection instead: it is asked again.
    """
    deadline = time.monotonic() + timeout
    while True:
        try:
            return _ask_once(port, word, timeout)
        except ConnectionResetError:
            if time.monotonic() > deadline:
                raise


def _ask_once(port: int, word: str, timeout: float) -> str:
    with socket.create_connection(("127.0.0.1", port), timeout) as connection:
        connection.sendall(word.encode())
        parts = []
        while chunk := connection.recv(1 << 16):
            parts.append(chunk)
    return b"".join(parts).decode()


def wait_until(condition: Callable[[], bool], what: str, *, timeout: float = 120) -> None:
    """Poll `condition` until it holds; NotReadyError, with `what`, when `timeout` has passed."""
    deadline = time.monotonic() + timeout
    while not condition():
        if time.monotonic() > deadline:
            raise NotReadyError(f"not in {timeout:g} s: {what}")
        time.sleep(0.02)


def serving_mode(port: int) -> str | None:
    """`standalone`, `leader`, `follower` or `observer`; None while the server does not serve."""
    try:
        # A server that is about to serve may take the word and never answer: ask again soon.
        answer = ask(port, "srvr", timeout=1)
    except OSError:
        return None
    return _field(answer, "Mode: ")


def last_zxid(port: int) -> int:
    """The last zxid that the server has applied."""
    text = _field(ask(port, "srvr"), "Zxid: ")
    if text is None:
        raise NotReadyError(f"the server on port {port} does not serve")
    return int(text, 16)


def monitor(port: int) -> dict[str, str]:
    """`mntr`: every metric by its name without the leading `zk_`."""
    lines = (line.partition("\t") for line in ask(port, "mntr").splitlines())
    return {name.removeprefix("zk_"): value for name, _, value in lines}


def sessions(port: int) -> dict[int, set[str]]:
    """`dump` of a standalone server or a leader: the live sessions and the ephemerals of each."""
    found: dict[int, set[str]] = {}
    section = ""
    owner = 0
    for line in ask(port, "dump").splitlines():
        if line.endswith(":") and not line.startswith(("\t", "0x")):
            section = line
        elif section.startswith("Connections"):
            break
        elif line.startswith("0x"):
            owner = int(line.rstrip(":"), 16)
            found.setdefault(owner, set())
        elif line.startswith("\t0x"):
            found.setdefault(int(line, 16), set())
        elif line.startswith("\t/"):
            found[owner].add(line[1:])
    return found


def history_of_digests(port: int) -> dict[int, int]:
    """`hash`: the tree digest, unsigned, after each recent zxid that is a multiple of 128."""
    pairs = (line.split(": ") for line in ask(port, "hash").splitlines() if ": " in line)
    return {int(zxid, 16): int(digest) % (1 << 64) for zxid, digest in pairs}


def _field(text: str, label: str) -> str | None:
    for line in text.splitlines():
        if line.startswith(label):
            return line.removeprefix(label)
    return None
