"""A program that ends without `flush` and `close`: what its producers held is sent, or said."""

from __future__ import annotations

import asyncio
import gc
import sys

import pytest
from tests.client.fake_cluster import TOPIC, Hold, fake_cluster

from strandline.client import Producer

_BLOCKING = """
import logging, sys
from strandline.client import sync
logging.basicConfig()
producer = sync.Producer(sys.argv[1], linger_ms=60_000)
producer.start()
for number in range(100):
    producer.send(sys.argv[2], b"%d" % number)
"""

_ASYNCHRONOUS = """
import asyncio, logging, sys
from strandline.client import Producer
logging.basicConfig()

async def main():
    producer = Producer(sys.argv[1], linger_ms=60_000)
    await producer.start()
    for number in range(100):
        await producer.send(sys.argv[2], b"%d" % number)

asyncio.run(main())
"""

_FORKED = (
    _BLOCKING
    + """
import os
pid = os.fork()
if pid:
    os.waitpid(pid, 0)
    producer.flush()
"""
)


async def ended(program: str, bootstrap: str) -> str:
    """What a program says until it ends, which it does well."""
    running = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-W", "always::ResourceWarning", "-c", program, bootstrap, TOPIC),
        stderr=asyncio.subprocess.PIPE,
    )
    async with asyncio.timeout(60):
        _, said = await running.communicate()

    assert running.returncode == 0, said.decode()
    return said.decode()


async def test_a_blocking_producer_sends_what_it_holds_at_the_end_of_the_process() -> None:
    """Records that lingered when the program ended are all there, and nothing is said."""
    async with fake_cluster() as cluster:
        said = await ended(_BLOCKING, cluster.bootstrap)

    assert cluster.log().values() == [b"%d" % number for number in range(100)]
    assert "given up" not in said


async def test_what_a_blocking_producer_cannot_send_at_the_end_is_said() -> None:
    """A cluster that does not answer keeps the process for a few seconds; then the number of records is said."""
    async with fake_cluster() as cluster:
        cluster.nodes[0].next_produce.append(Hold())
        said = await ended(_BLOCKING, cluster.bootstrap)

    assert "WARNING:strandline.client:100 records are given up" in said
    assert "ResourceWarning: 100 records are given up" in said


async def test_what_an_asynchronous_producer_held_is_said() -> None:
    """Its loop is over when the process ends, so nothing can be sent; the number of records is said, once."""
    async with fake_cluster() as cluster:
        said = await ended(_ASYNCHRONOUS, cluster.bootstrap)

    assert said.count("WARNING:strandline.client:100 records are given up") == 1
    assert said.count("ResourceWarning: 100 records are given up") == 1


async def test_a_child_says_nothing_of_what_its_parent_holds() -> None:
    """What a parent holds at a fork is the parent's to send, and no loss of the child's."""
    async with fake_cluster() as cluster:
        said = await ended(_FORKED, cluster.bootstrap)

    assert len(cluster.log().values()) == 100
    assert "given up" not in said


def test_a_producer_that_is_forgotten_says_what_it_held(caplog: pytest.LogCaptureFixture) -> None:
    """A producer whose loop is over and that nobody refers to says how many records are given up with it."""

    async def forget() -> None:
        async with fake_cluster() as cluster:
            producer = Producer(cluster.bootstrap, linger_ms=60_000)
            await producer.start()
            await producer.send(TOPIC, b"1")
            await producer.send(TOPIC, b"2")

    def run() -> None:
        asyncio.run(forget())
        gc.collect()

    with pytest.warns(ResourceWarning, match="2 records are given up"):
        run()

    assert "2 records are given up" in caplog.text
