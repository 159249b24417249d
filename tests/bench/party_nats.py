"""NATS JetStream, three servers, one stream with three replicas on file: the peer for comparison.

Run as `party_nats.py create|delete PORTS STREAM` or `party_nats.py measure PORTS STREAM PIDS SIZE WINDOW WARM RUN`;
PORTS and PIDS are comma-separated, in server order n0..n2. `servers(directory)` starts the three.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import nats
from child import free_port
from closed_loop import show_loop
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


async def create(ports: list[int], stream: str) -> None:
    """Create the stream, as soon as the servers have a leader among them."""
    connection = await nats.connect([f"nats://127.0.0.1:{p}" for p in ports])
    deadline = time.monotonic() + CREATE_TIMEOUT_S
    config = StreamConfig(name=stream, subjects=[stream], num_replicas=3, storage=StorageType.FILE, max_bytes=2 << 30)
    while True:
        try:
            await connection.jetstream().add_stream(config)
            break
        except NatsError:
            if time.monotonic() > deadline:
                raise
            await asyncio.sleep(0.5)
    await connection.close()


async def delete(ports: list[int], stream: str) -> None:
    """Drop the stream and its files."""
    connection = await nats.connect([f"nats://127.0.0.1:{p}" for p in ports])
    await connection.jetstream().delete_stream(stream)
    await connection.close()


async def run(ports: list[int], stream: str, pids: list[int], size: int, numbers: Sequence[str]) -> None:
    """Measure against the stream's leader, like a client that knows it; print one JSON line."""
    connection = await nats.connect([f"nats://127.0.0.1:{p}" for p in ports])
    info = await connection.jetstream().stream_info(stream)
    assert info.cluster is not None
    assert info.cluster.leader is not None
    leader = int(info.cluster.leader[1:])
    await connection.close()
    connection = await nats.connect(f"nats://127.0.0.1:{ports[leader]}")
    jetstream = connection.jetstream()
    body = os.urandom(size)

    async def send() -> None:
        await jetstream.publish(stream, body)

    followers = {f"follower{i}": pid for i, pid in enumerate(p for n, p in enumerate(pids) if n != leader)}
    await show_loop(send, size, numbers, {"leader": pids[leader], **followers})
    await connection.close()


def _numbers(text: str) -> list[int]:
    return [int(n) for n in text.split(",")]


if __name__ == "__main__":
    verb, where, stream, *rest = sys.argv[1:]
    ports = _numbers(where)
    if verb == "measure":
        asyncio.run(run(ports, stream, _numbers(rest[0]), int(rest[1]), rest[2:]))
    else:
        asyncio.run((create if verb == "create" else delete)(ports, stream))
