"""What strangers can send, each as a function of bytes: an error of its own kind, or none.

A target raises only what its callers expect of bad input; everything else is a finding.
"""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
from collections.abc import Callable
from hashlib import sha1
from pathlib import Path
from typing import Any, Final

from keepfast.apache import ConfigError, KeyStore, TlsConfig, load_identity, load_trust
from keepfast.apache.config_sources import parse_text, without_secrets
from keepfast.apache.jaas import parse_jaas
from keepfast.quorum import Candidacy, Election, Link, decode_offer, decode_receipt
from keepfast.quorum.hello import decode_epoch_ack, decode_leader_hello, decode_learner_hello
from keepfast.quorum.membership import parse_membership
from keepfast.quorum.plausibility import MAX_HELLO_BYTES
from keepfast.server.http import HttpRequest, HttpResponse, HttpServer
from keepfast.server.session_secret import SECRET_NAME, held_secret, write_secret
from keepfast.server.web_guard import WebGuard
from keepfast.sim.memory_disk import MemoryDisk
from keepfast.sim.options import SimOptions
from keepfast.sim.simulated_members import initial_membership
from keepfast.storage import LogReader
from keepfast.storage.snapshot_file import load_tree
from keepfast.wire import (
    CorruptSnapshot,
    FrameParser,
    MalformedRecord,
    PeerProtocolError,
    ServerId,
    decode_entry,
    decode_forwarded_request,
    decode_hello,
    decode_notification,
    decode_touched_sessions,
    encode_frame,
    encode_notification,
    make_zxid,
)
from tests.replica.machine import Client, Machine

Target = Callable[[bytes], None]


def client_frames(data: bytes) -> None:
    """Requests of a client with a session; whatever they are, others are served."""
    machine = Machine()
    client, neighbour = Client(machine), Client(machine)
    client.connect()
    neighbour.connect()
    for payload in _pieces(data):
        machine.replica.receive(client.connection, encode_frame(payload))
    machine.settle()
    neighbour.send(1, 11)
    machine.settle()
    assert neighbour.replies()


def client_stream(data: bytes) -> None:
    """Bytes of somebody who may not even be a client."""
    machine = Machine()
    stranger = machine.replica.connect("192.0.2.1", 1)
    assert stranger is not None
    machine.replica.receive(stranger, data)
    machine.settle()


def quorum_packets(data: bytes) -> None:
    """Packets of a learner, and everything that they may carry."""
    link = Link(1)
    link.parser.max_field = MAX_HELLO_BYTES
    with contextlib.suppress(MalformedRecord, PeerProtocolError):
        for packet in link.parser.feed(data):
            for decode in (decode_learner_hello, decode_leader_hello, decode_epoch_ack):
                with contextlib.suppress(MalformedRecord):
                    decode(packet)
            for parse in (decode_forwarded_request, decode_touched_sessions, decode_entry):
                with contextlib.suppress(MalformedRecord):
                    parse(packet.data or b"")
            decode_receipt(packet.data)
            offer = decode_offer(packet.data)
            if offer is not None:
                with tempfile.TemporaryDirectory() as folder:
                    write_secret(Path(folder) / SECRET_NAME, offer)
                    assert held_secret(folder) == offer


def election_packets(data: bytes) -> None:
    """A hello and votes, at a server that looks; what it says next can be sent."""
    with contextlib.suppress(MalformedRecord):
        decode_hello(data)
    election = Election(ServerId(1), initial_membership(SimOptions()))
    election.look(Candidacy.ELIGIBLE, make_zxid(1, 5), 1, 0)
    for number, payload in enumerate(_pieces(data)):
        with contextlib.suppress(MalformedRecord):
            election.receive(ServerId(2 + number % 2), decode_notification(payload), number)
    election.look(Candidacy.ELIGIBLE, make_zxid(1, 5), 1, 1000)
    for _, notification in election.outbox:
        encode_notification(notification)


def membership(data: bytes) -> None:
    """The text of a membership, as votes and txns carry it."""
    with contextlib.suppress(MalformedRecord):
        parse_membership(data)


def log_entry(data: bytes) -> None:
    """A record of a log."""
    with contextlib.suppress(MalformedRecord):
        decode_entry(data)


