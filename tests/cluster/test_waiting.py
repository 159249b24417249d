"""Waiting for a cluster, as in the other tests: a process that has not started yet is waited for, not a failure."""

from __future__ import annotations

import socket

import pytest
from running_cluster import until

from strandline.client import Admin


async def _reached(address: str) -> bool:
    async with Admin(address, timeout_ms=100) as admin:
        return bool((await admin.metadata()).nodes)


async def test_a_cluster_that_cannot_be_reached_yet_is_asked_again() -> None:
    """A failed call does not end the wait; the next one is made, and its answer counts."""
    with socket.socket() as nobody:
        # Bound and not listening: the test owns the port, which refuses connections.
        nobody.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{nobody.getsockname()[1]}"
        asked = 0

        async def look() -> bool:
            nonlocal asked
            asked += 1
            return asked == 2 or await _reached(address)

        assert await until(look, "somebody answers", timeout_s=10)

    assert asked == 2


async def test_a_wait_ends_with_what_was_reported_last() -> None:
    """Without any answer the failure names what was waited for, and the address that did not answer."""
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{nobody.getsockname()[1]}"

        with pytest.raises(AssertionError, match=f"not within 0.3 s: somebody answers; last failure: .*{address}"):
            await until(lambda: _reached(address), "somebody answers", timeout_s=0.3)
