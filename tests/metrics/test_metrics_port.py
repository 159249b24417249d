"""The port of metrics: its own threads, its own port, and no harm from any client."""

from __future__ import annotations

import asyncio
import os
import socket
import urllib.error
import urllib.request
from typing import Any

import pytest
from scraping import LOOPBACK, scraped

from strandline.metrics import port as port_module
from strandline.metrics.families import LED, Role
from strandline.metrics.figures import Figure
from strandline.metrics.port import MetricsPort


async def test_a_loop_that_stands_still_fails_its_scrape(monkeypatch: pytest.MonkeyPatch) -> None:
    """503 instead of old figures, and the next scrape is answered again."""
    monkeypatch.setattr(port_module, "ANSWER_WITHIN_S", 0.2)
    port = MetricsPort(Role.REPLICA, tuple)
    address = port.open(LOOPBACK)
    assert address is not None
    # Called from the loop itself, which is blocked until the answer is there.
    stuck = _status(address)
    healthy = await asyncio.to_thread(_status, address)
    await asyncio.to_thread(port.close)

    assert (stuck, healthy) == (503, 200)


@pytest.mark.parametrize("path", ["/", "/metrics/", "/favicon.ico", "/../metrics", "/metrics%00"])
async def test_other_paths_are_not_found(path: str) -> None:
    """Another path is not found, and the answer says where the metrics are."""
    port = MetricsPort(Role.REPLICA, tuple)
    address = port.open(LOOPBACK)
    assert address is not None
    status = await asyncio.to_thread(_status, address, path)
    await asyncio.to_thread(port.close)

    assert status == 404


def _status(address: str, path: str = "/metrics") -> int:
    try:
        with urllib.request.urlopen(f"http://{address}{path}", timeout=10) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code


async def test_callers_that_break_off_do_no_harm(capfd: pytest.CaptureFixture[str]) -> None:
    """Noise, a reset and half a request: the next scrape is answered, and no traceback is printed."""
    port = MetricsPort(Role.REPLICA, lambda: (Figure(LED, 4),))
    address = port.open(LOOPBACK)
    assert address is not None
    host, _, number = address.rpartition(":")
    for noise in (os.urandom(500), b"GET /metrics HTTP/1.1\r\n", b""):
        with socket.create_connection((host, int(number))) as peer:
            peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
            peer.sendall(noise)
    seen = await scraped(address)
    await asyncio.to_thread(port.close)

    assert seen.value("leader_partitions") == 4
    assert "Traceback" not in capfd.readouterr().err


async def test_a_taken_port_is_an_error() -> None:
    """Two processes never share the port."""
    first, second = MetricsPort(Role.REPLICA, tuple), MetricsPort(Role.REPLICA, tuple)
    address: Any = first.open(LOOPBACK)

    with pytest.raises(OSError, match="in use"):
        second.open(address)

    await asyncio.to_thread(first.close)


async def test_no_address_means_no_port() -> None:
    """An empty setting opens nothing, and closing is harmless."""
    port = MetricsPort(Role.REPLICA, tuple)

    assert port.open("") is None
    port.close()


async def test_ipv6_is_served_too() -> None:
    """An address in brackets, where the machine has IPv6 at all."""
    if not socket.has_ipv6:
        pytest.skip("this machine has no IPv6")
    port = MetricsPort(Role.REPLICA, tuple)
    try:
        address = port.open("[::1]:0")
    except OSError:
        pytest.skip("this machine has no IPv6 on loopback")
    assert address is not None
    seen = await scraped(address)
    await asyncio.to_thread(port.close)

    assert seen.ours == {"strandline_build_info"}
