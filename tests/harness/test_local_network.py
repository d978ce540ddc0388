"""Wires between servers on this machine: cut, healed in part, and patient with who is late."""

from __future__ import annotations

import asyncio
import socket

import pytest

from keepfast.harness import LOCAL_HOST, HeldPorts, Network

TIMEOUT_SECONDS = 30.0


def talk(listener: socket.socket, port: int) -> bytes:
    """Send something to a port, and take it at the listener."""
    with socket.create_connection((LOCAL_HOST, port), TIMEOUT_SECONDS) as near:
        far, _ = listener.accept()
        with far:
            near.sendall(b"hello")
            return far.recv(5)


def has_ended(near: socket.socket) -> bool:
    """Whether the other side ends a connection, in order or not."""
    try:
        return near.recv(1) == b""
    except ConnectionResetError:
        return True


def test_heal_of_some_servers__leaves_the_others_cut() -> None:
    with Network() as network, socket.create_server((LOCAL_HOST, 0)) as listener:
        listener.settimeout(TIMEOUT_SECONDS)
        port = listener.getsockname()[1]
        to_2, to_3 = network.route(1, 2, port), network.route(1, 3, port)
        network.partition([1], [2, 3])
        network.heal(1, 2)
        assert talk(listener, to_2) == b"hello"
        with socket.create_connection((LOCAL_HOST, to_3), TIMEOUT_SECONDS) as near:
            assert has_ended(near)
        network.heal()
        assert talk(listener, to_3) == b"hello"


@pytest.mark.parametrize("turns", range(5))
def test_who_dials_when_the_network_ends__is_cut_off(turns: int) -> None:
    network = Network()

    async def dial(port: int) -> socket.socket:
        # On the loop, so that it is accepted this many turns before the end and not earlier.
        near = socket.create_connection((LOCAL_HOST, port), TIMEOUT_SECONDS)
        for _ in range(turns):
            await asyncio.sleep(0)
        await network._end()
        return near

    with socket.create_server((LOCAL_HOST, 0)) as listener:
        route = network.route(1, 2, listener.getsockname()[1])
        near = network._await(dial(route))
        network.close()
        with near:
            near.setblocking(False)
            assert has_ended(near)


def test_server_that_listens_late__is_reached_by_who_dialled_before() -> None:
    with Network(TIMEOUT_SECONDS) as network, HeldPorts(1) as held:
        route = network.route(1, 2, held.numbers[0])
        near = socket.create_connection((LOCAL_HOST, route), TIMEOUT_SECONDS)
        with near, socket.create_server((LOCAL_HOST, held.numbers[0])) as listener:
            listener.settimeout(TIMEOUT_SECONDS)
            near.sendall(b"hello")
            far, _ = listener.accept()
            with far:
                assert far.recv(5) == b"hello"
