"""The world around a simulated server does what sockets do."""

from __future__ import annotations

from keepfast.wire import ExistsRequest, OpCode, encode_frame
from tests.replica.plain_frames import request_of
from tests.replica.simulated import PlainClient, process_of, started


def test_bytes_that_come_when_a_server_reads_on__are_read_after_those_that_waited() -> None:
    ensemble = started(1)
    (host,) = ensemble.hosts
    client, process = PlainClient(ensemble, host), process_of(host)
    (connection,) = process.replica.service.connections.values()
    process.pause_client(connection)
    exists = ExistsRequest("/", False)
    for xid in (1, 2, 3):
        client.send(xid, OpCode.EXISTS, exists)
    ensemble.pass_ms(20)
    assert client.replies() == []
    process.resume_client(connection)
    assert client.stream is not None
    end = client.stream.ends[1]
    assert end is not None
    end.on_data(encode_frame(request_of(4, OpCode.EXISTS, exists)))
    ensemble.pass_ms(20)
    assert client.replies() == [(xid, 0) for xid in (1, 2, 3, 4)]
