"""Records what clients send on a connection, for the fuzz target `transport-recorded`: `python record_connections.py`.

grpcio, grpc-go and grpc-js call the interoperability service through a relay that keeps their bytes; the cases are
those without large messages, so that a recording can be cut at every byte. Needs Go, and `npm ci` in `examples/node`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import grpc
import interop_cases as cases
from go_tools import ROOT, interop_client
from interop_service import SERVICE, handlers

from strandline import transport

CORPUS = ROOT / "tests" / "fuzz" / "corpus" / "transport-recorded"
_GO_CASES = ("empty_unary", "empty_stream", "status_code_and_message", "unimplemented_method")
_CASES = (cases.empty_unary, cases.empty_stream, cases.special_status_message, cases.unimplemented)
_JS = f"""
const grpc = require("@grpc/grpc-js");
const same = (value) => value;
const client = new grpc.Client(process.argv[1], grpc.credentials.createInsecure());
client.makeUnaryRequest("/{SERVICE}/EmptyCall", same, same, Buffer.alloc(0), (error) => {{
  if (error) throw error;
  const call = client.makeBidiStreamRequest("/{SERVICE}/FullDuplexCall", same, same);
  call.on("data", same);
  call.on("end", () => client.close());
  call.write(Buffer.from([0x12, 0x02, 0x08, 0x05]));
  call.end();
}});
"""


async def _grpcio(port: int) -> None:
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        for case in _CASES:
            await case(channel)


async def _grpc_go(port: int) -> None:
    for case in _GO_CASES:
        await _run(interop_client(), "-server_host", "127.0.0.1", "-server_port", str(port), "-test_case", case)


async def _grpc_js(port: int) -> None:
    await _run("node", "-e", _JS, f"127.0.0.1:{port}", place=ROOT / "examples" / "node")


async def _run(program: Path | str, *words: str, place: Path = ROOT) -> None:
    process = await asyncio.create_subprocess_exec(program, *words, cwd=place)
    if code := await asyncio.wait_for(process.wait(), 60):
        raise SystemExit(f"{program} ended with {code}")


@asynccontextmanager
async def _relay(server_port: int, kept: list[bytearray]) -> AsyncIterator[int]:
    """A port in front of the server that appends to ``kept`` what each connection sends."""

    async def carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, into: bytearray) -> None:
        while part := await reader.read(1 << 16):
            into += part
            writer.write(part)
        writer.close()

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        from_server, to_server = await asyncio.open_connection("127.0.0.1", server_port)
        kept.append(bytearray())
        await asyncio.gather(carry(reader, to_server, kept[-1]), carry(from_server, writer, bytearray()))

    relay = await asyncio.start_server(connected, "127.0.0.1", 0)
    async with relay:
        yield relay.sockets[0].getsockname()[1]


async def main() -> None:
    """Write a file for each connection of each client."""
    clients: dict[str, Callable[[int], Awaitable[None]]] = {
        "grpcio": _grpcio,
        "grpc-go": _grpc_go,
        "grpc-js": _grpc_js,
    }
    CORPUS.mkdir(parents=True, exist_ok=True)
    server = transport.server(handlers=[handlers()])
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    for name, run in clients.items():
        kept: list[bytearray] = []
        async with _relay(port, kept) as relay_port:
            await run(relay_port)
        for number, content in enumerate(kept, 1):
            (CORPUS / f"{name}-{number}").write_bytes(content)
            print(f"{name}-{number}: {len(content)} bytes")
    await server.stop(0)


if __name__ == "__main__":
    asyncio.run(main())
