"""NATS JetStream, three servers, one stream with three replicas on file: the peer for comparison.

Run as `party_nats.py PORT STREAM PIDS SIZE WINDOW WARM RUN`; PORT is the leader's, PIDS is `role:pid,...`.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import nats
from child import free_port
from closed_loop import pids_of, show_loop
from nats.errors import Error as NatsError
from nats.js.api import StorageType, StreamConfig

CREATE_TIMEOUT_S = 30


@contextmanager
def servers(directory: Path, *, sync_always: bool) -> Iterator[tuple[list[int], list[int]]]:
    """Three clustered servers; their client ports and process ids. ``sync_always``: fsync before each answer."""
    ports, routes = ([free_port() for _ in range(3)] for _ in range(2))
    binary = Path(sys.executable).parent / "nats-server"
    peers = ", ".join(f"nats-route://127.0.0.1:{r}" for r in routes)
    sync = ", sync_interval: always" if sync_always else ""
    started: list[subprocess.Popen[bytes]] = []
    try:
        for n in range(3):
            home = directory / f"n{n}"
            home.mkdir(parents=True)
            config = home / "nats.conf"
            config.write_text(
                f"server_name: n{n}\nhost: 127.0.0.1\nport: {ports[n]}\nmax_payload: 8388608\n"
                f'jetstream {{ store_dir: "{home}"{sync} }}\n'
                f"cluster {{ name: bench, host: 127.0.0.1, port: {routes[n]}, routes: [{peers}] }}\n"
            )
            with (home / "log").open("wb") as output:
                started.append(subprocess.Popen([str(binary), "-c", str(config)], stdout=output, stderr=output))
        yield ports, [process.pid for process in started]
    finally:
        for process in started:
            process.kill()
            process.wait()


async def create(ports: Sequence[int], stream: str) -> int:
    """Create the stream, as soon as the servers have a leader among them; which of them leads it."""
    deadline = time.monotonic() + CREATE_TIMEOUT_S
    config = StreamConfig(name=stream, subjects=[stream], num_replicas=3, storage=StorageType.FILE, max_bytes=2 << 30)
    async with await _connected(*ports) as connection:
        jetstream = connection.jetstream()
        while True:
            try:
                await jetstream.add_stream(config)
                break
            except NatsError:
                if time.monotonic() > deadline:
                    raise
                await asyncio.sleep(0.5)
        info = await jetstream.stream_info(stream)
    assert info.cluster is not None
    assert info.cluster.leader is not None
    return int(info.cluster.leader[1:])


async def delete(ports: Sequence[int], stream: str) -> None:
    """Drop the stream and its files."""
    async with await _connected(*ports) as connection:
        await connection.jetstream().delete_stream(stream)


async def run(port: int, stream: str, pids: Mapping[str, int], size: int, numbers: Sequence[str]) -> None:
    """Measure against the stream's leader, like a client that knows it; print one JSON line."""
    async with await _connected(port) as connection:
        jetstream, body = connection.jetstream(), os.urandom(size)

        async def send() -> None:
            await jetstream.publish(stream, body)

        await show_loop(send, size, numbers, pids)


async def _connected(*ports: int) -> nats.NATS:
    return await nats.connect([f"nats://127.0.0.1:{port}" for port in ports])


if __name__ == "__main__":
    asyncio.run(run(int(sys.argv[1]), sys.argv[2], pids_of(sys.argv[3]), int(sys.argv[4]), sys.argv[5:]))
