"""Ports of embedded servers: each is reserved before its server starts, and while it restarts."""

import errno
import socket
import weakref
from pathlib import Path

import pytest

from keyhouse.nats import server as nats_server
from keyhouse.nats.server import NatsServer, ReservedPort


def is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def test_a_port_is_reserved_once_and_released_with_its_object() -> None:
    first = ReservedPort()
    number, gone = first.number, weakref.ref(first)
    assert not is_free(number) or not nats_server.RESERVES_PORTS
    assert ReservedPort().number != number or not nats_server.RESERVES_PORTS
    del first
    assert gone() is None and is_free(number)


def test_without_file_descriptors_it_raises(monkeypatch: pytest.MonkeyPatch) -> None:
    """It tried one port after the other, forever."""

    def refuse() -> socket.socket:
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(socket, "socket", refuse)
    with pytest.raises(OSError, match="Too many open files"):
        ReservedPort()


def test_a_server_keeps_its_port_while_it_is_stopped(tmp_path: Path) -> None:
    """Three test processes started servers at random ports: one of them found its port taken, once
    in some hundred runs."""
    server = NatsServer(tmp_path)
    assert server.port != server.monitor_port
    for _ in range(2):
        assert not is_free(server.port) or not nats_server.RESERVES_PORTS
        server.start()
        try:
            server.ready()
        finally:
            server.stop()
