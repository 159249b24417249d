"""Which handler a call gets: all methods of one server stand in one table, which a call is looked up in once.

Invariant: however many methods a server has, it waits for one next call. Generated code registers each method with
gRPC by itself as well; gRPC's asyncio server then waits for the next call of every method separately, and for each call
that comes it begins all of these waits again: with the 29 methods of a data node that is the larger part of the Python
calls that an empty unary call takes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import grpc

Handler = Any
"""One of gRPC's RpcMethodHandlers, as `rpc.interceptors` has them."""


class MethodTable(grpc.GenericRpcHandler):
    """The methods of one server, by full name."""

    def __init__(self) -> None:
        self._handlers: dict[str, Handler] = {}

    def add(self, service_name: str, handlers: Mapping[str, Handler]) -> None:
        """Serve the methods of a service; ``handlers`` by the method's short name."""
        self._handlers.update({f"/{service_name}/{name}": handler for name, handler in handlers.items()})

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> Handler:
        """The handler of a call; None for a method that is not in the table."""
        return self._handlers.get(handler_call_details.method)


class TabledServer(grpc.aio.Server):
    """``server``, which must have been made with ``table`` among its handlers, and methods that go into the table."""

    def __init__(self, server: grpc.aio.Server, table: MethodTable) -> None:
        self._server = server
        self._table = table

    def add_generic_rpc_handlers(self, generic_rpc_handlers: Iterable[grpc.GenericRpcHandler]) -> None:
        """Serve what has no table of its own methods; asked only for methods that are not in the table."""
        self._server.add_generic_rpc_handlers(generic_rpc_handlers)

    def add_registered_method_handlers(self, service_name: str, method_handlers: Mapping[str, Handler]) -> None:
        """Serve the methods of a service; registered in the table alone."""
        self._table.add(service_name, method_handlers)

    def add_insecure_port(self, address: str) -> int:
        """As gRPC's."""
        return self._server.add_insecure_port(address)

    def add_secure_port(self, address: str, server_credentials: grpc.ServerCredentials) -> int:
        """As gRPC's."""
        return self._server.add_secure_port(address, server_credentials)

    async def start(self) -> None:
        """As gRPC's."""
        await self._server.start()

    async def stop(self, grace: float | None) -> None:
        """As gRPC's."""
        await self._server.stop(grace)

    async def wait_for_termination(self, timeout: float | None = None) -> bool:  # noqa: ASYNC109 - gRPC's own
        """As gRPC's."""
        return await self._server.wait_for_termination(timeout)
