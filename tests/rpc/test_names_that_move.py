"""A channel whose dialled name gets another address, like a pod's at every restart."""

from __future__ import annotations

import asyncio
import struct
from typing import cast

import grpc

from strandline.rpc.channels import reconnection

NOBODY, SOMEBODY = "127.0.0.2", "127.0.0.1"
READY_S = 10.0
"""gRPC by itself asks again after 30 s."""
_TYPE_A = 1
_POINTER_TO_QUESTION = 0xC00C


class NameServer(asyncio.DatagramProtocol):
    """Answers every query for an IPv4 address with the one address that is currently set."""

    def __init__(self) -> None:
        self.address = NOBODY
        self._transport: asyncio.DatagramTransport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        self._transport = cast("asyncio.DatagramTransport", transport)

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        """RFC 1035, 4: the question again, and one answer if it was for an IPv4 address."""
        assert self._transport is not None
        end = data.index(b"\0", 12) + 5
        (kind,) = struct.unpack(">H", data[end - 4 : end - 2])
        answer = b""
        if kind == _TYPE_A:
            packed = bytes(int(part) for part in self.address.split("."))
            answer = struct.pack(">HHHIH", _POINTER_TO_QUESTION, _TYPE_A, 1, 1, len(packed)) + packed
        counts = struct.pack(">HHHH", 1, 1 if answer else 0, 0, 0)
        self._transport.sendto(data[:2] + b"\x81\x80" + counts + data[12:end] + answer, addr)


async def test_a_peer_at_a_new_address_is_found_soon() -> None:
    """A name moves after the dial to its old address has failed: the channel resolves it again and connects."""
    loop = asyncio.get_running_loop()
    transport, names = await loop.create_datagram_endpoint(NameServer, local_addr=(SOMEBODY, 0))
    server = grpc.aio.server(options=[("grpc.so_reuseport", 0)])
    port = server.add_insecure_port(f"{SOMEBODY}:0")
    await server.start()
    name_server = transport.get_extra_info("sockname")[1]
    channel = grpc.aio.insecure_channel(f"dns://{SOMEBODY}:{name_server}/node.test:{port}", options=reconnection())
    try:
        await _reaches(channel, grpc.ChannelConnectivity.TRANSIENT_FAILURE)
        names.address = SOMEBODY
        await _reaches(channel, grpc.ChannelConnectivity.READY)
    finally:
        await channel.close()
        await server.stop(None)
        transport.close()


async def _reaches(channel: grpc.aio.Channel, wanted: grpc.ChannelConnectivity) -> None:
    async with asyncio.timeout(READY_S):
        while (state := channel.get_state(try_to_connect=True)) is not wanted:
            await channel.wait_for_state_change(state)
