"""A slow TCP link: `proxy_process.py PORT TARGET_HOST TARGET_PORT MARK` forwards every connection, slowed on command.

Invariant: bytes keep their order and none is lost; delay and bandwidth hold for each direction of each connection;
bytes in flight are bounded, so that a slow link pushes back on its sender. One command a line on stdin as JSON
(`delay_ms`, `bytes_per_s`), one answer a line on stdout; the end of stdin ends the process.
"""

from __future__ import annotations

import asyncio
import json
import socket
import sys
from dataclasses import dataclass

_CHUNK_BYTES = 16 << 10
_UNDER_WAY = 64
"""Chunks that a link holds in one direction."""


@dataclass(slots=True)
class Link:
    """The link's current settings, and its counters."""

    delay_s: float = 0.0
    bytes_per_s: float | None = None
    connections: int = 0
    slowed_bytes: int = 0

    @property
    def is_slow(self) -> bool:
        return bool(self.delay_s or self.bytes_per_s)

    async def carry(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        """One direction of one connection, until its sender closes."""
        loop = asyncio.get_running_loop()
        under_way: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue(_UNDER_WAY)

        async def deliver() -> None:
            while (item := await under_way.get())[1]:
                due_s, chunk = item
                await asyncio.sleep(max(0.0, due_s - loop.time()))
                sink.write(chunk)
                await sink.drain()

        async with asyncio.TaskGroup() as both:
            both.create_task(deliver())
            sent_s = loop.time()
            while True:
                chunk = await source.read(_CHUNK_BYTES)
                sent_s = max(sent_s, loop.time())
                if self.bytes_per_s:
                    sent_s += len(chunk) / self.bytes_per_s
                if self.is_slow:
                    self.slowed_bytes += len(chunk)
                await under_way.put((sent_s + self.delay_s, chunk))
                if not chunk:
                    return


async def main(port: int, host: str, target: int, mark: int) -> None:
    """Serves until stdin ends."""
    link = Link()

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        link.connections += 1
        with socket.socket() as onward:
            onward.setblocking(False)
            if mark:
                # Otherwise the rule that redirects connections here would redirect this one as well.
                onward.setsockopt(socket.SOL_SOCKET, socket.SO_MARK, mark)
            try:
                await asyncio.get_running_loop().sock_connect(onward, (host, target))
                far_reader, far_writer = await asyncio.open_connection(sock=onward)
            except OSError:
                writer.transport.abort()
                return
            tasks = {
                asyncio.create_task(link.carry(reader, far_writer)),
                asyncio.create_task(link.carry(far_reader, writer)),
            }
            # HTTP/2 has no half-closed connections: the first end closes both.
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            far_writer.transport.abort()
            writer.transport.abort()

    server = await asyncio.start_server(connected, "127.0.0.1", port)
    print(json.dumps({"port": server.sockets[0].getsockname()[1]}), flush=True)
    orders = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(orders), sys.stdin)
    while line := await orders.readline():
        order = json.loads(line)
        if "delay_ms" in order:
            link.delay_s, link.bytes_per_s = order["delay_ms"] / 1000, order["bytes_per_s"]
        print(json.dumps({"connections": link.connections, "slowed_bytes": link.slowed_bytes}), flush=True)


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]), sys.argv[2], int(sys.argv[3]), int(sys.argv[4])))
