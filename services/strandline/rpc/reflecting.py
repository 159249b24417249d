"""Server reflection: a server's contract for any client that asks, with methods found by their full names too.

Invariant: whatever `grpcurl list` prints, services and methods alike, `grpcurl describe` can describe.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import grpc
from google.protobuf import descriptor_pool
from grpc_reflection.v1alpha import reflection


class _WithMethods:
    """The pool of all descriptors. Its own search by symbol knows messages, enums and services, but no methods."""

    def __init__(self, pool: descriptor_pool.DescriptorPool) -> None:
        self._pool = pool

    def __getattr__(self, name: str) -> Any:
        return getattr(self._pool, name)

    def FindFileContainingSymbol(self, symbol: str) -> Any:  # noqa: N802 - protobuf's own name
        """The file of a symbol; of a method, the file of its service.

        Raises:
            KeyError: nothing has this name.
        """
        try:
            return self._pool.FindFileContainingSymbol(symbol)
        except KeyError:
            service, _, method = symbol.rpartition(".")
            found = self._pool.FindServiceByName(service)
            if method not in found.methods_by_name:
                raise
            return found.file


def enable_reflection(server: grpc.aio.Server, services: Sequence[str]) -> None:
    """Describe these services, and reflection itself, to any client of this server."""
    names = (*services, reflection.SERVICE_NAME)
    reflection.enable_server_reflection(names, server, pool=_WithMethods(descriptor_pool.Default()))  # type: ignore[arg-type]  # asked for by duck typing
