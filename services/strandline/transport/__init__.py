"""CARRIES gRPC over asyncio: a replacement for the part of `grpc.aio` that Strandline uses (docs/TRANSPORT.md).

Handlers, interceptors, generated stubs, reflection and health are grpcio's classes; HTTP/2 is our own.
"""

from strandline.transport.channel import Channel, insecure_channel, secure_channel
from strandline.transport.options import AuthContext, Security
from strandline.transport.serving import Server, server

__all__ = ["AuthContext", "Channel", "Security", "Server", "insecure_channel", "secure_channel", "server"]
