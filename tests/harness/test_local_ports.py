"""Ports that are held: nobody else is given one, and a server listens on it all the same."""

from __future__ import annotations

import socket
import sys

import pytest

from keepfast.harness import LOCAL_HOST, HeldPorts, free_ports

linux_only = pytest.mark.skipif(sys.platform != "linux", reason="other systems hold no ports")


def listen(port: int) -> socket.socket:
    return socket.create_server((LOCAL_HOST, port))


def test_free_ports__are_all_different_and_can_be_listened_on() -> None:
    ports = free_ports(5)
    assert len(set(ports)) == 5
    for port in ports:
        listen(port).close()


def test_held_port__a_server_listens_on_it_again_and_again() -> None:
    with HeldPorts(1) as held:
        for _ in range(2):
            with listen(held.numbers[0]), socket.create_connection((LOCAL_HOST, held.numbers[0])):
                pass


@linux_only
def test_held_port__is_given_to_nobody_else() -> None:
    with HeldPorts(1) as held, socket.socket() as other, pytest.raises(OSError, match="in use"):
        other.bind((LOCAL_HOST, held.numbers[0]))


@linux_only
def test_held_port__nobody_listens__connections_are_refused() -> None:
    with HeldPorts(1) as held, pytest.raises(ConnectionRefusedError):
        socket.create_connection((LOCAL_HOST, held.numbers[0]))
