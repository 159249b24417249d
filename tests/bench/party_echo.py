"""The bare bidi gRPC echo: the limit of this machine's gRPC without any product code.

Run as `party_echo.py serve` (prints its port) or `party_echo.py measure PORT PID SIZE WINDOW WARM RUN`.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections import deque
from collections.abc import AsyncIterator

import grpc
import uvloop
from closed_loop import measure

from strandline.rpc.channels import message_limits
from strandline.runtime.malloc import keep_large_buffers

METHOD = "/bench.Echo/Stream"


async def _echo(
    requests: AsyncIterator[bytes], context: grpc.aio.ServicerContext[bytes, bytes]
) -> AsyncIterator[bytes]:
    async for request in requests:
        yield request[:8]


async def serve() -> None:
    """Serve until killed."""
    keep_large_buffers()
    server = grpc.aio.server(options=[*message_limits(), ("grpc.so_reuseport", 0)])
    handler = grpc.stream_stream_rpc_method_handler(_echo)
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("bench.Echo", {"Stream": handler}),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    print(port, flush=True)
    await server.wait_for_termination()


async def run(port: int, pid: int, size: int, window: int, warm_s: float, run_s: float) -> None:
    """Measure and print one JSON line."""
    keep_large_buffers()
    channel = grpc.aio.insecure_channel(f"127.0.0.1:{port}", options=message_limits())
    call = channel.stream_stream(METHOD)()
    body = os.urandom(size)
    waiting: deque[asyncio.Future[None]] = deque()
    sending = asyncio.Lock()

    async def send() -> None:
        answered: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        async with sending:
            waiting.append(answered)
            await call.write(body)
        await answered

    async def read() -> None:
        async for _ in call:
            waiting.popleft().set_result(None)

    reading = asyncio.create_task(read())
    pids = {"server": pid, "client": os.getpid()}
    figures = await measure(send, size_bytes=size, window=window, warm_s=warm_s, run_s=run_s, pids=pids)
    print(json.dumps(figures.as_dict()), flush=True)
    await call.done_writing()
    await reading
    await channel.close()


if __name__ == "__main__":
    if sys.argv[1] == "serve":
        uvloop.run(serve())
    else:
        port, pid, size, window = map(int, sys.argv[2:6])
        uvloop.run(run(port, pid, size, window, float(sys.argv[6]), float(sys.argv[7])))