def log_segment(data: bytes) -> None:
    """A segment of a log: every record that is given out is whole, and the end is explained."""
    with _disk_with("log.1", data).open_read("/log.1") as file:
        reader = LogReader(file)
        for frame in reader:
            with contextlib.suppress(MalformedRecord):
                decode_entry(frame.entry)
        assert reader.ending.reason != "not read yet"


def snapshot(data: bytes) -> None:
    """A snapshot; its first byte decides how it is packed."""
    ending = ("", ".gz", ".snappy")[data[0] % 3] if data else ""
    name = f"snapshot.1{ending}"
    with contextlib.suppress(CorruptSnapshot):
        load_tree(_disk_with(name, data[1:]), f"/{name}")


def _disk_with(name: str, data: bytes) -> MemoryDisk:
    disk = MemoryDisk()
    with disk.create(f"/{name}") as file:
        file.write_at(0, data)
    return disk


_ENDINGS: Final = (".pem", ".p12", ".jks")
_JKS_PASSWORD: Final = "secret"


def key_store(data: bytes) -> None:
    """A key store; its first byte decides of which kind. A JKS file is given its right checksum."""
    ending, data = _ENDINGS[data[0] % 3] if data else ".pem", data[1:]
    if ending == ".jks":
        secret = _JKS_PASSWORD.encode("utf-16-be") + b"Mighty Aphrodite"
        data += sha1(secret + data, usedforsecurity=False).digest()
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / f"store{ending}"
        file.write_bytes(data)
        config = TlsConfig(
            key_store_location=str(file),
            key_store_password=_JKS_PASSWORD,
            trust_store_location=str(file),
            trust_store_password=_JKS_PASSWORD,
        )
        with contextlib.suppress(ConfigError):
            load_identity(KeyStore.of_keys(config, "ssl."))
        with contextlib.suppress(ConfigError):
            load_trust(KeyStore.of_trust(config, "ssl."))


def configuration(data: bytes) -> None:
    """zoo.cfg, as it is read and as it is shown."""
    with contextlib.suppress(ConfigError):
        parse_text(data, "zoo.cfg")
        without_secrets(data.decode("iso-8859-1"))


def login_file(data: bytes) -> None:
    """A JAAS file."""
    with contextlib.suppress(ConfigError):
        parse_jaas(data.decode("utf-8", "replace"), "jaas.conf")


_GUARD: Final = WebGuard((), frozenset())


def http_headers(data: bytes) -> None:
    """What a browser says of itself."""
    host, _, origin = data.decode("latin-1").partition("\n")
    headers = {"host": host, "origin": origin}
    _GUARD.refusal(HttpRequest("GET", "/commands", {}, headers, b"", "192.0.2.1"))


def http_stream(data: bytes) -> None:
    """Bytes at the admin port: an answer in HTTP, or none."""
    asyncio.run(_ask_by_http(data))


async def _ask_by_http(data: bytes) -> None:
    failures: list[Any] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, found: failures.append(found))

    async def answer(request: HttpRequest) -> HttpResponse:
        return HttpResponse(request.path.encode("utf-8", "replace"))

    server = HttpServer(answer, idle_seconds=60.0)
    await server.start("127.0.0.1", 0)
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    try:
        writer.write(data)
        writer.write_eof()
        told = await reader.read()
    except ConnectionError:
        told = b""
    writer.close()
    await server.stop()
    assert not told or told.startswith(b"HTTP/1.1 "), told
    assert not failures, failures


def frames(data: bytes) -> None:
    """The lengths in front of requests."""
    parser = FrameParser(1 << 20, 1)
    with contextlib.suppress(MalformedRecord):
        for piece in _pieces(data):
            parser.feed(piece)


TARGETS: Final[dict[str, Target]] = {
    target.__name__: target
    for target in (
        client_frames,
        client_stream,
        quorum_packets,
        election_packets,
        membership,
        log_entry,
        log_segment,
        snapshot,
        key_store,
        configuration,
        login_file,
        http_headers,
        http_stream,
        frames,
    )
}


def _pieces(data: bytes) -> list[bytes]:
    """Bytes cut into pieces: each begins with its length, in one byte."""
    pieces = []
    at = 0
    while at < len(data):
        size = data[at]
        pieces.append(data[at + 1 : at + 1 + size])
        at += 1 + size
    return pieces
