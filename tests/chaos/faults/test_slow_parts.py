"""Slow links and slow processes are slow, and report how much they delayed."""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator

import pytest
from faults.cpu import Group, quota_missing
from faults.proxy import Proxy

_no_quota = quota_missing()
_SPIN = "import time\nbegan = time.process_time()\nwhile time.process_time() < began + 0.2: pass"


@pytest.fixture
def proxied() -> Iterator[tuple[Proxy, socket.socket]]:
    """A proxy in front of an echo server, and a connection through it."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        threading.Thread(target=_echo, args=(server,), daemon=True).start()
        proxy = Proxy("127.0.0.1", server.getsockname()[1])
        proxy.start()
        with socket.create_connection(("127.0.0.1", proxy.listen), timeout=20) as through:
            yield proxy, through
        proxy.stop()


def _echo(server: socket.socket) -> None:
    connection, _ = server.accept()
    with connection:
        while content := connection.recv(1 << 16):
            connection.sendall(content)


def _round_trip_s(through: socket.socket, content: bytes) -> float:
    began = time.monotonic()
    threading.Thread(target=through.sendall, args=(content,), daemon=True).start()
    received = bytearray()
    while len(received) < len(content):
        received += through.recv(1 << 16)
    assert received == content
    return time.monotonic() - began


def test_a_proxied_link_adds_its_delay_each_way(proxied: tuple[Proxy, socket.socket]) -> None:
    """100 ms each way make a round trip of 200 ms, and healing the link makes it fast again."""
    proxy, through = proxied
    proxy.slow(100, None)
    slow_s = [_round_trip_s(through, b"ping") for _ in range(5)]
    carried = proxy.slowed_bytes
    proxy.slow(0, None)
    quick_s = [_round_trip_s(through, b"ping") for _ in range(20)]

    # A busy machine stands still now and then, but not in each of them.
    assert 0.2 <= min(slow_s) < 2
    assert min(quick_s) < 0.2
    assert carried == proxy.slowed_bytes == 40
    assert proxy.connections == 1


def test_a_proxied_link_has_its_bandwidth(proxied: tuple[Proxy, socket.socket]) -> None:
    """300,000 bytes over 3 Mbit/s take 0.8 s, and arrive unchanged."""
    proxy, through = proxied
    proxy.slow(0, 3_000_000 / 8)
    took_s = _round_trip_s(through, bytes(range(250)) * 1200)

    assert 0.75 <= took_s < 4


@pytest.mark.skipif(_no_quota is not None, reason=f"CPU quota: {_no_quota}")
def test_a_process_with_a_share_of_a_processor_is_held_back() -> None:
    """0.2 s of computing take more than 1 s with a tenth of a processor, and the kernel counts the throttling."""
    group = Group(0.1)
    began = time.monotonic()
    with subprocess.Popen([sys.executable, "-c", _SPIN]) as spinning:
        group.take(spinning.pid)
        assert spinning.wait(60) == 0
    took_s = time.monotonic() - began
    throttled = group.throttled
    group.remove()

    assert took_s > 1
    assert throttled > 5
